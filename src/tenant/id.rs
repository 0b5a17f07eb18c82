use std::{
    fmt,
    hash::{Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

use crate::tenant::TenantError;

/// Whose budget a request spends: a short, printable name.
///
/// A tenant exists only when valid: 1 to 128 visible ASCII characters, none of
/// them `"`, `\`, `<` or `>`, so that it is safe in a header, a log line and a
/// JSON document. Names that begin with `ip:` or `~` are this crate's own and
/// can't be parsed, so no caller can pass for an address or for the anonymous
/// tenant.
///
/// Up to 38 bytes stand in place, so that a request with a UUID for a tenant
/// costs no allocation.
///
/// ```
/// use tollgate::Tenant;
///
/// assert_eq!(Tenant::parse("acme")?.as_str(), "acme");
/// assert!(Tenant::parse("").is_err());
/// assert!(Tenant::parse("ip:192.0.2.1").is_err());
/// # Ok::<(), tollgate::TenantError>(())
/// ```
#[derive(Clone)]
pub struct Tenant(Repr);

const IN_PLACE: usize = 38;

#[derive(Clone)]
enum Repr {
    InPlace { len: u8, bytes: [u8; IN_PLACE] },
    Shared(Arc<[u8]>),
}

impl Tenant {
    /// The most bytes that a name may have.
    pub const MAX_LEN: usize = 128;

    /// Reads a name that a caller or an operator gave.
    pub fn parse(name: impl AsRef<[u8]>) -> Result<Self, TenantError> {
        let name = name.as_ref();
        if name.is_empty() || name.len() > Self::MAX_LEN {
            return Err(TenantError::invalid("the tenant has no name or one of more than 128 bytes"));
        }
        if !name.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'<' | b'>')) {
            return Err(TenantError::invalid("the name of the tenant has a character that is not allowed"));
        }
        if name.starts_with(b"ip:") || name.starts_with(b"~") {
            return Err(TenantError::invalid("the name of the tenant is reserved"));
        }
        Ok(Self::trusted(name))
    }

    /// The tenant that all requests without one share, where that is the policy.
    pub fn anonymous() -> Self {
        Self::trusted(b"~anonymous")
    }

    /// The tenant that stands for a network address: an IPv4 address (however
    /// written), or the /64 network of an IPv6 address, for whoever has one has
    /// the whole of it.
    pub fn address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::trusted(format!("ip:{address}").as_bytes()),
            IpAddr::V6(address) => {
                let network = std::net::Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64));
                Self::trusted(format!("ip:{network}/64").as_bytes())
            }
        }
    }

    fn trusted(name: &[u8]) -> Self {
        let mut bytes = [0; IN_PLACE];
        Self(match bytes.get_mut(..name.len()) {
            Some(place) => {
                place.copy_from_slice(name);
                Repr::InPlace { len: name.len() as u8, bytes }
            }
            None => Repr::Shared(name.into()),
        })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        // never the default: only ASCII is let in
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The name, as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::InPlace { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Shared(bytes) => bytes,
        }
    }

    /// Bytes that this name holds outside itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::InPlace { .. } => 0,
            Repr::Shared(bytes) => bytes.len() + 2 * size_of::<usize>(),
        }
    }
}

impl PartialEq for Tenant {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Tenant {}

impl Hash for Tenant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tenant").field(&self.as_str()).finish()
    }
}

impl std::str::FromStr for Tenant {
    type Err = TenantError;

    fn from_str(name: &str) -> Result<Self, TenantError> {
        Self::parse(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_allowed_length_come_back_whole() {
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
    fn an_address_is_one_tenant_however_it_is_written() {
        let address = |text: &str| Tenant::address(text.parse().unwrap());
        assert_eq!(address("192.0.2.1").as_str(), "ip:192.0.2.1");
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_eq!(address("2001:db8:1:2:3:4:5:6").as_str(), "ip:2001:db8:1:2::/64");
        assert_eq!(address("2001:db8:1:2::"), address("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(address("2001:db8:1:2::"), address("2001:db8:1:3::"));
    }

    #[test]
    fn a_tenant_is_small() {
        assert_eq!(size_of::<Tenant>(), 40);
    }
}
