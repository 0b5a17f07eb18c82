use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::IdentifierError;

/// An e-mail address, in small letters.
///
/// White space around it is gone. It is ASCII: an address with other letters in
/// front of the `@` reaches few people, and letters that only look like others
/// have led mail for one person to another. A domain with other letters is
/// written as `xn--…`. Quoted names, comments, addresses of machines and domains
/// without a dot are refused.
///
/// Capital and small letters are one also in front of the `@`, as every
/// provider that matters holds it.
///
/// ```
/// use tollgate::user::EmailAddress;
///
/// assert_eq!(EmailAddress::parse(" Ada@Example.COM")?.as_str(), "ada@example.com");
/// assert!(EmailAddress::parse("ada@@example.com").is_err());
/// # Ok::<(), tollgate::user::IdentifierError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EmailAddress(Arc<str>);

impl EmailAddress {
    /// The most bytes that an address may have.
    pub const MAX_LEN: usize = 254;
    /// The most bytes in front of the `@`.
    pub const MAX_LOCAL: usize = 64;

    /// Reads an address as a person writes it.
    pub fn parse(typed: impl AsRef<str>) -> Result<Self, IdentifierError> {
        let typed = typed.as_ref().trim();
        let parts = typed.split_once('@').filter(|_| typed.len() <= Self::MAX_LEN);
        let Some((local, domain)) = parts.filter(|(local, domain)| is_local(local) && is_domain(domain)) else {
            return Err(IdentifierError("an e-mail address must be of the form name@domain, in ASCII"));
        };
        let (local, domain) = (local.to_ascii_lowercase(), domain.to_ascii_lowercase());
        Ok(Self(format!("{local}@{domain}").into()))
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The `dot-atom` of RFC 5322.
fn is_local(local: &str) -> bool {
    let is_atom = |atom: &str| !atom.is_empty() && atom.bytes().all(is_atom_byte);
    local.len() <= EmailAddress::MAX_LOCAL && local.split('.').all(is_atom)
}

fn is_atom_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte)
}

fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        let within = (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
        within && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // four numbers are the address of a machine
    let top_is_name = |(_, top): (&str, &str)| top.bytes().any(|byte| byte.is_ascii_alphabetic());
    domain.split('.').all(is_label) && domain.rsplit_once('.').is_some_and(top_is_name)
}

impl fmt::Debug for EmailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmailAddress(..)")
    }
}

impl FromStr for EmailAddress {
    type Err = IdentifierError;

    fn from_str(typed: &str) -> Result<Self, IdentifierError> {
        Self::parse(typed)
    }
}

impl Serialize for EmailAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EmailAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
