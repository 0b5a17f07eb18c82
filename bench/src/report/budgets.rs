//! The budgets of the project, and whether a run met them.

use super::Figures;
use crate::stats::Table;

/// A bound of one or several figures.
struct Budget {
    what: &'static str,
    bound: f64,
    is_least: bool,
    decimals: usize,
    /// The names of the figures, and what they are divided by.
    figures: Vec<(String, Option<String>)>,
}

impl Budget {
    fn measured(&self, figures: &Figures) -> Vec<f64> {
        let by = |name: &Option<String>| name.as_ref().map_or(1.0, |name| figures.get(name));
        self.figures.iter().map(|(name, divisor)| figures.get(name) / by(divisor)).collect()
    }

    fn is_met(&self, value: f64) -> bool {
        if self.is_least { value >= self.bound } else { value <= self.bound }
    }

    fn row(&self, figures: &Figures) -> [String; 4] {
        let measured = self.measured(figures);
        let shown = |value: &f64| match *value {
            value if value.is_nan() => "–".to_owned(),
            value if self.is_met(value) => format!("{value:.*}", self.decimals),
            value => format!("**{value:.*}**", self.decimals),
        };
        let (known, missing): (Vec<f64>, Vec<f64>) = measured.iter().partition(|value| !value.is_nan());
        let verdict = match (known.iter().all(|value| self.is_met(*value)), missing.is_empty()) {
            _ if known.is_empty() => "not measured",
            (false, _) => "**missed**",
            (true, false) => "met, as far as measured",
            (true, true) => "met",
        };
        let sign = if self.is_least { "≥" } else { "≤" };
        [
            self.what.to_owned(),
            format!("{sign} {:.*}", self.decimals, self.bound),
            measured.iter().map(shown).collect::<Vec<_>>().join(", "),
            verdict.to_owned(),
        ]
    }
}

fn most(what: &'static str, bound: f64, decimals: usize, figures: Vec<String>) -> Budget {
    let figures = figures.into_iter().map(|name| (name, None)).collect();
    Budget { what, bound, is_least: false, decimals, figures }
}

fn least(what: &'static str, bound: f64, decimals: usize, figures: Vec<String>) -> Budget {
    Budget { is_least: true, ..most(what, bound, decimals, figures) }
}

/// Returns the ratios of admitted calls to tower_governor with 1, 10k and 1M tenants, and of a hot tenant on two threads.
fn admitted(kind: &str, workload: &str) -> Vec<String> {
    let counts = ["1", "10k", "1M"];
    let mut figures: Vec<_> =
        counts.map(|count| format!("layer/{workload}/{count}/Ample/{kind}/ratio")).into_iter().collect();
    figures.push(format!("threads/{workload}/1/Ample/{kind}/ratio"));
    figures
}

fn for_counts(figure: &str) -> Vec<String> {
    ["1", "10k", "1M"].map(|count| figure.replace("{}", count)).into()
}

fn all() -> Vec<Budget> {
    let [code, refresh] = ["code", "refresh"].map(|way| {
        let cost = |issuer: &str| format!("tokens/{way}/{issuer}/cost");
        vec![(cost("PeerSigned"), Some(cost("Ours")))]
    });
    let tokens = |what, figures| Budget { what, bound: 10.0, is_least: true, decimals: 1, figures };
    let one = |name: &str| vec![name.to_owned()];
    vec![
        most("admitted, default settings ÷ tower_governor", 0.95, 2, admitted("Tollgate", "empty")),
        most("… the request has an extension already", 0.95, 2, admitted("Tollgate", "empty-extension")),
        most("… the answer has two headers", 1.0, 2, admitted("Tollgate", "headers")),
        most("… both", 1.0, 2, admitted("Tollgate", "headers-extension")),
        most("admitted, without extensions ÷ tower_governor", 0.75, 2, admitted("TollgateNoExtensions", "empty")),
        most("… the answer has two headers", 0.85, 2, admitted("TollgateNoExtensions", "headers")),
        most(
            "without headers and extensions ÷ tower_governor without headers, 1, 10k, 1M tenants",
            1.0,
            2,
            for_counts("layer/empty/{}/Ample/TollgateBare/ratio"),
        ),
        most("refused ÷ own admitted, 1, 10k, 1M tenants", 1.2, 2, for_counts("layer/empty/{}/Spent/Tollgate/own")),
        most(
            "refused on two threads ÷ on one, 1 and 10k tenants (1.00, and 2 % for noise)",
            1.02,
            2,
            ["1", "10k"].map(|count| format!("threads/empty/{count}/Spent/Tollgate/scaling")).into(),
        ),
        most(
            "instructions over the inner service, without extensions",
            2_100.0,
            0,
            one("callgrind/Ample/TollgateNoExtensions"),
        ),
        least(
            "throughput of a server ÷ one that writes constant headers, admitting and refusing",
            0.97,
            3,
            ["Ample", "Spent"].map(|budget| format!("server/{budget}/Tollgate/ratio")).into(),
        ),
        most("bytes per quiet tenant, mean between two steps of growth", 170.0, 0, one("memory/Tollgate/mean")),
        most("… at the worst size", 230.0, 0, one("memory/Tollgate/worst")),
        most(
            "slowest call while 1M tenants arrive, and while they leave, ms",
            2.0,
            2,
            vec!["stalls/arrive/Tollgate".to_owned(), "stalls/leave/Tollgate".to_owned()],
        ),
        most(
            "session check ÷ tower-sessions, 1 and 10k sessions",
            0.5,
            2,
            ["1", "10k"].map(|count| format!("sessions/{count}/Tollgate/ratio")).into(),
        ),
        tokens("processor time of oidc-provider ÷ ours, a code", code),
        tokens("… a refresh", refresh),
        most("store calls of a login by code", 18.0, 0, one("steps/calls")),
        most("instructions of a login by code", 478_500.0, 0, one("steps/instructions")),
        most("MB resident after a burst of checks of passwords, 64 at once", 60.0, 0, one("passwords/64/resident")),
    ]
}

/// Returns the table of all budgets, in Markdown.
pub fn table(figures: &Figures) -> String {
    let mut table = Table::new(["budget", "", "measured", "verdict"]);
    for budget in all() {
        table.row(budget.row(figures));
    }
    table.text()
}
