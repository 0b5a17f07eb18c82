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
