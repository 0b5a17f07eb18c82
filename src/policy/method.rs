//! [`Method`]: how a step can be proved, and [`FactorClass`]: what it proves.

use std::{fmt, ops::BitOr};

use serde::{Deserialize, Serialize};

use super::MethodSet;

/// How one step of a login is proved.
///
/// ```
/// use tollgate::{Method, policy::FactorClass};
///
/// assert_eq!(Method::from_name("sms"), Some(Method::Sms));
/// assert_eq!(Method::Sms.class(), Method::Whatsapp.class());
/// assert_eq!(Method::Sms.class(), FactorClass::Phone);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Method {
    /// A password.
    Password,
    /// A one-time code by SMS.
    Sms,
    /// A one-time code by e-mail.
    Email,
    /// A one-time code by WhatsApp.
    Whatsapp,
    /// A login with another provider.
    Sso,
    /// A passkey.
    Passkey,
}

/// What a method proves. The steps of a login prove different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FactorClass {
    /// Something that the user knows: a password.
    Knowledge,
    /// A telephone number, by SMS or WhatsApp.
    Phone,
    /// A mailbox.
    Mailbox,
    /// A key that the user's device holds: a passkey.
    Key,
    /// An account with another provider.
    Federated,
}

impl Method {
    /// All methods, in their order.
    pub const ALL: &'static [Self] =
        &[Self::Password, Self::Sms, Self::Email, Self::Whatsapp, Self::Sso, Self::Passkey];

    /// The name on the wire, such as `password`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Sms => "sms",
            Self::Email => "email",
            Self::Whatsapp => "whatsapp",
            Self::Sso => "sso",
            Self::Passkey => "passkey",
        }
    }

    /// The method with this name, written exactly so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.as_str() == name)
    }

    /// What it proves.
    pub const fn class(self) -> FactorClass {
        match self {
            Self::Password => FactorClass::Knowledge,
            Self::Sms | Self::Whatsapp => FactorClass::Phone,
            Self::Email => FactorClass::Mailbox,
            Self::Passkey => FactorClass::Key,
            Self::Sso => FactorClass::Federated,
        }
    }

    /// Its names in the claim `amr` (RFC 8176).
    ///
    /// A passkey is `pop`, proof of possession of a key: whether that key is in
    /// hardware (`hwk`) or software (`swk`) is not known of one that is synced
    /// between devices. `sms` is said of SMS only, and `sso` is not in the RFC,
    /// which has no name for it.
    pub const fn amr(self) -> &'static [&'static str] {
        match self {
            Self::Password => &["pwd"],
            Self::Sms => &["otp", "sms"],
            Self::Email | Self::Whatsapp => &["otp"],
            Self::Sso => &["sso"],
            Self::Passkey => &["pop"],
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One of the two: `Method::Sms | Method::Email`.
impl BitOr for Method {
    type Output = MethodSet;

    fn bitor(self, other: Self) -> MethodSet {
        MethodSet::from([self, other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_one_name_and_only_that() {
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
    fn only_the_two_ways_to_a_phone_prove_the_same() {
        for (a, b) in Method::ALL.iter().copied().flat_map(|a| Method::ALL.iter().map(move |b| (a, *b))) {
            let phones = [a, b].iter().all(|method| matches!(method, Method::Sms | Method::Whatsapp));
            assert_eq!(a.class() == b.class(), a == b || phones, "{a} {b}");
        }
    }
}
