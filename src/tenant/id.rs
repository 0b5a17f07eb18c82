use std::{
    cmp::Ordering,
    fmt::{self, Write},
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv6Addr},
    ops::Deref,
};

use super::{error::TenantError, inline::InlineBytes};
use crate::util::{encoding::base64url_of_32, secret::SecretDigest};

/// A customer, identified by a short printable name.
///
/// Never an address and never the anonymous tenant: those are only [`LimitKey`]s. A tenant is proved by a credential,
/// or named by your application.
///
/// Names have 1 to 128 visible ASCII characters without `"`, `\`, `,`, `<` and `>`, so that
/// they are safe in headers, log lines and JSON. Names that begin with `ip:` or `~` are reserved for keys of this crate.
///
/// With the feature `axum`, it is an extractor. It returns the tenant that your application has put into the request,
/// or else the one that an access token, a session or an API key has proved. A name that a caller only claims, for
/// example in a header, is never returned.
///
/// A tenant can be used wherever a [`LimitKey`] is expected.
///
/// ```
/// use tollgate::Tenant;
///
/// assert_eq!(Tenant::parse("acme")?.as_str(), "acme");
/// assert!(Tenant::parse("").is_err());
/// assert!(Tenant::parse("ip:192.0.2.1").is_err());
/// # Ok::<(), tollgate::tenant::TenantError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(LimitKey);

impl Tenant {
    /// The maximum length of a name in bytes.
    pub const MAX_LEN: usize = 128;

    /// Parses a name.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not valid or is reserved.
    pub fn parse(name: impl AsRef<[u8]>) -> Result<Self, TenantError> {
        LimitKey::parse(name).map(Self)
    }

    /// Returns the tenant with the name of this key, unless the name is reserved.
    #[inline]
    pub(crate) fn of_key(key: LimitKey) -> Result<Self, LimitKey> {
        if key.is_reserved() { Err(key) } else { Ok(Self(key)) }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the name as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Deref for Tenant {
    type Target = LimitKey;

    fn deref(&self) -> &LimitKey {
        &self.0
    }
}

impl From<Tenant> for LimitKey {
    fn from(tenant: Tenant) -> Self {
        tenant.0
    }
}

impl AsRef<str> for Tenant {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

crate::util::fmt::display!(Tenant, |own| own.as_str());

crate::util::fmt::debug_text!(Tenant, |own| own.as_str());

crate::util::fmt::from_str!(Tenant, TenantError);

/// The name under which a limiter counts: a [`Tenant`], a tenant that the caller only claims to be, a network address
/// (`ip:192.0.2.1`), or `~anonymous`.
///
/// It proves nothing. Names follow the rules of a [`Tenant`]. Names that begin with `ip:` or `~` belong to this crate and
/// can't be parsed, so no caller can spend the budget of an address or of the anonymous tenant.
///
/// Names of up to 38 bytes, such as UUIDs, are stored without an allocation.
///
/// ```
/// use tollgate::{LimitKey, Tenant};
///
/// assert_eq!(LimitKey::parse("acme")?, Tenant::parse("acme")?.into());
/// assert_eq!(LimitKey::address([192, 0, 2, 1].into()).as_str(), "ip:192.0.2.1");
/// assert!(LimitKey::parse("ip:192.0.2.1").is_err());
/// # Ok::<(), tollgate::tenant::TenantError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct LimitKey(InlineBytes<IN_PLACE>);

const IN_PLACE: usize = 38;

/// The bytes that a name may have.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static ALLOWED: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < allowed.len() {
        let character = byte as u8;
        allowed[byte] = character.is_ascii_graphic() && !matches!(character, b'"' | b'\\' | b'<' | b'>' | b',');
        byte += 1;
    }
    allowed
};

impl LimitKey {
    /// Parses a name from a caller or an operator.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not valid or is reserved.
    pub fn parse(name: impl AsRef<[u8]>) -> Result<Self, TenantError> {
        let name = name.as_ref();
        if is_reserved(name) {
            return Err(TenantError::RESERVED);
        }
        Self::parse_reserved(name)
    }

    /// Returns whether the key belongs to this crate: an address, or the anonymous tenant.
    #[inline]
    pub(crate) fn is_reserved(&self) -> bool {
        is_reserved(self.as_bytes())
    }

    /// Like [`parse`](Self::parse), but accepts reserved names. For readers of logs and of stored rows.
    #[inline]
    pub(crate) fn parse_reserved(name: impl AsRef<[u8]>) -> Result<Self, TenantError> {
        let name = name.as_ref();
        if name.is_empty() || name.len() > Tenant::MAX_LEN {
            return Err(TenantError::invalid("the tenant name must have 1 to 128 bytes"));
        }
        if !name.iter().all(|byte| ALLOWED.get(usize::from(*byte)) == Some(&true)) {
            return Err(TenantError::invalid("the tenant name has a character that is not allowed"));
        }
        Ok(Self::trusted(name))
    }

    /// Returns the key that all requests without a tenant can share.
    pub fn anonymous() -> Self {
        Self::trusted(b"~anonymous")
    }

    /// Returns a key made of several parts, such as a user and a route. Different parts make different keys, and no
    /// caller can name such a key. A key of more than 128 bytes is replaced by its digest.
    ///
    /// ```
    /// use tollgate::LimitKey;
    ///
    /// assert_eq!(LimitKey::from_parts(["ada", "/search"]).as_str(), "~|ada|/search");
    /// assert_ne!(LimitKey::from_parts(["ada|", "x"]), LimitKey::from_parts(["ada", "|x"]));
    /// ```
    pub fn from_parts(parts: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let mut name = String::from("~");
        for part in parts {
            name.push('|');
            for &byte in part.as_ref() {
                let is_plain = ALLOWED.get(usize::from(byte)) == Some(&true) && !matches!(byte, b'|' | b'%');
                // writing to a string never fails
                let _ = if is_plain { name.write_char(byte.into()) } else { write!(name, "%{byte:02X}") };
            }
        }
        if name.len() > Tenant::MAX_LEN {
            let digest = base64url_of_32(SecretDigest::of_secret(&name).as_bytes());
            return Self::trusted(&[b"~%%", &digest[..]].concat());
        }
        Self::trusted(name.as_bytes())
    }

    /// Returns the key of a network address: an IPv4 address, or the /64 network of an IPv6 address, because one
    /// customer usually has all of it.
    pub fn address(address: IpAddr) -> Self {
        Self::network(address, 64)
    }

    /// Like [`address`](Self::address), with IPv6 networks of this prefix length.
    pub(super) fn network(address: IpAddr, ipv6_prefix: u8) -> Self {
        let mut name = NameBuffer::new();
        let written = match address.to_canonical() {
            IpAddr::V4(address) => write!(name, "ip:{address}"),
            IpAddr::V6(address) => {
                let host_bits = u128::MAX.checked_shr(ipv6_prefix.into()).unwrap_or_default();
                write!(name, "ip:{}/{ipv6_prefix}", Ipv6Addr::from_bits(address.to_bits() & !host_bits))
            }
        };
        debug_assert!(written.is_ok(), "the longest address has 39 bytes");
        Self::trusted(name.as_bytes())
    }

    /// Copies a name that is known to be valid.
    #[inline]
    pub(crate) fn trusted(name: &[u8]) -> Self {
        Self(InlineBytes::new(&[name]))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        // the default is never used, because names are ASCII
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Returns the name as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the heap bytes of this name.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

impl Hash for LimitKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Orders by name, byte by byte.
impl Ord for LimitKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for LimitKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl AsRef<str> for LimitKey {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

crate::util::fmt::display!(LimitKey, |own| own.as_str());

crate::util::fmt::debug_text!(LimitKey, |own| own.as_str());

crate::util::fmt::from_str!(LimitKey, TenantError);

/// Returns whether a name belongs to this crate. Callers can't use such names to impersonate an address.
#[inline]
pub(super) fn is_reserved(name: &[u8]) -> bool {
    matches!(name, [b'~', ..] | [b'i', b'p', b':', ..])
}

/// Space for one name on the stack, so that building it needs no allocation.
pub(super) struct NameBuffer {
    len: usize,
    bytes: [u8; Tenant::MAX_LEN],
}

impl NameBuffer {
    pub(super) const fn new() -> Self {
        Self { len: 0, bytes: [0; Tenant::MAX_LEN] }
    }

    /// Appends bytes. Returns `None`, and appends nothing, if they do not fit.
    pub(super) fn extend(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Write for NameBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend(text.as_bytes()).ok_or(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_every_allowed_length_are_kept_unchanged() {
        for len in 1..=Tenant::MAX_LEN {
            let name = "x".repeat(len);
            assert_eq!(Tenant::parse(&name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn bad_names_are_refused() {
        let huge = "x".repeat(Tenant::MAX_LEN + 1);
        for name in ["", " ", "a b", "a\tb", "a\"b", "a\\b", "<a>", "é", "a\0", "~anonymous", "ip:192.0.2.1", &huge] {
            assert!(Tenant::parse(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn no_caller_can_name_a_key_of_parts_and_none_is_another_key_of_this_crate() {
        let key = |parts: &[&str]| LimitKey::from_parts(parts.iter().copied()).to_string();
        assert_eq!(key(&["ada", "GET /search?q=%"]), "~|ada|GET%20/search?q=%25");
        assert_eq!([key(&[]), key(&[""]), key(&["anonymous"])], ["~", "~|", "~|anonymous"]);
        let long = key(&["ada", &"x".repeat(Tenant::MAX_LEN)]);
        assert!(long.starts_with("~%%") && long.len() == 46, "{long}");
        for name in [key(&["ada"]), long] {
            assert!(LimitKey::parse(name).is_err());
        }
    }

    #[test]
    fn different_parts_have_different_keys() {
        let parts =
            prop::collection::vec(prop::collection::vec(prop::sample::select(b"|%7C~a\xff".to_vec()), 0..4), 0..4);
        proptest!(|(one in parts.clone(), other in parts)| {
            let keys = [&one, &other].map(LimitKey::from_parts);
            prop_assert_eq!(keys[0] == keys[1], one == other);
        });
    }

    #[test]
    fn all_spellings_of_an_address_are_one_key() {
        let address = |text: &str| LimitKey::address(text.parse().unwrap());
        assert_eq!(address("192.0.2.1").as_str(), "ip:192.0.2.1");
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_eq!(address("2001:db8:1:2:3:4:5:6").as_str(), "ip:2001:db8:1:2::/64");
        assert_eq!(address("2001:db8:1:2::"), address("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(address("2001:db8:1:2::"), address("2001:db8:1:3::"));
    }

    #[test]
    fn tenants_and_keys_are_small() {
        assert_eq!((size_of::<Tenant>(), size_of::<LimitKey>()), (40, 40));
    }

    #[test]
    fn the_width_of_an_ipv6_network_can_be_chosen() {
        let network = |prefix| LimitKey::network("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap(), prefix);
        assert_eq!(network(32).as_str(), "ip:2001:db8::/32");
        assert_eq!(network(56).as_str(), "ip:2001:db8:ffff:ff00::/56");
        assert_eq!(network(127).as_str(), "ip:2001:db8:ffff:ffff:ffff:ffff:ffff:fffe/127");
        assert_eq!(network(128).as_str(), "ip:2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128");
        assert_eq!(LimitKey::network("192.0.2.255".parse().unwrap(), 32).as_str(), "ip:192.0.2.255");
    }

    #[test]
    fn an_address_and_the_anonymous_tenant_are_no_tenant() {
        for key in [LimitKey::anonymous(), LimitKey::address([192, 0, 2, 1].into())] {
            assert_eq!(Tenant::of_key(key.clone()), Err(key));
        }
        let acme = LimitKey::parse("acme").unwrap();
        assert_eq!(Tenant::of_key(acme.clone()).map(LimitKey::from), Ok(acme));
    }

    #[test]
    fn an_address_needs_no_allocation() {
        let longest = LimitKey::address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap());
        assert_eq!((longest.as_str(), longest.heap_bytes()), ("ip:ffff:ffff:ffff:ffff::/64", 0));
    }

    fn is_allowed(name: &[u8]) -> bool {
        let reserved = name.starts_with(b"ip:") || name.first() == Some(&b'~');
        let printable = name.iter().all(|byte| (b'!'..=b'~').contains(byte) && !b"\"\\,<>".contains(byte));
        (1..=128).contains(&name.len()) && printable && !reserved
    }

    proptest! {
        #[test]
        fn tenants_are_ordered_by_name(one in "[a-c]{1,60}", other in "[a-c]{1,60}") {
            let (a, b) = (Tenant::parse(&one).unwrap(), Tenant::parse(&other).unwrap());
            prop_assert_eq!(a.cmp(&b), one.cmp(&other));
            prop_assert_eq!(a.cmp(&b).is_eq(), a == b);
            prop_assert_eq!(AsRef::<str>::as_ref(&a), one);
        }

        #[test]
        fn exactly_the_allowed_names_are_accepted_unchanged(
            name in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..4),
                prop::collection::vec(b' '..=127, 0..140),
                prop::collection::vec(b'a'..=b'z', 0..140),
                "(ip:|~|ip|IP:)[!-~]{0,40}".prop_map(String::into_bytes),
            ],
        ) {
            let tenant = Tenant::parse(&name);
            prop_assert_eq!(LimitKey::parse(&name), tenant.clone().map(LimitKey::from));
            prop_assert_eq!(tenant.is_ok(), is_allowed(&name));
            if let Ok(tenant) = tenant {
                prop_assert_eq!(tenant.as_bytes(), &name);
                prop_assert_eq!(tenant.as_str().as_bytes(), &name);
                prop_assert_eq!(tenant.clone(), tenant);
            }
        }
    }

    #[test]
    fn text_that_does_not_fit_is_refused_without_a_change() {
        let mut buffer = NameBuffer::new();
        assert_eq!(buffer.extend(&[b'a'; Tenant::MAX_LEN - 1]), Some(()));
        assert_eq!(buffer.extend(b"bc"), None);
        assert_eq!(buffer.extend(b"b"), Some(()));
        assert_eq!(buffer.extend(b"c"), None);
        assert_eq!(buffer.as_bytes().len(), Tenant::MAX_LEN);
        assert!(buffer.as_bytes().ends_with(b"ab"));
    }
}
