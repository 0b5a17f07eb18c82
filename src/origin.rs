//! Hosts and origins, as an operator writes them down and as browsers send
//! them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::ConfigError;

/// An origin as browsers write it: lower case, no default port. It is `https://`, or `http://` on a loopback address.
pub(crate) fn normal(setting: &'static str, origin: &str) -> Result<String, ConfigError> {
    let error = |reason: &'static str| ConfigError::new(setting, origin, reason);
    let lower = origin.to_ascii_lowercase();
    let (scheme, authority) = lower.split_once("://").ok_or_else(|| error("must begin with https://"))?;
    let (host, port) =
        host_and_port(authority).ok_or_else(|| error("must be a scheme and a host, with nothing behind"))?;
    let default_port = match scheme {
        "https" => 443,
        "http" if is_loopback(host) => 80,
        _ => return Err(error("must begin with https://, or be on a loopback address")),
    };
    Ok(match port.filter(|port| *port != default_port) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Takes `app.example:8443` apart; nothing where it is not a name or an address in lower case, and a port.
pub(crate) fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.rsplit_once(':') {
        // a colon within the brackets of an address
        Some((_, rest)) if rest.ends_with(']') => (authority, None),
        Some((host, digits)) => (host, Some(port(digits)?)),
        None => (authority, None),
    };
    is_host(host).then_some((host, port))
}

/// A port as all readers read it: no sign, no zero in front.
pub(crate) fn port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
        // in the one form that browsers write
        return address.is_some_and(|address| host == format!("[{address}]"));
    }
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.bytes().all(allowed)
    };
    // what ends in a number is read as an IPv4 address
    let is_number = |label: &str| label.starts_with("0x") || label.bytes().all(|byte| byte.is_ascii_digit());
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= 253
        && host.split('.').all(is_label)
        && (!is_number(last) || host.parse::<Ipv4Addr>().is_ok_and(|address| address.to_string() == host))
}

/// Whether a host is this machine, by any name.
pub(crate) fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}
