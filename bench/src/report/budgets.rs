//! The budgets of the project, and whether a run met them.

use super::Figures;
use crate::stats::Table;

/// Bounds of one or several figures.
struct Budget {
    what: &'static str,
    is_least: bool,
    decimals: usize,
    figures: Vec<Bound>,
}

/// The bound of a figure, which may be divided by another one.
struct Bound {
    figure: String,
    divisor: Option<String>,
    bound: f64,
}

impl Bound {
    fn measured(&self, figures: &Figures) -> f64 {
        figures.get(&self.figure) / self.divisor.as_ref().map_or(1.0, |name| figures.get(name))
    }
}

impl Budget {
    fn is_met(&self, value: f64, bound: f64) -> bool {
        if self.is_least { value >= bound } else { value <= bound }
    }

    fn row(&self, figures: &Figures) -> [String; 4] {
        let measured: Vec<(f64, f64)> =
            self.figures.iter().map(|figure| (figure.measured(figures), figure.bound)).collect();
        let shown = |(value, bound): &(f64, f64)| match *value {
            value if value.is_nan() => "–".to_owned(),
            value if self.is_met(value, *bound) => format!("{value:.*}", self.decimals),
            value => format!("**{value:.*}**", self.decimals),
        };
        let (known, missing): (Vec<_>, Vec<_>) = measured.iter().partition(|(value, _)| !value.is_nan());
        let verdict = match (known.iter().all(|(value, bound)| self.is_met(*value, *bound)), missing.is_empty()) {
            _ if known.is_empty() => "not measured",
            (false, _) => "**missed**",
            (true, false) => "met, as far as measured",
            (true, true) => "met",
        };
        let mut bounds: Vec<String> = measured.iter().map(|(_, bound)| format!("{bound:.*}", self.decimals)).collect();
        if bounds.windows(2).all(|pair| pair[0] == pair[1]) {
            bounds.truncate(1);
        }
        let sign = if self.is_least { "≥" } else { "≤" };
        [
            self.what.to_owned(),
            format!("{sign} {}", bounds.join(", ")),
            measured.iter().map(shown).collect::<Vec<_>>().join(", "),
            verdict.to_owned(),
        ]
    }
}

fn most<const N: usize>(what: &'static str, decimals: usize, figures: [(String, f64); N]) -> Budget {
    let figures = figures.map(|(figure, bound)| Bound { figure, divisor: None, bound }).into();
    Budget { what, is_least: false, decimals, figures }
}

/// Returns bounds of a figure with 1, 10k and 1M tenants, whose name has `{}` in the place of the number.
fn for_counts(figure: &str, bounds: [f64; 3]) -> [(String, f64); 3] {
    let [one, many, most] = ["1", "10k", "1M"].map(|count| figure.replace("{}", count));
    let [first, second, third] = bounds;
    [(one, first), (many, second), (most, third)]
}

fn all() -> Vec<Budget> {
    let one = |name: &str, bound| [(name.to_owned(), bound)];
    let ways = ["code", "refresh", "refresh-lean"].map(|way| {
        let cost = |issuer: &str| format!("tokens/{way}/{issuer}/cost");
        Bound { figure: cost("Ours"), divisor: Some(cost("Signatures")), bound: 1.3 }
    });
    vec![
        most(
            "admitted, default settings ÷ tower_governor with headers, 1, 10k, 1M tenants",
            2,
            for_counts("layer/empty/{}/Ample/Tollgate/ratio", [1.0, 1.0, 0.9]),
        ),
        most(
            "… without headers and extensions ÷ tower_governor without headers",
            2,
            for_counts("layer/empty/{}/Ample/TollgateBare/ratio", [1.2, 1.2, 1.0]),
        ),
        most(
            "… without headers, with an extension ÷ tower_governor without headers",
            2,
            for_counts("layer/empty/{}/Ample/TollgateNoHeaders/ratio", [1.2, 1.2, 1.0]),
        ),
        most("… one hot tenant on all cores ÷ tower_governor", 2, one("threads/empty/1/Ample/Tollgate/ratio", 1.0)),
        most(
            "refused ÷ own admitted, 1, 10k, 1M tenants",
            2,
            for_counts("layer/empty/{}/Spent/Tollgate/own", [1.2, 1.2, 1.2]),
        ),
        Budget {
            what: "… one hot tenant on all cores",
            is_least: false,
            decimals: 2,
            figures: vec![Bound {
                figure: "threads/empty/1/Spent/Tollgate/all".to_owned(),
                divisor: Some("threads/empty/1/Ample/Tollgate/all".to_owned()),
                bound: 1.2,
            }],
        },
        most("bytes per quiet tenant, mean between two steps of growth", 0, one("memory/Tollgate/mean", 175.0)),
        most(
            "slowest call while 1M tenants arrive, and while they leave, ms",
            2,
            ["arrive", "leave"].map(|way| (format!("stalls/{way}/Tollgate"), 2.0)),
        ),
        most(
            "session check ÷ tower-sessions, 1 and 10k sessions",
            2,
            ["1", "10k"].map(|count| (format!("sessions/{count}/Tollgate/ratio"), 0.5)),
        ),
        Budget {
            what: "token endpoint ÷ its signatures and a bare server, a code, a refresh, a refresh without id_token",
            is_least: false,
            decimals: 2,
            figures: ways.into(),
        },
        most("calls to Redis per admission", 2, one("redis/calls", 1.0)),
        Budget {
            is_least: true,
            ..most("checks a second on Redis with three quotas ÷ a bare script, 64 callers", 2, one("redis/three", 0.6))
        },
        most("store calls of a login by code", 0, one("steps/calls", 18.0)),
        most("MB resident after a burst of checks of passwords, 64 at once", 0, one("passwords/64/resident", 60.0)),
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
