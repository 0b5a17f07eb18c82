use std::{fmt::Write, net::Ipv6Addr};

use http::{HeaderValue, header};

use super::{error::TenantError, header::only, id::LimitKey, id::NameBuffer, source::TenantName, source::TenantSource};
use crate::{
    http::head::Head,
    util::{error::ConfigError, scan::split_before},
};

/// Reads the tenant from the host: that of the request target, or else the `host` header.
///
/// The port, the case and the final dot of a fully qualified name do not matter. If the
/// target and the header name different hosts, the request is rejected.
///
/// # Security
///
/// Callers control the host, unless a proxy lets only your own names through.
///
/// ```
/// use tollgate::{Head, TenantSource, tenant::HostTenant};
///
/// let source = HostTenant::subdomain_of("example.com")?;
/// let request = http::Request::get("/").header("host", "Acme.example.com:8080").body(()).unwrap();
/// assert_eq!(source.find(Head::of_request(&request)).unwrap().unwrap().as_bytes(), b"acme");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HostTenant {
    base: Option<Box<[u8]>>,
}

impl HostTenant {
    /// Uses the whole host, such as `shop.example`. IPv6 literals keep their brackets.
    pub fn whole_host() -> Self {
        Self { base: None }
    }

    /// Uses the label right before a domain: `acme` in `acme.example.com` and in
    /// `www.acme.example.com`. The domain itself and other hosts name no tenant.
    ///
    /// # Errors
    ///
    /// Returns an error if `domain` is not a domain name.
    pub fn subdomain_of(domain: impl AsRef<str>) -> Result<Self, ConfigError> {
        let domain = domain.as_ref();
        match Host::parse(domain.as_bytes()) {
            Ok(Some(Host::Name(name))) if !domain.contains(':') => Ok(Self { base: Some(name.into()) }),
            _ => Err(ConfigError::new("tenant domain", domain, "must be a domain, such as example.com")),
        }
    }
}

impl TenantSource for HostTenant {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let target = head.uri().authority().map(|authority| authority.as_str().as_bytes());
        let header = only(head.headers(), &header::HOST)?.map(HeaderValue::as_bytes);
        let host = match (Host::parse(target.unwrap_or_default())?, Host::parse(header.unwrap_or_default())?) {
            (Some(target), Some(header)) if target != header => {
                return Err(TenantError::invalid("the target and the host header name different hosts"));
            }
            (Some(host), _) | (None, Some(host)) => host,
            (None, None) => return Ok(None),
        };
        match &self.base {
            None => host.tenant().map(Some),
            Some(base) => host.label_before(base).map(|label| Host::Name(label).tenant()).transpose(),
        }
    }
}

/// A host without its port. Names have no empty label and no final dot.
#[derive(Clone, Copy)]
enum Host<'a> {
    Name(&'a [u8]),
    Ipv6(Ipv6Addr),
}

impl<'a> Host<'a> {
    fn parse(authority: &'a [u8]) -> Result<Option<Self>, TenantError> {
        if authority.is_empty() {
            return Ok(None);
        }
        let parsed = match authority.strip_prefix(b"[") {
            Some(literal) => {
                let (address, rest) = split_before(literal, b']');
                Self::ipv6(address).zip(rest.get(1..))
            }
            None => {
                let (name, rest) = split_before(authority, b':');
                Self::name(name).map(|host| (host, rest))
            }
        };
        match parsed {
            Some((host, [])) => Ok(Some(host)),
            Some((host, [b':', port @ ..])) if port.iter().all(u8::is_ascii_digit) => Ok(Some(host)),
            _ => Err(TenantError::invalid("the host is malformed")),
        }
    }

    fn ipv6(address: &[u8]) -> Option<Self> {
        std::str::from_utf8(address).ok()?.parse().ok().map(Self::Ipv6)
    }

    fn name(name: &'a [u8]) -> Option<Self> {
        let name = name.strip_suffix(b".").unwrap_or(name);
        let is_label = |label: &[u8]| {
            !label.is_empty() && label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        name.split(|byte| *byte == b'.').all(is_label).then_some(Self::Name(name))
    }

    fn label_before(self, base: &[u8]) -> Option<&'a [u8]> {
        let Self::Name(name) = self else { return None };
        let (front, domain) = name.split_at_checked(name.len().checked_sub(base.len())?)?;
        let labels = front.strip_suffix(b".").filter(|_| domain.eq_ignore_ascii_case(base))?;
        labels.rsplit(|byte| *byte == b'.').next()
    }

    fn tenant(self) -> Result<TenantName<'static>, TenantError> {
        let mut name = NameBuffer::new();
        let written = match self {
            Self::Ipv6(address) => write!(name, "[{address}]").ok(),
            Self::Name(text) => text.iter().try_for_each(|byte| name.extend(&[byte.to_ascii_lowercase()])),
        };
        written.ok_or(TenantError::invalid("the host has more than 128 bytes"))?;
        LimitKey::parse(name.as_bytes()).map(TenantName::from)
    }
}

impl PartialEq for Host<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(one), Self::Name(other)) => one.eq_ignore_ascii_case(other),
            (Self::Ipv6(one), Self::Ipv6(other)) => one == other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Uri};

    use super::*;

    fn find(source: &HostTenant, uri: &str, hosts: &[&str]) -> Result<Option<LimitKey>, TenantError> {
        let mut request = Request::new(());
        *request.uri_mut() = uri.parse::<Uri>().unwrap();
        for host in hosts {
            request.headers_mut().append("host", HeaderValue::from_str(host).unwrap());
        }
        source.find(Head::of_request(&request))?.map(|name| name.to_key()).transpose()
    }

    fn find_by_whole(host: &str) -> Result<Option<LimitKey>, TenantError> {
        find(&HostTenant::whole_host(), "/", &[host])
    }

    #[test]
    fn all_spellings_of_a_host_are_one_tenant() {
        for host in
            ["shop.example", "SHOP.Example", "shop.example.", "shop.example:80", "Shop.example.:8080", "shop.example:"]
        {
            assert_eq!(find_by_whole(host).unwrap().unwrap().as_str(), "shop.example", "{host}");
        }
        for host in ["[2001:db8::1]", "[2001:DB8:0::0:1]:443", "[2001:db8::1]:"] {
            assert_eq!(find_by_whole(host).unwrap().unwrap().as_str(), "[2001:db8::1]", "{host}");
        }
        assert_eq!(find_by_whole("192.0.2.1:80").unwrap().unwrap().as_str(), "192.0.2.1");
    }

    #[test]
    fn a_malformed_host_is_refused() {
        let long = ["a"; 65].join(".");
        for host in [
            ":80",
            ".",
            "a..b",
            ".a",
            "a..",
            "a b",
            "a/b",
            "a:b",
            "a:80:80",
            "user@a",
            "user:1@a",
            "a%41",
            "2001:db8::1",
            "[::1",
            "[::1]x",
            "[::1]80",
            "[::1]]",
            "[]",
            "[192.0.2.1]",
            "[fe80::1%25eth0]",
            "[::1",
            "é",
            "a,b",
            &long,
        ] {
            assert!(find_by_whole(host).is_err(), "{host}");
        }
    }

    #[test]
    fn a_request_without_a_host_has_no_tenant() {
        assert_eq!(find(&HostTenant::whole_host(), "/", &[]), Ok(None));
        assert_eq!(find(&HostTenant::whole_host(), "/", &[""]), Ok(None));
    }

    #[test]
    fn the_target_and_the_header_must_agree() {
        let source = HostTenant::whole_host();
        let shop = Ok(LimitKey::parse("shop.example").ok());
        assert_eq!(find(&source, "https://shop.example/", &[]), shop);
        assert_eq!(find(&source, "https://shop.example:443/", &["SHOP.example."]), shop);
        assert_eq!(find(&source, "https://shop.example/", &[""]), shop);
        assert!(find(&source, "https://shop.example/", &["other.example"]).is_err());
        assert!(find(&source, "https://[::1]/", &["[::2]"]).is_err());
        assert!(find(&source, "https://user@shop.example/", &[]).is_err());
        assert!(find(&source, "/", &["shop.example", "shop.example"]).is_err());
    }

    #[test]
    fn the_label_in_front_of_the_domain_names_the_tenant() {
        for domain in ["example.com", "Example.COM."] {
            let source = HostTenant::subdomain_of(domain).unwrap();
            for host in ["acme.example.com", "ACME.Example.com.:80", "www.acme.example.com"] {
                assert_eq!(find(&source, "/", &[host]).unwrap().unwrap().as_str(), "acme", "{host}");
            }
            for host in ["example.com", "acmeexample.com", "acme.example.org", "com", "acme.example.com.org", "[::1]"] {
                assert_eq!(find(&source, "/", &[host]), Ok(None), "{host}");
            }
            assert!(find(&source, "/", &[".example.com"]).is_err());
        }
    }

    #[test]
    fn an_invalid_domain_is_a_config_error_that_names_it() {
        for domain in ["", ".", ".example.com", "example..com", "example.com:80", "[::1]", "*.example.com", "a b"] {
            assert_eq!(HostTenant::subdomain_of(domain).unwrap_err().value(), domain);
        }
    }
}
