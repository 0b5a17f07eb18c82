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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(typed: &str) -> Option<String> {
        EmailAddress::parse(typed).ok().map(|address| address.as_str().to_owned())
    }

    #[test]
    fn all_writings_of_an_address_are_one() {
        for (typed, address) in [
            ("ada@example.com", "ada@example.com"),
            (" Ada@EXAMPLE.com\n", "ada@example.com"),
            ("a.d-a+tag_1'x@sub.example.co.uk", "a.d-a+tag_1'x@sub.example.co.uk"),
            ("!#$%&'*+-/=?^_`{|}~@x.yz", "!#$%&'*+-/=?^_`{|}~@x.yz"),
            ("ada@XN--BCHER-KVA.example", "ada@xn--bcher-kva.example"),
            ("1@2.c3", "1@2.c3"),
        ] {
            assert_eq!(parse(typed).as_deref(), Some(address), "{typed:?}");
        }
    }

    #[test]
    fn what_is_no_plain_address_is_refused() {
        for typed in [
            "",
            "@",
            "ada",
            "ada@",
            "@example.com",
            "ada@@example.com",
            "ada@example.com@evil.example",
            "a b@example.com",
            "ada@exam ple.com",
            "ada@example.com\r\nBcc: eve@evil.example",
            "ada\0@example.com",
            "\"ada\"@example.com",
            "\"a@b\"@example.com",
            "ada(x)@example.com",
            "<ada@example.com>",
            "Ada <ada@example.com>",
            ".ada@example.com",
            "ada.@example.com",
            "a..da@example.com",
            "ada@localhost",
            "ada@[192.0.2.1]",
            "ada@192.0.2.1",
            "ada@example.com.",
            "ada@.example.com",
            "ada@example..com",
            "ada@-example.com",
            "ada@example-.com",
            "ada@exa_mple.com",
            "ada@example.123",
            "ada@example.com,eve@evil.example",
            "ada;eve@example.com",
            "ada@example.com:25",
            "mailto:ada@example.com",
            "ådå@example.com",
            "ada@exåmple.com",
            "ada@example.\u{212a}r",
            "\u{17f}ada@example.com",
            "ada＠example.com",
            "a\u{200b}da@example.com",
            "ada%40example.com",
        ] {
            assert_eq!(parse(typed), None, "{typed:?}");
        }
    }

    #[test]
    fn it_is_bounded() {
        let (local, label) = ("l".repeat(64), "d".repeat(63));
        assert!(parse(&format!("{local}@example.com")).is_some());
        assert!(parse(&format!("l{local}@example.com")).is_none());
        assert!(parse(&format!("ada@{label}.com")).is_some());
        assert!(parse(&format!("ada@d{label}.com")).is_none());
        let longest = format!("{local}@{label}.{label}.{}.com", "d".repeat(57));
        assert_eq!(longest.len(), 254);
        assert!(parse(&longest).is_some());
        assert!(parse(&longest.replace(".com", "d.com")).is_none());
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", EmailAddress::parse("ada@example.com")), "Ok(EmailAddress(..))");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_as_it_stands(
            typed in prop_oneof![any::<String>(), "[A-Za-z.@+\" -]{0,20}", "[A-Za-z.]{1,70}@[A-Za-z0-9.-]{1,70}\\.[a-z]{2}"],
        ) {
            if let Some(address) = parse(&typed) {
                prop_assert!(address.is_ascii() && address.len() <= 254 && address.matches('@').count() == 1);
                prop_assert!(address.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase()));
                prop_assert!(!address.contains(['"', ',', ';', ':', '<', '>', '(', ')', '[', ']', '\\']));
                prop_assert_eq!(parse(&address), Some(address.clone()));
                prop_assert_eq!(parse(&format!(" {} ", typed.to_ascii_uppercase())), Some(address.clone()));
                let json = serde_json::to_string(&EmailAddress::parse(&address).unwrap()).unwrap();
                let read: EmailAddress = serde_json::from_str(&json).unwrap();
                prop_assert_eq!(read.as_str(), address);
            }
        }
    }
}
