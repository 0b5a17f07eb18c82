use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{IdentifierError, PhoneNumber};

/// What a person typed to say who they are: a username, an e-mail address, a
/// phone number.
///
/// It exists only normalised: white space around it is gone, capital letters are
/// small, and a phone number in international form is written as
/// [`PhoneNumber`] writes it. So whatever counts tries by identifier counts all
/// writings of one together. It has 1 to 320 bytes then, and no character that
/// can't be seen: controls, line breaks, and the invisible ones that make two
/// names look like one.
///
/// Letters that look alike, and `é` as one character and as two, stay apart:
/// make names of them only where that is wanted.
///
/// Its `Debug` shows nothing, for it says who somebody is.
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
    /// The most bytes that an identifier may have.
    pub const MAX_LEN: usize = 320;

    /// Reads what was typed.
    pub fn parse(typed: impl AsRef<str>) -> Result<Self, IdentifierError> {
        let typed = typed.as_ref().trim();
        // no letter is shorter than a third of its capital
        if typed.len() > 3 * Self::MAX_LEN {
            return Err(IdentifierError("an identifier must have 1 to 320 bytes"));
        }
        if typed.chars().any(is_unseen) {
            return Err(IdentifierError("an identifier must not have characters that can't be seen"));
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

    /// The identifier, normalised.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Controls, separators of lines, and what only steers how others are shown.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identifier(..)")
    }
}

impl FromStr for Identifier {
    type Err = IdentifierError;

    fn from_str(typed: &str) -> Result<Self, IdentifierError> {
        Self::parse(typed)
    }
}

impl Serialize for Identifier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Identifier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
