//! Medians, and tables in Markdown.

use std::fmt::Display;

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

/// Returns the quantile of the values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the median of the ratios of all rounds.
pub fn by_round(left: &[f64], right: &[f64], ratio: impl Fn(f64, f64) -> f64) -> f64 {
    let ratios: Vec<f64> = left.iter().zip(right).map(|(left, right)| ratio(*left, *right)).collect();
    median(&ratios)
}

pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<T: Display>(head: impl IntoIterator<Item = T>) -> Self {
        let mut table = Self { rows: Vec::new() };
        table.row(head);
        table
    }

    pub fn row<T: Display>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    pub fn print(&self) {
        println!("{}", self.text());
    }

    /// Returns the table in Markdown.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = widths
                .iter()
                .enumerate()
                .map(|(column, &width)| {
                    let cell = row.get(column).map_or("", String::as_str);
                    if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                })
                .collect();
            text.push_str(&format!("| {} |\n", cells.join(" | ")));
            if number == 0 {
                let rule: Vec<String> = widths
                    .iter()
                    .enumerate()
                    .map(|(column, &width)| match column {
                        0 => "-".repeat(width + 2),
                        _ => format!("{}:", "-".repeat(width + 1)),
                    })
                    .collect();
                text.push_str(&format!("|{}|\n", rule.join("|")));
            }
        }
        text
    }
}

/// Formats nanoseconds without insignificant digits.
pub fn nanos(value: f64) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.0}") }
}

pub fn ratio(value: f64) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.2}") }
}

/// Formats a number of tenants in short form.
pub fn tenants(count: u64) -> String {
    match count {
        1_000_000.. => format!("{}M", count / 1_000_000),
        1_000.. => format!("{}k", count / 1_000),
        _ => count.to_string(),
    }
}
