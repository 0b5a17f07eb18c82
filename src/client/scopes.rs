//! Sets of scope names.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A set of scope names (RFC 6749 §3.3). Order and repetition don't matter.
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
    /// Sorted, without duplicates, never empty.
    Box<[Box<str>]>,
);

impl Scopes {
    /// The maximum number of names.
    pub const MAX_NAMES: usize = 64;
    /// The maximum length of the text in bytes.
    pub const MAX_LEN: usize = 1024;

    /// Parses names that are separated by single spaces.
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
            return Err(ScopeError("the scope contains too many names"));
        }
        Ok(Self(names.into_iter().map(Box::from).collect()))
    }

    /// Returns each name once, in sorted order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// Returns whether the set contains this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.binary_search_by(|own| (**own).cmp(name)).is_ok()
    }

    /// Returns whether `other` contains all names of this set.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|name| other.contains(name))
    }
}

// the sorted names
crate::util::fmt::display!(Scopes, |own| &own.0.join(" "));

crate::util::fmt::from_str!(Scopes, ScopeError);

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

/// Why a text is not a valid scope. The error does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeError(&'static str);

impl ScopeError {
    /// Returns a message that can be shown to the caller.
    pub fn detail(&self) -> &'static str {
        self.0
    }
}

crate::util::fmt::text_error!(ScopeError, |own| own.0);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_and_repetition_do_not_matter() {
        let scopes = |text| Scopes::parse(text).unwrap();
        assert_eq!(scopes("a b c"), scopes("c a b a"));
        assert_ne!(scopes("a b"), scopes("a B"));
        assert!(scopes("b a").is_subset(&scopes("a b c")) && !scopes("a d").is_subset(&scopes("a b c")));
        assert_eq!(scopes("https://x.example/y!#[]~ z").iter().count(), 2);
    }

    #[test]
    fn invalid_scopes_are_rejected_and_not_echoed() {
        for bad in ["", " ", " a", "a ", "a  b", "a\tb", "a\nb", "a\"b", "a\\b", "é", "a\u{7f}", "a\0", "a\u{a0}b"] {
            assert!(Scopes::parse(bad).is_err(), "{bad:?}");
        }
        let error = Scopes::parse("sekret\\").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sekret"));
    }

    #[test]
    fn scopes_are_limited() {
        let names = |count: usize| (0..count).map(|n| format!("s{n}")).collect::<Vec<_>>().join(" ");
        assert!(Scopes::parse(&names(64)).is_ok());
        assert!(Scopes::parse(&names(65)).is_err());
        assert!(Scopes::parse(&"x".repeat(1024)).is_ok());
        assert!(Scopes::parse(&"x".repeat(1025)).is_err());
    }

    proptest! {
        #[test]
        fn exactly_the_grammar_of_the_rfc_is_accepted(text in "[a-c !\"\\\\#\\[\\]~\u{7f}é\t]{0,12}") {
            let token = |name: &str| {
                !name.is_empty() && name.chars().all(|c| ('\x21'..='\x7e').contains(&c) && c != '"' && c != '\\')
            };
            let expected = text.split(' ').all(token);
            prop_assert_eq!(Scopes::parse(&text).is_ok(), expected);
        }

        #[test]
        fn scopes_behave_like_a_set(one in prop::collection::vec("[a-e]{1,2}", 1..8), other in prop::collection::vec("[a-e]{1,2}", 1..8)) {
            let (a, b) = (Scopes::parse(&one.join(" ")).unwrap(), Scopes::parse(&other.join(" ")).unwrap());
            let (one, other): (BTreeSet<&str>, BTreeSet<&str>) =
                (one.iter().map(String::as_str).collect(), other.iter().map(String::as_str).collect());
            prop_assert!(a.iter().eq(one.iter().copied()));
            prop_assert_eq!(a == b, one == other);
            prop_assert_eq!(a.is_subset(&b), one.is_subset(&other));
            prop_assert_eq!(a.to_string().parse::<Scopes>().unwrap(), a.clone());
            let json = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(&json, &format!("\"{a}\""));
            prop_assert_eq!(serde_json::from_str::<Scopes>(&json).unwrap(), a);
        }

        #[test]
        fn nothing_panics(text: String) {
            let _ = Scopes::parse(&text);
        }
    }
}
