use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::IdentifierError;

/// A phone number as E.164 writes it: `+`, the country, and the rest, 8 to 15
/// digits.
///
/// Spaces, hyphens, dots and parentheses are left out. Nothing is guessed: a
/// number without `+` is refused, for its country is not known, and so is one
/// with `(0)`, which is dialled in some places only. Digits are `0` to `9`; the
/// letters on a keypad are none.
///
/// ```
/// use tollgate::user::PhoneNumber;
///
/// assert_eq!(PhoneNumber::parse("+44 20 7946-0958")?.as_str(), "+442079460958");
/// assert!(PhoneNumber::parse("020 7946 0958").is_err());
/// # Ok::<(), tollgate::user::IdentifierError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PhoneNumber(Arc<str>);

impl PhoneNumber {
    /// The most bytes that a number may be written with.
    pub const MAX_TYPED: usize = 64;

    /// Reads a number as a person writes it.
    pub fn parse(typed: impl AsRef<str>) -> Result<Self, IdentifierError> {
        const NOT: IdentifierError =
            IdentifierError("a phone number must have a + and then 8 to 15 digits, of which the first is not 0");
        let typed = typed.as_ref().trim();
        if typed.len() > Self::MAX_TYPED {
            return Err(NOT);
        }
        let number: String = typed.chars().filter(|character| !" -.()".contains(*character)).collect();
        let digits = number.strip_prefix('+').ok_or(NOT)?;
        let in_bounds = (8..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !in_bounds || digits.starts_with('0') || typed.contains("(0)") {
            return Err(NOT);
        }
        Ok(Self(number.into()))
    }

    /// The number: `+` and its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PhoneNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PhoneNumber(..)")
    }
}

impl FromStr for PhoneNumber {
    type Err = IdentifierError;

    fn from_str(typed: &str) -> Result<Self, IdentifierError> {
        Self::parse(typed)
    }
}

impl Serialize for PhoneNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PhoneNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(typed: &str) -> Option<String> {
        PhoneNumber::parse(typed).ok().map(|number| number.as_str().to_owned())
    }

    #[test]
    fn all_writings_of_a_number_are_one() {
        for typed in
            ["+15555550100", " +1 (555) 555-0100 ", "+1.555.555.0100", "(+1) 555-555-0100", "+ 1 555 555 01 00"]
        {
            assert_eq!(parse(typed).as_deref(), Some("+15555550100"), "{typed:?}");
        }
        assert!(parse("+12345678").is_some() && parse("+123456789012345").is_some());
    }

    #[test]
    fn nothing_is_guessed() {
        for typed in [
            "",
            "+",
            "15555550100",
            "5555550100",
            "0015555550100",
            "+05555550100",
            "+1234567",
            "+1234567890123456",
            "++15555550100",
            "+1555+5550100",
            "15555550100+",
            "+1555FLOWERS",
            "+1415555267a",
            "+44 (0)20 7946 0958",
            "+1 555 555 0100 x12",
            "+1555555010\u{0660}",
            "+１５５５５５５０１００",
            "＋15555550100",
            "+1555\n5550100",
            "+1/555/555/0100",
            "+1_5555550100",
            "+1,5555550100",
            "+1 555\u{a0}555 0100",
            "tel:+15555550100",
            &format!("+1555{}5550100", "-".repeat(64)),
        ] {
            assert_eq!(parse(typed), None, "{typed:?}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", PhoneNumber::parse("+15555550100")), "Ok(PhoneNumber(..))");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_as_it_stands(typed in prop_oneof![any::<String>(), "[ +0-9.()a-]{0,24}", "\\+[1-9][0-9 -]{7,18}"]) {
            if let Some(number) = parse(&typed) {
                let digits = number.strip_prefix('+').unwrap();
                prop_assert!((8..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()));
                let typed_digits: String = typed.chars().filter(char::is_ascii_digit).collect();
                prop_assert_eq!(digits, typed_digits);
                prop_assert_eq!(parse(&number), Some(number.clone()));
                let json = serde_json::to_string(&PhoneNumber::parse(&number).unwrap()).unwrap();
                let read: PhoneNumber = serde_json::from_str(&json).unwrap();
                prop_assert_eq!(read.as_str(), number);
            }
        }
    }
}
