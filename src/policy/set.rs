//! [`MethodSet`]: some of the methods, in a word.

use std::{fmt, ops::BitOr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{FactorClass, Method};

/// Some of the [`Method`]s.
///
/// ```
/// use tollgate::{Method, policy::MethodSet};
///
/// let set = Method::Email | Method::Password;
/// assert_eq!(set.to_string(), "password, email");
/// assert_eq!(set, [Method::Password, Method::Email].into());
/// assert!(set.contains(Method::Email) && !set.contains(Method::Sms));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MethodSet(u8);

impl MethodSet {
    /// No method.
    pub const EMPTY: Self = Self(0);
    /// Every method.
    pub const ALL: Self = Self((1 << Method::ALL.len()) - 1);

    /// No method, as a start.
    pub const fn new() -> Self {
        Self::EMPTY
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, method: Method) -> Self {
        Self(self.0 | 1 << method as u8)
    }

    /// These without that one.
    #[must_use]
    pub const fn without(self, method: Method) -> Self {
        Self(self.0 & !(1 << method as u8))
    }

    /// Those in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether this one is among them.
    pub const fn contains(self, method: Method) -> bool {
        self.0 & 1 << method as u8 != 0
    }

    /// Whether all of these are in the other.
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// How many they are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the `amr` values of RFC 8176, with `mfa` for more than one method.
    pub(crate) fn amr(self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        let several = (self.len() > 1).then_some("mfa");
        for name in self.iter().flat_map(|method| method.amr().iter().copied()).chain(several) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Each of them, in the order of [`Method::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Method> {
        Method::ALL.iter().copied().filter(move |method| self.contains(*method))
    }

    /// Whether each proves something else than the others do.
    pub(super) fn is_distinct(self) -> bool {
        let classes = self.iter().fold(0_u8, |classes, method| {
            classes
                | match method.class() {
                    FactorClass::Knowledge => 1,
                    FactorClass::Phone => 2,
                    FactorClass::Mailbox => 4,
                    FactorClass::Key => 8,
                    FactorClass::Federated => 16,
                }
        });
        classes.count_ones() == self.0.count_ones()
    }

    /// Every set of these whose methods prove different things: at most 48.
    pub(super) fn distinct_subsets(self) -> impl Iterator<Item = Self> {
        (0..=Self::ALL.0).map(Self).filter(move |set| set.is_subset(self) && set.is_distinct())
    }
}

impl From<Method> for MethodSet {
    fn from(method: Method) -> Self {
        Self::EMPTY.with(method)
    }
}

impl<const N: usize> From<[Method; N]> for MethodSet {
    fn from(methods: [Method; N]) -> Self {
        methods.into_iter().collect()
    }
}

impl From<&[Method]> for MethodSet {
    fn from(methods: &[Method]) -> Self {
        methods.iter().copied().collect()
    }
}

impl FromIterator<Method> for MethodSet {
    fn from_iter<I: IntoIterator<Item = Method>>(methods: I) -> Self {
        methods.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// These and one more: `Method::Sms | Method::Email | Method::Passkey`.
impl BitOr<Method> for MethodSet {
    type Output = Self;

    fn bitor(self, method: Method) -> Self {
        self.with(method)
    }
}

impl fmt::Display for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().enumerate().try_for_each(|(place, method)| match place {
            0 => write!(f, "{method}"),
            _ => write!(f, ", {method}"),
        })
    }
}

impl fmt::Debug for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// As a list of names.
impl Serialize for MethodSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Method::as_str))
    }
}

impl<'de> Deserialize<'de> for MethodSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().try_fold(Self::EMPTY, |set, name| match Method::from_name(name) {
            Some(method) if set.contains(method) => Err(D::Error::custom("a method stands there twice")),
            Some(method) => Ok(set.with(method)),
            None => Err(D::Error::custom("there is no such method")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn there_are_48_sets_of_methods_that_prove_different_things() {
        assert_eq!(MethodSet::ALL.distinct_subsets().count(), 48);
        assert_eq!(MethodSet::ALL.iter().collect::<Vec<_>>(), Method::ALL);
    }

    #[test]
    fn a_name_unknown_or_twice_is_refused() {
        let read = |text| serde_json::from_str::<MethodSet>(text);
        assert_eq!(read(r#"["email","password"]"#).unwrap(), Method::Password | Method::Email);
        assert_eq!(read("[]").unwrap(), MethodSet::EMPTY);
        for bad in [r#"["sms","sms"]"#, r#"["Sms"]"#, r#"[""]"#, "[1]", "{}", "3", r#""sms""#, "null"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    fn any_set() -> impl Strategy<Value = MethodSet> {
        (0..=MethodSet::ALL.0).prop_map(MethodSet)
    }

    proptest! {
        #[test]
        fn a_set_is_a_set(a in any_set(), b in any_set()) {
            let of = |set: MethodSet| set.iter().collect::<BTreeSet<_>>();
            let (one, other) = (of(a), of(b));
            prop_assert_eq!(of(a.union(b)), &one | &other);
            prop_assert_eq!(of(a.intersection(b)), &one & &other);
            prop_assert_eq!(a.is_subset(b), one.is_subset(&other));
            prop_assert_eq!((a.len(), a.is_empty()), (one.len(), one.is_empty()));
            let distinct = one.iter().map(|method| method.class()).collect::<BTreeSet<_>>().len() == one.len();
            prop_assert_eq!(a.is_distinct(), distinct);
            for method in Method::ALL.iter().copied() {
                prop_assert_eq!(a.contains(method), one.contains(&method));
                prop_assert!(a.with(method).contains(method) && !a.without(method).contains(method));
            }
            prop_assert_eq!(a.iter().collect::<MethodSet>(), a);
            let text = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(serde_json::from_str::<MethodSet>(&text).unwrap(), a);
        }
    }
}
