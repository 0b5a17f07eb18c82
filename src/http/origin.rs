//! Hosts and origins, in the forms used by operators and by browsers.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::util::error::ConfigError;

/// Returns an origin in the form that browsers send: lower case, no default port. Accepts
/// `https://`, or `http://` on a loopback address.
pub(crate) fn normal(setting: &'static str, origin: &str) -> Result<String, ConfigError> {
    let error = |reason: &'static str| ConfigError::new(setting, origin, reason);
    let lower = origin.to_ascii_lowercase();
    let (scheme, authority) = lower.split_once("://").ok_or_else(|| error("must start with https://"))?;
    let (host, port) = host_and_port(authority).ok_or_else(|| error("must be only a scheme and a host"))?;
    let default_port = match scheme {
        "https" => 443,
        "http" if is_loopback(host) => 80,
        _ => return Err(error("must start with https:// or be on a loopback address")),
    };
    Ok(match port.filter(|port| *port != default_port) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Splits `app.example:8443` into host and port. Returns `None` if the host is not a lower-case
/// name or address.
pub(crate) fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.rsplit_once(':') {
        // the colon is inside the brackets of an IPv6 address
        Some((_, rest)) if rest.ends_with(']') => (authority, None),
        Some((host, digits)) => (host, Some(port(digits)?)),
        None => (authority, None),
    };
    is_host(host).then_some((host, port))
}

/// Parses a port in its only canonical form: no sign, no leading zero.
pub(crate) fn port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
        // only in the form that browsers write
        return address.is_some_and(|address| host == format!("[{address}]"));
    }
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.bytes().all(allowed)
    };
    // browsers parse hosts that end in a number as IPv4 addresses
    let is_number = |label: &str| label.starts_with("0x") || label.bytes().all(|byte| byte.is_ascii_digit());
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= 253
        && host.split('.').all(is_label)
        && (!is_number(last) || host.parse::<Ipv4Addr>().is_ok_and(|address| address.to_string() == host))
}

/// Returns whether a host is a loopback name or address.
pub(crate) fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn origins_are_normalized_as_in_browsers() {
        for (given, expected) in [
            ("https://App.Example", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("https://app.example:8443", "https://app.example:8443"),
            ("https://192.0.2.1:80", "https://192.0.2.1:80"),
            ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://127.0.0.1:80", "http://127.0.0.1"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(normal("origin", given).unwrap(), expected);
        }
    }

    #[test]
    fn invalid_origins_are_rejected() {
        for bad in [
            "",
            "null",
            "*",
            "https://",
            "https://*.example",
            "app.example",
            "https://a/",
            "https://a?",
            "https://a#b",
            "https://a@b",
            "https://a:",
            "https://a:0",
            "https://a:65536",
            "https://a:+1",
            "https://a:080",
            "https://a:b",
            "https://a..b",
            "https://a.",
            "https://é",
            "https://a b",
            "https://a\n",
            "https://[::1",
            "https://::1",
            "https://[0:0:0:0:0:0:0:1]",
            "https://[::1]]",
            "https://127.1",
            "https://1.2.3.4.5",
            "https://0x7f.1",
            "https://0177.0.0.1",
            "http://app.example",
            "http://127.0.0.2",
            "http://localhost.evil.example",
            "ftp://a",
            "https:///",
            "https://a\\b",
            "https://a%2eb",
        ] {
            assert!(normal("origin", bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn normalized_origins_are_unchanged(text in "(https|http|HTTPS)://[a-zA-Z0-9.\\[\\]:@-]{0,12}(:[0-9]{0,6})?") {
            if let Ok(once) = normal("origin", &text) {
                prop_assert_eq!(normal("origin", &once).unwrap(), once.clone());
                let uri: http::Uri = once.parse().unwrap();
                prop_assert_eq!(uri.authority().unwrap().as_str(), once.split_once("://").unwrap().1);
            }
        }

        #[test]
        fn every_port_has_exactly_one_form(port_number: u16, text in "[0-9+ ]{0,6}") {
            prop_assert_eq!(port(&port_number.to_string()), Some(port_number).filter(|port| *port > 0));
            if let Some(read) = port(&text) {
                prop_assert_eq!(read.to_string(), text);
            }
        }
    }
}
