//! The colors of the pages.

use std::fmt::{self, Write};

use crate::util::{builder::setters, error::ConfigError};

/// The least contrast of text (WCAG 2.2, 1.4.3), and of the borders of fields (1.4.11).
const OF_TEXT: f64 = 4.5;
const OF_BORDERS: f64 = 3.0;

/// The colors of the pages, in hexadecimal: `#1f5fbf` or `#15b`. Colors that are not set keep their built-in values.
///
/// ```
/// use tollgate::auth::{Colors, Pages};
///
/// let pages = Pages::new().colors(Colors::new().accent("#0b6b43")).dark_colors(Colors::new().accent("#7ddcae"));
/// ```
///
/// Text must be readable on what is behind it: [`text`](Self::text) on [`card`](Self::card) and
/// [`background`](Self::background), and [`accent`](Self::accent) on the card.
/// [`build`](crate::auth::AuthServiceBuilder::build) refuses a contrast below 4.5:1. The text on buttons is black or
/// white, whichever is easier to read.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Colors {
    accent: Option<String>,
    background: Option<String>,
    card: Option<String>,
    text: Option<String>,
}

impl Colors {
    /// Keeps all built-in colors.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the color of buttons and links.
        pub fn accent(color: impl Into<String>) { accent: Some(color.into()) }

        /// Sets the color behind the card.
        pub fn background(color: impl Into<String>) { background: Some(color.into()) }

        /// Sets the color of the card, which holds the forms.
        pub fn card(color: impl Into<String>) { card: Some(color.into()) }

        /// Sets the color of text.
        pub fn text(color: impl Into<String>) { text: Some(color.into()) }
    }

    fn is_built_in(&self) -> bool {
        [&self.accent, &self.background, &self.card, &self.text].iter().all(|color| color.is_none())
    }
}

/// Returns the rules that replace the colors of the style sheet.
pub(crate) fn rules(light: &Colors, dark: &Colors) -> Result<String, ConfigError> {
    let mut rules = String::new();
    for (colors, scheme, built_in) in [(light, "light", LIGHT), (dark, "dark", DARK)] {
        if !colors.is_built_in() {
            let palette = Palette::from_colors(colors, &built_in)?;
            // writing to a string never fails
            let _ = writeln!(rules, "@media (prefers-color-scheme: {scheme}) {{ :root {{ {palette} }} }}");
        }
    }
    Ok(rules)
}

/// The colors of one scheme that can be set.
struct Palette {
    accent: Rgb,
    background: Rgb,
    card: Rgb,
    text: Rgb,
}

/// The colors in `page.css`.
const LIGHT: Palette = Palette {
    accent: Rgb([0x1f, 0x5f, 0xbf]),
    background: Rgb([0xf3, 0xf4, 0xf6]),
    card: WHITE,
    text: Rgb([0x1b, 0x1f, 0x24]),
};
const DARK: Palette = Palette {
    accent: Rgb([0x8a, 0xb4, 0xf8]),
    background: Rgb([0x12, 0x14, 0x17]),
    card: Rgb([0x1c, 0x1f, 0x24]),
    text: Rgb([0xe8, 0xea, 0xed]),
};
const WHITE: Rgb = Rgb([0xff; 3]);
const BLACK: Rgb = Rgb([0; 3]);

impl Palette {
    fn from_colors(colors: &Colors, built_in: &Self) -> Result<Self, ConfigError> {
        let set = |color: &Option<String>, built_in| match color {
            Some(text) => {
                Rgb::parse(text).ok_or_else(|| ConfigError::new("color", text, "must be like #1f5fbf or #15b"))
            }
            None => Ok(built_in),
        };
        let palette = Self {
            accent: set(&colors.accent, built_in.accent)?,
            background: set(&colors.background, built_in.background)?,
            card: set(&colors.card, built_in.card)?,
            text: set(&colors.text, built_in.text)?,
        };
        for (setting, color, behind) in [
            ("text color on the card", palette.text, palette.card),
            ("text color on the background", palette.text, palette.background),
            ("accent color on the card", palette.accent, palette.card),
        ] {
            if color.contrast(behind) < OF_TEXT {
                return Err(ConfigError::new(
                    setting,
                    format!("{color} on {behind}"),
                    "needs a contrast of at least 4.5:1",
                ));
            }
        }
        Ok(palette)
    }
}

/// Writes the variables of the style sheet.
impl fmt::Display for Palette {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accent, background, card, text } = *self;
        let on_accent = if WHITE.contrast(accent) >= OF_TEXT { WHITE } else { BLACK };
        // softer than text, as far as it stays readable
        let soft = text.mix(card, 0.7);
        let soft = if soft.contrast(card).min(soft.contrast(background)) < OF_TEXT { text } else { soft };
        let line = text.mix(card, 0.5);
        let line = if line.contrast(card) < OF_BORDERS { text } else { line };
        write!(f, "--accent: {accent}; --on-accent: {on_accent}; --ground: {background}; --card: {card}; ")?;
        write!(f, "--ink: {text}; --soft: {soft}; --line: {line};")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rgb([u8; 3]);

impl Rgb {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#').filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        let number = u32::from_str_radix(digits, 16).ok()?;
        let [_, red, green, blue] = number.to_be_bytes();
        match digits.len() {
            6 => Some(Self([red, green, blue])),
            // each digit counts twice
            3 => Some(Self([green & 15, blue >> 4, blue & 15].map(|digit| digit * 17))),
            _ => None,
        }
    }

    fn mix(self, other: Self, share: f64) -> Self {
        let (Self([a, b, c]), Self([x, y, z])) = (self, other);
        let mixed = |one: u8, other: u8| (f64::from(one) * share + f64::from(other) * (1.0 - share)).round() as u8;
        Self([mixed(a, x), mixed(b, y), mixed(c, z)])
    }

    /// Returns the contrast ratio of two colors (WCAG 2.2).
    fn contrast(self, other: Self) -> f64 {
        let (one, other) = (self.luminance(), other.luminance());
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    fn luminance(self) -> f64 {
        let Self(channels) = self;
        let [red, green, blue] = channels.map(|channel| {
            let share = f64::from(channel) / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

impl fmt::Display for Rgb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([red, green, blue]) = self;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn colors_are_parsed_and_nothing_else() {
        assert_eq!(Rgb::parse("#1f5fbf"), Some(Rgb([0x1f, 0x5f, 0xbf])));
        assert_eq!(Rgb::parse("#1Fb"), Some(Rgb([0x11, 0xff, 0xbb])));
        for bad in ["", "#", "1f5fbf", "#1f5fb", "#1f5fbff", "#+f5fbf", "red", "#1f5fbf;", "#ggg", "#é12", "#12"] {
            assert!(Rgb::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_contrast_is_that_of_the_wcag() {
        assert!((WHITE.contrast(BLACK) - 21.0).abs() < 1e-9);
        // https://webaim.org/resources/contrastchecker/ says 4.54 and 4.48
        assert!((Rgb([0x76; 3]).contrast(WHITE) - 4.54).abs() < 0.01);
        assert!((WHITE.contrast(Rgb([0x77; 3])) - 4.48).abs() < 0.01);
    }

    #[test]
    fn the_built_in_colors_are_those_of_the_style_sheet_and_readable() {
        let (light, dark) = include_str!("page.css").split_once("@media").unwrap();
        for (style, palette) in [(light, LIGHT), (dark, DARK)] {
            for (name, color) in [("accent", palette.accent), ("ground", palette.background), ("ink", palette.text)] {
                assert!(style.contains(&format!("--{name}: {color};")), "{name} {color}");
            }
            assert!(Palette::from_colors(&Colors::new(), &palette).is_ok());
        }
        assert!(light.contains("--card: #fff;") && dark.contains("--card: #1c1f24;"));
        assert_eq!(rules(&Colors::new(), &Colors::new()).unwrap(), "");
    }

    #[test]
    fn set_colors_replace_those_of_their_scheme() {
        let light = Colors::new().accent("#0b6b43");
        let rules_of = rules(&light, &Colors::new()).unwrap();
        assert!(
            rules_of
                .starts_with("@media (prefers-color-scheme: light) { :root { --accent: #0b6b43; --on-accent: #ffffff;")
        );
        assert!(!rules_of.contains("dark"));
        let dark = rules(&Colors::new(), &Colors::new().accent("#7ddcae").background("#000")).unwrap();
        assert!(dark.contains("scheme: dark") && dark.contains("--on-accent: #000000; --ground: #000000;"), "{dark}");
    }

    #[test]
    fn colors_that_cannot_be_read_are_refused() {
        let is_refused = |colors| rules(&colors, &Colors::new()).is_err();
        assert!(is_refused(Colors::new().accent("#ffd400")));
        assert!(is_refused(Colors::new().text("#999")));
        assert!(is_refused(Colors::new().background("#333")));
        assert!(is_refused(Colors::new().card("#1b1f24")));
        assert!(is_refused(Colors::new().accent("red; } body { display: none")));
        assert!(!is_refused(Colors::new().card("#1b1f24").background("#000").text("#eee").accent("#ffd400")));
    }

    proptest! {
        #[test]
        fn derived_colors_can_be_read(text in any::<[u8; 3]>(), card in any::<[u8; 3]>(), accent in any::<[u8; 3]>()) {
            let (card, text) = (Rgb(card), Rgb(text));
            let readable = if WHITE.contrast(card) >= OF_TEXT { WHITE } else { BLACK };
            let text = if text.contrast(card) >= OF_TEXT { text } else { readable };
            let palette = Palette { accent: Rgb(accent), background: card, card, text };
            let written = palette.to_string();
            let of = |name: &str| {
                let rest = written.split(&format!("--{name}: ")).nth(1).unwrap();
                Rgb::parse(rest.split(';').next().unwrap()).unwrap()
            };
            prop_assert!(of("soft").contrast(palette.card) >= OF_TEXT);
            prop_assert!(of("line").contrast(palette.card) >= OF_BORDERS);
            prop_assert!(of("on-accent").contrast(palette.accent) >= OF_TEXT);
        }
    }
}
