//! The tables, the verdicts and the chart that a run writes into the documents.

use std::fs;

use tollgate_bench::{
    report::{Figures, budgets, chart, docs, summary},
    sections::ALL,
};

fn document(name: &str) -> String {
    fs::read_to_string(docs::path(name)).unwrap()
}

/// Returns figures in which all have the same value.
fn alike(value: f64) -> Figures {
    let mut figures = Figures::default();
    while let Err(missing) = summary::table(&figures).and_then(|_| chart::svg(&figures)) {
        figures.set(&missing, value);
    }
    figures
}

#[test]
fn the_documents_have_a_place_for_every_section() {
    let benchmarks = document("BENCHMARKS.md");
    for (name, _) in ALL {
        let written = docs::replaced(&benchmarks, name, "| a table |").expect(name);
        assert!(written.contains(&format!("<!-- {name} -->\n\n| a table |\n\n<!-- /{name} -->")), "{written}");
        let again = docs::replaced(&written, name, "| a table |");
        assert_eq!(again.as_deref(), Some(written.as_str()), "writing it again changes nothing");
    }
    assert!(docs::replaced(&document("docs/budgets.md"), "budgets", "").is_some());
    for name in ["summary", "machine"] {
        assert!(docs::replaced(&benchmarks, name, "").is_some(), "{name}");
    }
    assert!(docs::replaced(&document("README.md"), "benchmarks", "").is_some());
    assert!(docs::replaced(&benchmarks, "nothing", "").is_none());
}

#[test]
fn a_section_replaces_only_its_own_table() {
    let text = "before\n<!-- a -->\nold\n<!-- /a -->\nbetween\n<!-- b -->\nkept\n<!-- /b -->\n";
    let written = docs::replaced(text, "a", "new\n").unwrap();
    assert_eq!(written, "before\n<!-- a -->\n\nnew\n\n<!-- /a -->\nbetween\n<!-- b -->\nkept\n<!-- /b -->\n");
}

#[test]
fn a_budget_that_is_missed_or_not_measured_is_shown_as_such() {
    let name = |count: &str| format!("layer/empty/{count}/Spent/Tollgate/own");
    let verdict = |values: &[(&str, f64)]| {
        let mut figures = Figures::default();
        for (count, value) in values {
            figures.set(&name(count), *value);
        }
        let table = budgets::table(&figures);
        let line = table.lines().find(|line| line.contains("refused ÷ own admitted")).unwrap();
        line.split('|').skip(3).map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" | ")
    };
    assert_eq!(verdict(&[]), "–, –, – | not measured");
    assert_eq!(verdict(&[("1", 1.1), ("10k", 1.0), ("1M", 1.2)]), "1.10, 1.00, 1.20 | met");
    assert_eq!(verdict(&[("1", 1.1), ("10k", 1.204), ("1M", 1.2)]), "1.10, **1.20**, 1.20 | **missed**");
    assert_eq!(verdict(&[("1", 1.1)]), "1.10, –, – | met, as far as measured");
}

#[test]
fn the_summary_is_short_and_needs_all_figures() {
    assert!(summary::table(&Figures::default()).is_err());
    let table = summary::table(&alike(500.0)).unwrap();
    assert!((10..=12).contains(&table.lines().count()), "{table}");
    assert!(table.contains("500 ns"), "{table}");
}

#[test]
fn b34_the_readme_states_ratios_that_hold_in_every_run() {
    let table = summary::claims();
    assert!(document("README.md").contains(table.trim()), "the README should have this table:\n{table}");

    assert_eq!(summary::broken_claims(&Figures::default()), [""; 0], "nothing was measured");
    let mut figures = Figures::default();
    figures.set("sessions/10k/Tollgate/ratio", 0.52);
    assert_eq!(summary::broken_claims(&figures), [""; 0]);
    figures.set("sessions/10k/Tollgate/ratio", 0.71);
    let broken = "time of a session check: 0.71, and the README states 0.4 to 0.7 (a session check, 10,000 sessions)";
    assert_eq!(summary::broken_claims(&figures), [broken]);
}

#[test]
fn the_chart_shows_every_value_as_text_within_its_frame() {
    let mut figures = alike(600.0);
    figures.set("layer/empty/1M/Ample/AxumGcra/nanos", 1234.0);
    let svg = chart::svg(&figures).unwrap();
    assert_eq!(svg.matches(">600</text>").count(), 24, "one of 25 bars is higher: {svg}");
    assert!(svg.contains(">1234</text>"), "{svg}");
    let lowest = svg.match_indices(" y=\"").map(|(at, _)| svg[at + 4..].split('"').next().unwrap());
    assert!(lowest.map(|y| y.parse::<f64>().unwrap()).all(|y| (0.0..400.0).contains(&y)), "{svg}");
}
