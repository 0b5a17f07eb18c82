//! The summary of a run, and the ratios that the README states.

use super::Figures;
use crate::stats::Table;

struct Row {
    what: &'static str,
    rival: &'static str,
    unit: Unit,
    ours: String,
    theirs: String,
    /// The median of per-round ratios, if there is one.
    ratio: Option<String>,
}

#[derive(Clone, Copy)]
enum Unit {
    Nanos,
    Millis,
    Micros,
    Rate,
    Bytes,
}

impl Unit {
    fn shown(self, value: f64) -> String {
        match self {
            Self::Nanos if value < 1e3 => format!("{value:.0} ns"),
            Self::Nanos => format!("{:.1} µs", value / 1e3),
            Self::Micros => format!("{value:.0} µs"),
            Self::Millis => format!("{value:.1} ms"),
            Self::Rate => format!("{:.0},000 / s", value / 1e3),
            Self::Bytes => format!("{value:.0} bytes"),
        }
    }
}

impl Row {
    fn ratio(&self, figures: &Figures) -> f64 {
        match &self.ratio {
            Some(name) => figures.get(name),
            None => figures.get(&self.ours) / figures.get(&self.theirs),
        }
    }
}

fn rows() -> Vec<Row> {
    let layer = |what, budget: &str, count: &str| {
        let at = |kind: &str, figure: &str| format!("layer/empty/{count}/{budget}/{kind}/{figure}");
        Row {
            what,
            rival: "tower_governor",
            unit: Unit::Nanos,
            ours: at("Tollgate", "nanos"),
            theirs: at("TowerGovernor", "nanos"),
            ratio: Some(at("Tollgate", "ratio")),
        }
    };
    let threads = |kind: &str, figure: &str| format!("threads/empty/1/Ample/{kind}/{figure}");
    let row = |what, rival, unit, [ours, theirs]: [&str; 2]| Row {
        what,
        rival,
        unit,
        ours: ours.to_owned(),
        theirs: theirs.to_owned(),
        ratio: None,
    };
    let governor = "tower_governor";
    let provider = "oidc-provider (node)";
    vec![
        layer("an admitted call, 1 tenant", "Ample", "1"),
        layer("… 10,000 tenants", "Ample", "10k"),
        layer("… 1,000,000 tenants", "Ample", "1M"),
        Row {
            ours: threads("Tollgate", "all"),
            theirs: threads("TowerGovernor", "all"),
            ratio: Some(threads("Tollgate", "ratio")),
            ..layer("… one tenant on all cores", "Ample", "1")
        },
        layer("a refused call, 10,000 tenants", "Spent", "10k"),
        row(
            "requests that a server refuses (more is better)",
            governor,
            Unit::Rate,
            ["server/Spent/Tollgate/rate", "server/Spent/TowerGovernor/rate"],
        ),
        row("memory per tenant", governor, Unit::Bytes, ["memory/Tollgate/mean", "memory/TowerGovernor/mean"]),
        row(
            "the slowest call while 1,000,000 tenants arrive",
            governor,
            Unit::Millis,
            ["stalls/arrive/Tollgate", "stalls/arrive/TowerGovernor"],
        ),
        Row {
            ratio: Some("sessions/10k/Tollgate/ratio".to_owned()),
            ..row(
                "a session check, 10,000 sessions",
                "tower-sessions",
                Unit::Nanos,
                ["sessions/10k/Tollgate/nanos", "sessions/10k/TowerSessions/nanos"],
            )
        },
        row(
            "processor time of a token refresh",
            provider,
            Unit::Micros,
            ["tokens/refresh/Ours/cost", "tokens/refresh/PeerSigned/cost"],
        ),
    ]
}

/// Returns the table of this run in Markdown.
///
/// # Errors
///
/// Returns the name of a figure that was not measured.
pub fn table(figures: &Figures) -> Result<String, String> {
    let known = |name: String| match figures.get(&name) {
        value if value.is_nan() => Err(name),
        value => Ok(value),
    };
    let mut table = Table::new(["", "tollgate", "compared with", "", "tollgate ÷"]);
    for Row { what, rival, unit, ours, theirs, ratio } in rows() {
        let (ours, theirs) = (known(ours)?, known(theirs)?);
        let ratio = ratio.map_or(Ok(ours / theirs), known)?;
        let decimals = if ratio >= 0.1 { 2 } else { 3 };
        table.row([
            what.to_owned(),
            unit.shown(ours),
            rival.to_owned(),
            unit.shown(theirs),
            format!("{ratio:.decimals$}"),
        ]);
    }
    Ok(table.text())
}

/// A ratio that the README states because it held in every run.
struct Claim {
    what: &'static str,
    rival: &'static str,
    /// The names of rows, and the range in which all of their ratios stay.
    rows: &'static [&'static str],
    from: f64,
    to: f64,
    text: &'static str,
}

const CLAIMS: &[Claim] = &[
    Claim {
        what: "time of an admitted call, from 1 to 1,000,000 tenants, on one core or all",
        rival: "tower_governor",
        rows: &["an admitted call, 1 tenant", "… 10,000 tenants", "… 1,000,000 tenants", "… one tenant on all cores"],
        from: 0.7,
        to: 1.2,
        text: "0.7 to 1.2",
    },
    Claim {
        what: "time of a refused call",
        rival: "tower_governor",
        rows: &["a refused call, 10,000 tenants"],
        from: 0.0,
        to: 0.1,
        text: "less than 0.1",
    },
    Claim {
        what: "requests that a server refuses each second (more is better)",
        rival: "tower_governor",
        rows: &["requests that a server refuses (more is better)"],
        from: 2.0,
        to: f64::INFINITY,
        text: "more than 2",
    },
    Claim {
        what: "memory of a tenant",
        rival: "tower_governor",
        rows: &["memory per tenant"],
        from: 1.5,
        to: 2.5,
        text: "about 2",
    },
    Claim {
        what: "the slowest call while 1,000,000 tenants arrive",
        rival: "tower_governor",
        rows: &["the slowest call while 1,000,000 tenants arrive"],
        from: 0.0,
        to: 0.5,
        text: "less than a half",
    },
    Claim {
        what: "time of a session check",
        rival: "tower-sessions",
        rows: &["a session check, 10,000 sessions"],
        from: 0.4,
        to: 0.7,
        text: "0.4 to 0.7",
    },
    Claim {
        what: "processor time of a token refresh",
        rival: "oidc-provider (node)",
        rows: &["processor time of a token refresh"],
        from: 0.0,
        to: 0.3,
        text: "less than 0.3",
    },
];

/// Returns the table of the README. It has the same text for each run.
pub fn claims() -> String {
    let mut table = Table::new(["", "compared with", "tollgate ÷"]);
    for claim in CLAIMS {
        table.row([claim.what.to_owned(), claim.rival.to_owned(), claim.text.to_owned()]);
    }
    table.text()
}

/// Returns what the README states and this run did not show.
pub fn broken_claims(figures: &Figures) -> Vec<String> {
    let rows = rows();
    let mut broken = Vec::new();
    for claim in CLAIMS {
        for name in claim.rows {
            let ratio = rows.iter().find(|row| row.what == *name).map_or(f64::NAN, |row| row.ratio(figures));
            if ratio < claim.from || ratio > claim.to {
                broken.push(format!("{}: {ratio:.2}, and the README states {} ({name})", claim.what, claim.text));
            }
        }
    }
    broken
}
