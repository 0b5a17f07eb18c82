//! A chart of the cost of a call, as SVG.

use std::fmt::Write;

use super::Figures;

/// The limiters of the chart: tag, name and class.
const SERIES: [(&str, &str, &str); 5] = [
    ("Tollgate", "tollgate (4 headers)", "a"),
    ("TollgateNoExtensions", "tollgate, without extensions (4 headers)", "b"),
    ("TowerGovernor", "tower_governor (2 headers)", "c"),
    ("AxumGcra", "axum_gcra (no headers)", "d"),
    ("Governor", "governor by hand (no headers)", "e"),
];

/// The groups of bars: name, and the figure of a series.
const GROUPS: [(&str, &str); 5] = [
    ("1 tenant", "layer/empty/1/Ample/{}/nanos"),
    ("10,000 tenants", "layer/empty/10k/Ample/{}/nanos"),
    ("1,000,000 tenants", "layer/empty/1M/Ample/{}/nanos"),
    ("1 thread", "threads/empty/1/Ample/{}/one"),
    ("a thread per core", "threads/empty/1/Ample/{}/all"),
];
/// The first group of the second panel.
const SECOND: usize = 3;

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = 350.0;
const BAR: f64 = 24.0;
const GROUP: f64 = 148.0;
/// The space between the panels.
const GAP: f64 = 56.0;

/// Both backgrounds are part of the image, so that the text is readable wherever it is shown.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-size:14px;font-weight:600}.dim{fill:#59636e}\
.value{font-size:10px;text-anchor:middle}.end{text-anchor:end}.middle{text-anchor:middle}\
.back{fill:#ffffff;stroke:#d1d9e0}.grid{stroke:#d1d9e0}\
.a{fill:#1f6feb}.b{fill:#79aef5}.c{fill:#d9822b}.d{fill:#8a63b8}.e{fill:#3d9a8b}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#9198a1}.back{fill:#0d1117;stroke:#3d444d}.grid{stroke:#2f353d}}";

/// Draws the chart.
///
/// # Errors
///
/// Returns the name of a figure that was not measured.
pub fn svg(figures: &Figures) -> Result<String, String> {
    let mut values = Vec::new();
    for (_, figure) in GROUPS {
        for (tag, ..) in SERIES {
            let name = figure.replace("{}", tag);
            match figures.get(&name) {
                value if value.is_nan() => return Err(name),
                value => values.push(value),
            }
        }
    }
    let step = step(values.iter().copied().fold(0.0, f64::max));
    let top = step * (values.iter().copied().fold(0.0, f64::max) / step).ceil();
    let height = |value: f64| (BOTTOM - TOP) * value / top;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\"><title>Nanoseconds of an admitted call</title>\n<style>{STYLE}</style>\n\
         <rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n",
        WIDTH - 1.0,
        HEIGHT - 1.0
    );
    text(&mut svg, 16.0, 28.0, "title", "Nanoseconds of an admitted call, with everything around it (less is better)");
    legend(&mut svg);
    let mut line = 0.0;
    while line <= top {
        let y = BOTTOM - height(line);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - 16.0);
        text(&mut svg, LEFT - 8.0, y + 4.0, "dim end", &format!("{line:.0}"));
        line += step;
    }
    for (place, ((name, _), values)) in GROUPS.iter().zip(values.chunks(SERIES.len())).enumerate() {
        let left = LEFT + 12.0 + GROUP * place as f64 + if place < SECOND { 0.0 } else { GAP };
        for (number, (value, (_, series, class))) in values.iter().zip(SERIES).enumerate() {
            let (x, y) = (left + (BAR + 2.0) * number as f64, BOTTOM - height(*value));
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BAR}\" height=\"{:.1}\"><title>{series}, {name}: \
                 {value:.0} ns</title></rect>",
                height(*value)
            );
            text(&mut svg, x + BAR / 2.0, y - 4.0, "value", &format!("{value:.0}"));
        }
        let middle = left + (BAR + 2.0) * SERIES.len() as f64 / 2.0;
        text(&mut svg, middle, BOTTOM + 18.0, "middle", name);
    }
    text(&mut svg, LEFT + 12.0, BOTTOM + 38.0, "dim", "one thread, tenants chosen at random");
    text(
        &mut svg,
        LEFT + 12.0 + GROUP * SECOND as f64 + GAP,
        BOTTOM + 38.0,
        "dim",
        "one hot tenant, processor time of each thread",
    );
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Returns the distance of grid lines for values up to this one: 1, 2 or 5 times a power of ten.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 6.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| most / step <= 6.0).unwrap_or(most)
}

fn legend(svg: &mut String) {
    for (number, (_, name, class)) in SERIES.iter().enumerate() {
        let (x, y) = (16.0 + 290.0 * (number % 3) as f64, 50.0 + 20.0 * (number / 3) as f64);
        let _ =
            writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\"/>", y - 10.0);
        text(svg, x + 18.0, y, "", name);
    }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}
