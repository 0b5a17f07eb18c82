//! The URL of an issuer or of a resource.

use crate::{http::origin, util::error::ConfigError};

/// An absolute URL without query, fragment and trailing slash. All URLs that the service publishes
/// start with it. They are never derived from the `Host` header.
#[derive(Clone, Debug)]
pub(crate) struct Issuer {
    url: String,
    /// The length of scheme and host in bytes.
    origin: usize,
    loopback: bool,
}

impl Issuer {
    pub(crate) fn parse(url: &str) -> Result<Self, ConfigError> {
        Self::parse_setting("issuer", url)
    }

    /// Parses a URL of the same form for another setting.
    pub(crate) fn parse_setting(setting: &'static str, url: &str) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::new(setting, url, reason);
        let (scheme, rest) = url.split_once("://").ok_or_else(|| error("must start with https://"))?;
        let host = rest.split('/').next().unwrap_or_default();
        let path = rest.get(host.len()..).unwrap_or_default();
        let is_path = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.' | b'_' | b'~');
        let dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
        if path.ends_with('/') || path.contains("//") || dots || !path.bytes().all(is_path) {
            return Err(error("must have no query, no fragment and no trailing slash"));
        }
        let name =
            origin::host_and_port(host).map(|(name, _)| name).ok_or_else(|| error("must have a lower-case host"))?;
        let loopback = origin::is_loopback(name);
        match scheme {
            "https" => {}
            "http" if loopback => {}
            _ => return Err(error("must start with https:// or be on a loopback address")),
        }
        Ok(Self { url: url.to_owned(), origin: scheme.len() + 3 + host.len(), loopback })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns scheme and host, in the form that browsers send.
    pub(crate) fn origin(&self) -> &str {
        self.url.get(..self.origin).unwrap_or_default()
    }

    /// Returns the host name without a port.
    pub(crate) fn host(&self) -> &str {
        let host = self.origin().split_once("://").map(|(_, host)| host).unwrap_or_default();
        origin::host_and_port(host).map(|(name, _)| name).unwrap_or_default()
    }

    /// Returns the path below which all endpoints are. Empty at the root.
    pub(crate) fn path(&self) -> &str {
        self.url.get(self.origin..).unwrap_or_default()
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.loopback
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_has_an_origin_and_a_path() {
        for (url, origin, path) in [
            ("https://auth.example", "https://auth.example", ""),
            ("https://auth.example:8443/a/b", "https://auth.example:8443", "/a/b"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080", ""),
            ("http://[::1]:8080/auth", "http://[::1]:8080", "/auth"),
        ] {
            let issuer = Issuer::parse(url).unwrap();
            assert_eq!((issuer.as_str(), issuer.origin(), issuer.path()), (url, origin, path));
        }
    }

    #[test]
    fn invalid_issuers_are_rejected() {
        for url in [
            "",
            "auth.example",
            "http://auth.example",
            "http://127.0.0.1.evil.example",
            "https://",
            "https://auth.example/",
            "https://auth.example/a/",
            "https://auth.example/a//b",
            "https://auth.example/../a",
            "https://auth.example?a",
            "https://auth.example#a",
            "https://a@auth.example",
            "https://AUTH.example",
            "ftp://auth.example",
            "https://auth.example/a b",
            "https://auth.example/%61",
        ] {
            assert!(Issuer::parse(url).is_err(), "{url}");
        }
    }
}
