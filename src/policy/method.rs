//! Login methods, what they prove, and sets of them.

use std::{fmt, ops::BitOr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    session::Proof,
    util::{error::ConfigError, fmt::named_enum},
};

named_enum! {
    /// A method for a login step.
    ///
    /// ```
    /// use tollgate::policy::{FactorClass, Method};
    ///
    /// assert_eq!(Method::from_name("sms"), Some(Method::Sms));
    /// assert_eq!(Method::Sms.class(), Method::Whatsapp.class());
    /// assert_eq!(Method::Sms.class(), FactorClass::Phone);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Method {
        /// A password.
        Password = "password",
        /// A one-time code by SMS.
        Sms = "sms",
        /// A one-time code by e-mail.
        Email = "email",
        /// A one-time code by WhatsApp.
        Whatsapp = "whatsapp",
        /// A login at another identity provider.
        Sso = "sso",
        /// A passkey.
        Passkey = "passkey",
        /// A one-time code from an authenticator app (TOTP). Only after another step.
        Totp = "totp",
        /// A recovery code. Only after another step.
        RecoveryCode = "recovery_code",
    }

    /// Returns the name that is used on the wire, such as `password`.
    pub fn as_str;
    /// All methods in their canonical order.
    pub const ALL;
}

/// The kind of evidence that a method provides. The steps of a login must use different classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FactorClass {
    /// Something the user knows: a password.
    Knowledge,
    /// Access to a phone number, by SMS or WhatsApp.
    Phone,
    /// Access to a mailbox.
    Mailbox,
    /// Possession of a key on a device: a passkey.
    Key,
    /// An account at another identity provider.
    Federated,
    /// Possession of a secret that this service issued: an authenticator app or a recovery code.
    Authenticator,
}

impl Method {
    /// Returns the method with this name. Names are case-sensitive.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.as_str() == name)
    }

    /// Returns the factor class that the method proves.
    pub const fn class(self) -> FactorClass {
        match self {
            Self::Password => FactorClass::Knowledge,
            Self::Sms | Self::Whatsapp => FactorClass::Phone,
            Self::Email => FactorClass::Mailbox,
            Self::Passkey => FactorClass::Key,
            Self::Sso => FactorClass::Federated,
            Self::Totp | Self::RecoveryCode => FactorClass::Authenticator,
        }
    }

    /// Returns whether the method can be the first step of a login. Codes from authenticator apps and recovery codes
    /// can't: they belong to a user who is already known.
    pub const fn can_be_first(self) -> bool {
        !matches!(self.class(), FactorClass::Authenticator)
    }

    /// Returns the values for the `amr` claim (RFC 8176).
    ///
    /// A passkey is `pop` (proof of possession): for synced passkeys it is unknown whether the key is in hardware
    /// (`hwk`) or software (`swk`). `sms` is used for SMS only. RFC 8176 has no value for federated logins, so `sso` is
    /// specific to this crate.
    pub const fn amr(self) -> &'static [&'static str] {
        match self {
            Self::Password => &["pwd"],
            Self::Sms => &["otp", "sms"],
            Self::Email | Self::Whatsapp | Self::Totp | Self::RecoveryCode => &["otp"],
            Self::Sso => &["sso"],
            Self::Passkey => &["pop"],
        }
    }
}

crate::util::fmt::display!(Method, |own| own.as_str());

impl FromStr for Method {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        Self::from_name(name).ok_or_else(|| ConfigError::new("method", name, "is not the name of a method"))
    }
}

/// Builds a set: `Method::Sms | Method::Email`.
impl BitOr for Method {
    type Output = MethodSet;

    fn bitor(self, other: Self) -> MethodSet {
        MethodSet::from([self, other])
    }
}

/// A set of [`Method`]s.
///
/// ```
/// use tollgate::policy::{Method, MethodSet};
///
/// let set = Method::Email | Method::Password;
/// assert_eq!(set.to_string(), "password, email");
/// assert_eq!(set, [Method::Password, Method::Email].into());
/// assert!(set.contains(Method::Email) && !set.contains(Method::Sms));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MethodSet(u16);

impl MethodSet {
    /// Returns the set as bits, which are part of the format of rows.
    pub(super) fn to_bits(self) -> u16 {
        self.0
    }

    /// Returns `None` if a bit belongs to no method.
    pub(super) fn from_bits(bits: u16) -> Option<Self> {
        let all: Self = Method::ALL.iter().copied().collect();
        (bits & !all.0 == 0).then_some(Self(bits))
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

    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// The set of all methods.
    pub const ALL: Self = Self((1 << Method::ALL.len()) - 1);
    /// The methods that prove an enrolled second factor: a passkey, an authenticator app, or a recovery code in place of either.
    pub(crate) const ENROLLED: Self = Self::EMPTY.with(Method::Passkey).with(Method::Totp).with(Method::RecoveryCode);

    /// Creates an empty set.
    pub const fn new() -> Self {
        Self::EMPTY
    }

    /// Returns the set with one more method.
    #[must_use]
    pub const fn with(self, method: Method) -> Self {
        Self(self.0 | 1 << method as u8)
    }

    /// Returns the set without a method.
    #[must_use]
    pub const fn without(self, method: Method) -> Self {
        Self(self.0 & !(1 << method as u8))
    }

    /// Returns the union of two sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the intersection of two sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the set contains this method.
    pub const fn contains(self, method: Method) -> bool {
        self.0 & 1 << method as u8 != 0
    }

    /// Returns whether `other` contains all methods of this set.
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Returns the number of methods.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the methods that can be the first step of a login.
    pub(crate) fn that_can_be_first(self) -> Self {
        self.iter().filter(|method| method.can_be_first()).collect()
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the methods in the order of [`Method::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Method> {
        Method::ALL.iter().copied().filter(move |method| self.contains(*method))
    }

    /// Returns whether all methods are of different factor classes.
    pub(super) fn is_distinct(self) -> bool {
        self.classes() == self.len()
    }

    /// Returns the number of factor classes of the methods.
    pub(crate) fn classes(self) -> usize {
        self.iter().fold(0_u8, |classes, method| classes | 1 << method.class() as u8).count_ones() as usize
    }

    /// Returns the sets that contain no other of them, sorted.
    pub(crate) fn smallest(sets: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut all: Vec<Self> = sets.into_iter().collect();
        all.sort_unstable_by_key(|set| set.len());
        let mut smallest: Vec<Self> = Vec::new();
        for set in all {
            if smallest.iter().all(|known| !known.is_subset(set)) {
                smallest.push(set);
            }
        }
        smallest.sort_unstable();
        smallest
    }

    /// Returns all subsets whose methods are of different factor classes: at most 144.
    pub(super) fn distinct_subsets(self) -> impl Iterator<Item = Self> {
        (0..=Self::ALL.0).map(Self).filter(move |set| set.is_subset(self) && set.is_distinct())
    }
}

impl MethodSet {
    /// Returns the methods of these proofs.
    pub(crate) fn of_proofs(proofs: &[Proof]) -> Self {
        proofs.iter().filter_map(|proof| Method::from_name(&proof.method)).collect()
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

/// Adds a method: `Method::Sms | Method::Email | Method::Passkey`.
impl BitOr<Method> for MethodSet {
    type Output = Self;

    fn bitor(self, method: Method) -> Self {
        self.with(method)
    }
}

crate::util::fmt::display!(MethodSet, |own| &own.iter().map(Method::as_str).collect::<Vec<_>>().join(", "));

impl fmt::Debug for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Serialized as a list of names.
impl Serialize for MethodSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Method::as_str))
    }
}

impl<'de> Deserialize<'de> for MethodSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().try_fold(Self::EMPTY, |set, name| match Method::from_name(name) {
            Some(method) if set.contains(method) => Err(D::Error::custom("duplicate method")),
            Some(method) => Ok(set.with(method)),
            None => Err(D::Error::custom("unknown method")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_exactly_one_name() {
        for method in Method::ALL.iter().copied() {
            assert_eq!(Method::from_name(method.as_str()), Some(method));
            assert_eq!(method.to_string(), method.as_str());
        }
        for other in ["", "Password", "pwd", "sms ", "otp", "password,sms"] {
            assert_eq!(Method::from_name(other), None, "{other:?}");
        }
        assert!(Method::ALL.is_sorted());
    }

    #[test]
    fn only_methods_of_phones_and_of_authenticators_share_a_factor_class() {
        for (a, b) in Method::ALL.iter().copied().flat_map(|a| Method::ALL.iter().map(move |b| (a, *b))) {
            let phones = [a, b].iter().all(|method| matches!(method, Method::Sms | Method::Whatsapp));
            let apps = [a, b].iter().all(|method| matches!(method, Method::Totp | Method::RecoveryCode));
            assert_eq!(a.class() == b.class(), a == b || phones || apps, "{a} {b}");
        }
    }

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    #[test]
    fn the_amr_of_a_set_names_each_value_once_and_tells_if_there_were_several_methods() {
        for (set, amr) in [
            (MethodSet::EMPTY, &[][..]),
            (Method::Password.into(), &["pwd"]),
            (Method::Passkey.into(), &["pop"]),
            (Method::Password | Method::Sms, &["pwd", "otp", "sms", "mfa"]),
            (Method::Email | Method::Totp, &["otp", "mfa"]),
            (Method::Sso | Method::RecoveryCode, &["sso", "otp", "mfa"]),
        ] {
            assert_eq!(set.amr(), amr, "{set}");
        }
    }

    #[test]
    fn there_are_144_sets_of_distinct_factor_classes() {
        assert_eq!(MethodSet::ALL.distinct_subsets().count(), 144);
        assert_eq!(MethodSet::ALL.iter().collect::<Vec<_>>(), Method::ALL);
    }

    #[test]
    fn unknown_and_duplicate_names_are_rejected() {
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
        fn a_method_set_behaves_like_a_set(a in any_set(), b in any_set()) {
            let of = |set: MethodSet| set.iter().collect::<BTreeSet<_>>();
            let (one, other) = (of(a), of(b));
            prop_assert_eq!(of(a.union(b)), &one | &other);
            prop_assert_eq!(of(a.intersection(b)), &one & &other);
            prop_assert_eq!(a.is_subset(b), one.is_subset(&other));
            prop_assert_eq!((a.len(), a.is_empty()), (one.len(), one.is_empty()));
            let classes = one.iter().map(|method| method.class()).collect::<BTreeSet<_>>().len();
            prop_assert_eq!((a.classes(), a.is_distinct()), (classes, classes == one.len()));
            prop_assert_eq!(format!("{a:?}"), format!("{one:?}"));
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
