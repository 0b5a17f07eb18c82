use crate::policy::FactorClass;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An address at which a user can be reached. `Debug` shows only its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Contact {
    /// An e-mail address.
    Email(EmailAddress),
    /// A phone number, for SMS and WhatsApp.
    Phone(PhoneNumber),
}

impl Contact {
    /// Returns the address or the number.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Email(address) => address.as_str(),
            Self::Phone(number) => number.as_str(),
        }
    }

    /// Returns the class of the factors that a code to this contact proves.
    pub(crate) fn class(&self) -> FactorClass {
        match self {
            Self::Email(_) => FactorClass::Mailbox,
            Self::Phone(_) => FactorClass::Phone,
        }
    }
}

impl From<EmailAddress> for Contact {
    fn from(address: EmailAddress) -> Self {
        Self::Email(address)
    }
}

impl From<PhoneNumber> for Contact {
    fn from(number: PhoneNumber) -> Self {
        Self::Phone(number)
    }
}

/// An e-mail address, trimmed and in lower case.
///
/// The local part is lower case too, because all major providers ignore its case. The address must be ASCII: few mail
/// servers accept other letters before the `@`, and look-alike letters have misdirected mail. Write an
/// internationalized domain as `xn--…`. Quoted local parts, comments, IP addresses and domains without a dot are
/// refused.
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
    /// Takes one from a row, as it was written.
    pub(super) fn restore(text: &str) -> Self {
        Self(text.into())
    }

    /// The maximum length in bytes.
    pub const MAX_LEN: usize = 254;
    /// The maximum length of the part before the `@`, in bytes.
    pub const MAX_LOCAL: usize = 64;

    /// Reads an address as typed by a person.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not a plain ASCII address.
    pub fn parse(typed: impl AsRef<str>) -> Result<Self, IdentifierError> {
        let typed = typed.as_ref().trim();
        let parts = typed.split_once('@').filter(|_| typed.len() <= Self::MAX_LEN);
        let Some((local, domain)) = parts.filter(|(local, domain)| is_local(local) && is_domain(domain)) else {
            return Err(IdentifierError("an e-mail address must be of the form name@domain, in ASCII"));
        };
        let (local, domain) = (local.to_ascii_lowercase(), domain.to_ascii_lowercase());
        Ok(Self(format!("{local}@{domain}").into()))
    }

    /// Returns the address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks for the `dot-atom` of RFC 5322.
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
    // a top label of digits belongs to an IP address
    let top_is_name = |(_, top): (&str, &str)| top.bytes().any(|byte| byte.is_ascii_alphabetic());
    domain.split('.').all(is_label) && domain.rsplit_once('.').is_some_and(top_is_name)
}

crate::util::fmt::opaque_debug!(EmailAddress);

crate::util::fmt::from_str!(EmailAddress, IdentifierError);

crate::util::text::serde_text!(EmailAddress);

/// A phone number in E.164 form: `+` and 8 to 15 digits, the country code first.
///
/// Spaces, hyphens, dots and parentheses are removed. Nothing is guessed: a number without `+` is refused because its
/// country is unknown, and one with `(0)` because only some callers dial that digit. Only the digits `0` to `9` count.
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
    /// Takes one from a row, as it was written.
    pub(super) fn restore(text: &str) -> Self {
        Self(text.into())
    }

    /// The maximum length of the typed text, in bytes.
    pub const MAX_TYPED: usize = 64;

    /// Reads a number as typed by a person.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not a number in international form.
    pub fn parse(typed: impl AsRef<str>) -> Result<Self, IdentifierError> {
        const NOT: IdentifierError =
            IdentifierError("a phone number must be a + and 8 to 15 digits, the first of them not 0");
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

    /// Returns the number: `+` and its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

crate::util::fmt::opaque_debug!(PhoneNumber);

crate::util::fmt::from_str!(PhoneNumber, IdentifierError);

crate::util::text::serde_text!(PhoneNumber);

/// Why a text is not a valid identifier, e-mail address or phone number. The error contains no part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifierError(pub(super) &'static str);

crate::util::fmt::text_error!(IdentifierError, |own| own.0);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn email(typed: &str) -> Option<String> {
        EmailAddress::parse(typed).ok().map(|address| address.as_str().to_owned())
    }

    #[test]
    fn all_spellings_of_an_address_are_equal() {
        for (typed, address) in [
            ("ada@example.com", "ada@example.com"),
            (" Ada@EXAMPLE.com\n", "ada@example.com"),
            ("a.d-a+tag_1'x@sub.example.co.uk", "a.d-a+tag_1'x@sub.example.co.uk"),
            ("!#$%&'*+-/=?^_`{|}~@x.yz", "!#$%&'*+-/=?^_`{|}~@x.yz"),
            ("ada@XN--BCHER-KVA.example", "ada@xn--bcher-kva.example"),
            ("1@2.c3", "1@2.c3"),
        ] {
            assert_eq!(email(typed).as_deref(), Some(address), "{typed:?}");
        }
    }

    #[test]
    fn anything_but_a_plain_address_is_refused() {
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
            assert_eq!(email(typed), None, "{typed:?}");
        }
    }

    #[test]
    fn the_length_of_an_address_is_bounded() {
        let (local, label) = ("l".repeat(64), "d".repeat(63));
        assert!(email(&format!("{local}@example.com")).is_some());
        assert!(email(&format!("l{local}@example.com")).is_none());
        assert!(email(&format!("ada@{label}.com")).is_some());
        assert!(email(&format!("ada@d{label}.com")).is_none());
        let longest = format!("{local}@{label}.{label}.{}.com", "d".repeat(57));
        assert_eq!(longest.len(), 254);
        assert!(email(&longest).is_some());
        assert!(email(&longest.replace(".com", "d.com")).is_none());
    }

    proptest! {
        #[test]
        fn a_parsed_address_parses_to_itself(
            typed in prop_oneof![any::<String>(), "[A-Za-z.@+\" -]{0,20}", "[A-Za-z.]{1,70}@[A-Za-z0-9.-]{1,70}\\.[a-z]{2}"],
        ) {
            if let Some(address) = email(&typed) {
                prop_assert!(address.is_ascii() && address.len() <= 254 && address.matches('@').count() == 1);
                prop_assert!(address.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase()));
                prop_assert!(!address.contains(['"', ',', ';', ':', '<', '>', '(', ')', '[', ']', '\\']));
                prop_assert_eq!(email(&address), Some(address.clone()));
                prop_assert_eq!(email(&format!(" {} ", typed.to_ascii_uppercase())), Some(address.clone()));
                let json = serde_json::to_string(&EmailAddress::parse(&address).unwrap()).unwrap();
                let read: EmailAddress = serde_json::from_str(&json).unwrap();
                prop_assert_eq!(read.as_str(), address);
            }
        }
    }

    fn phone(typed: &str) -> Option<String> {
        PhoneNumber::parse(typed).ok().map(|number| number.as_str().to_owned())
    }

    #[test]
    fn all_spellings_of_a_number_are_equal() {
        for typed in
            ["+15555550100", " +1 (555) 555-0100 ", "+1.555.555.0100", "(+1) 555-555-0100", "+ 1 555 555 01 00"]
        {
            assert_eq!(phone(typed).as_deref(), Some("+15555550100"), "{typed:?}");
        }
        assert!(phone("+12345678").is_some() && phone("+123456789012345").is_some());
    }

    #[test]
    fn an_incomplete_number_is_refused() {
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
            assert_eq!(phone(typed), None, "{typed:?}");
        }
    }

    proptest! {
        #[test]
        fn a_parsed_number_parses_to_itself(typed in prop_oneof![any::<String>(), "[ +0-9.()a-]{0,24}", "\\+[1-9][0-9 -]{7,18}"]) {
            if let Some(number) = phone(&typed) {
                let digits = number.strip_prefix('+').unwrap();
                prop_assert!((8..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()));
                let typed_digits: String = typed.chars().filter(char::is_ascii_digit).collect();
                prop_assert_eq!(digits, typed_digits);
                prop_assert_eq!(phone(&number), Some(number.clone()));
                let json = serde_json::to_string(&PhoneNumber::parse(&number).unwrap()).unwrap();
                let read: PhoneNumber = serde_json::from_str(&json).unwrap();
                prop_assert_eq!(read.as_str(), number);
            }
        }
    }

    #[test]
    fn debug_shows_nothing_of_a_contact() {
        let contacts = (EmailAddress::parse("ada@example.com"), PhoneNumber::parse("+15555550100"));
        assert_eq!(format!("{contacts:?}"), "(Ok(EmailAddress(..)), Ok(PhoneNumber(..)))");
    }
}
