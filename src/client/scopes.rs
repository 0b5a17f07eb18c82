//! [`Scopes`]: what a client asks for.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Names of scopes (RFC 6749 §3.3). Neither order nor repetition matters.
///
/// ```
/// use tollgate::client::Scopes;
///
/// let scopes = Scopes::parse("openid email openid")?;
/// assert_eq!(scopes, Scopes::parse("email openid")?);
/// assert_eq!(scopes.to_string(), "email openid");
/// assert!(scopes.is_subset(&Scopes::parse("openid profile email")?));
/// # Ok::<(), tollgate::client::ScopeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scopes(
    /// In order, each once, never none.
    Box<[Box<str>]>,
);

impl Scopes {
    /// The most names that are read.
    pub const MAX_NAMES: usize = 64;
    /// The most bytes that are read.
    pub const MAX_LEN: usize = 1024;

    /// Reads names with one space between each two.
    pub fn parse(text: &str) -> Result<Self, ScopeError> {
        if text.is_empty() {
            return Err(ScopeError("the scope is empty"));
        }
        if text.len() > Self::MAX_LEN {
            return Err(ScopeError("the scope is too long"));
        }
        let allowed = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        let mut names: Vec<&str> = text.split(' ').collect();
        if !names.iter().all(|name| !name.is_empty() && name.bytes().all(allowed)) {
            return Err(ScopeError("the scope is malformed"));
        }
        names.sort_unstable();
        names.dedup();
        if names.len() > Self::MAX_NAMES {
            return Err(ScopeError("the scope has too many names"));
        }
        Ok(Self(names.into_iter().map(Box::from).collect()))
    }

    /// Each name once, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// Whether this name is among them.
    pub fn contains(&self, name: &str) -> bool {
        self.0.binary_search_by(|own| (**own).cmp(name)).is_ok()
    }

    /// Whether all of these are in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|name| other.contains(name))
    }
}

/// The names with a space between each two, in order.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().enumerate().try_for_each(|(place, name)| match place {
            0 => f.write_str(name),
            _ => write!(f, " {name}"),
        })
    }
}

impl std::str::FromStr for Scopes {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        Self::parse(text)
    }
}

/// As the text.
impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Why a text is no scope. Nothing of it is in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeError(&'static str);

impl ScopeError {
    /// The reason in words, fit for the caller.
    pub fn detail(&self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ScopeError {}
