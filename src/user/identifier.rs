use std::sync::Arc;

use super::contact::{IdentifierError, PhoneNumber};
use crate::util::scan::is_unseen;

/// A name typed by a user to sign in: a username, an e-mail address or a phone number.
///
/// It is normalized: trimmed, in lower case, and a phone number in international form becomes a [`PhoneNumber`]. All
/// spellings of one name are therefore equal, and limits count them together. It has 1 to 320 bytes and no invisible
/// characters, such as control characters, line breaks and zero-width spaces.
///
/// Look-alike letters remain different, and so do the two encodings of `é`, as one character and as two. Refuse such
/// names at sign-up if you don't want them.
///
/// `Debug` shows nothing, because the name identifies a person.
///
/// ```
/// use tollgate::Identifier;
///
/// assert_eq!(Identifier::parse(" Ada@Example.com ")?, Identifier::parse("ada@example.com")?);
/// assert_eq!(Identifier::parse("+1 (555) 555-0100")?.as_str(), "+15555550100");
/// assert!(Identifier::parse("\n").is_err());
/// # Ok::<(), tollgate::user::IdentifierError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identifier(Arc<str>);

impl Identifier {
    /// The maximum length in bytes.
    pub const MAX_LEN: usize = 320;

    /// Reads an identifier as typed.
    ///
    /// # Errors
    ///
    /// Returns an error if it is empty, too long, or contains an invisible character.
    pub fn parse(typed: impl AsRef<str>) -> Result<Self, IdentifierError> {
        let typed = typed.as_ref().trim();
        // lower case needs at least a third of the bytes
        if typed.len() > 3 * Self::MAX_LEN {
            return Err(IdentifierError("an identifier must have 1 to 320 bytes"));
        }
        if typed.chars().any(is_unseen) {
            return Err(IdentifierError("an identifier must not contain invisible characters"));
        }
        if let Ok(phone) = PhoneNumber::parse(typed) {
            return Ok(Self(phone.as_str().into()));
        }
        let name = typed.to_lowercase();
        if name.is_empty() || name.len() > Self::MAX_LEN {
            return Err(IdentifierError("an identifier must have 1 to 320 bytes"));
        }
        Ok(Self(name.into()))
    }

    /// Takes an identifier from a row, as it was written.
    pub(crate) fn restore(normalized: &str) -> Self {
        Self(normalized.into())
    }

    /// Returns the normalized identifier.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

crate::util::fmt::opaque_debug!(Identifier);

crate::util::fmt::from_str!(Identifier, IdentifierError);

crate::util::text::serde_text!(Identifier);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(typed: &str) -> Option<String> {
        Identifier::parse(typed).ok().map(|identifier| identifier.as_str().to_owned())
    }

    #[test]
    fn all_spellings_of_a_name_are_equal() {
        for (typed, name) in [
            ("ada", "ada"),
            ("  ADA\t", "ada"),
            ("\u{a0}Ada\u{3000}", "ada"),
            ("ÀÉÎ", "àéî"),
            ("ΣΑΣ", "σας"),
            ("İ", "i\u{307}"),
            ("Ada Lovelace", "ada lovelace"),
            ("Ada+Tag@Example.COM", "ada+tag@example.com"),
            ("+1 (555) 555-0100", "+15555550100"),
            ("555-0100", "555-0100"),
            ("日本", "日本"),
        ] {
            assert_eq!(parse(typed).as_deref(), Some(name), "{typed:?}");
        }
    }

    #[test]
    fn invisible_characters_are_refused() {
        for typed in [
            "",
            " ",
            "\n",
            "a\nb",
            "a\0",
            "a\u{7f}",
            "a\u{85}b",
            "a\u{200b}da",
            "\u{feff}ada",
            "a\u{202e}da",
            "a\u{ad}da",
            "a\u{2028}b",
            "ada\u{2060}",
            "a\u{e0041}",
            "a\u{fe0f}",
            "\u{3164}",
        ] {
            assert_eq!(parse(typed), None, "{typed:?}");
        }
    }

    #[test]
    fn the_normalized_length_is_bounded() {
        assert!(parse(&"x".repeat(320)).is_some());
        assert!(parse(&"x".repeat(321)).is_none());
        assert!(parse(&format!("{}x{}", " ".repeat(2000), " ".repeat(2000))).is_some());
        // three bytes as typed, one when normalized
        assert_eq!(parse(&"\u{212a}".repeat(320)), Some("k".repeat(320)));
        assert!(parse(&"\u{212a}".repeat(321)).is_none());
        // two bytes as typed, three when normalized
        assert!(parse(&"İ".repeat(106)).is_some() && parse(&"İ".repeat(107)).is_none());
    }

    #[test]
    fn normalizing_a_letter_twice_changes_nothing() {
        for letter in '\0'..=char::MAX {
            if let Some(name) = parse(&letter.to_string()) {
                assert_eq!(parse(&name).as_deref(), Some(&*name), "{letter:?}");
                assert!(3 * name.len() >= letter.len_utf8(), "{letter:?}");
            }
        }
    }

    #[test]
    fn debug_and_errors_show_nothing_of_the_name() {
        let ada = Identifier::parse("ada@example.com").unwrap();
        assert_eq!(format!("{ada:?}"), "Identifier(..)");
        assert_eq!(serde_json::from_str::<Identifier>(&serde_json::to_string(&ada).unwrap()).unwrap(), ada);
        let error = serde_json::from_str::<Identifier>("\"ada\\u0000\"").unwrap_err().to_string();
        assert!(!error.contains("ada"), "{error}");
    }

    proptest! {
        #[test]
        fn a_parsed_identifier_parses_to_itself(typed in prop_oneof![any::<String>(), "\\PC{0,400}", "[ +0-9.()-]{0,70}"]) {
            if let Some(name) = parse(&typed) {
                prop_assert!((1..=320).contains(&name.len()));
                prop_assert!(!name.chars().any(|c| c.is_control() || c.is_uppercase() && c.to_lowercase().next() != Some(c)));
                prop_assert_eq!(name.trim(), &name);
                prop_assert_eq!(parse(&name), Some(name.clone()));
                prop_assert_eq!(parse(&format!("\t{typed} ")), Some(name));
            }
        }
    }
}
