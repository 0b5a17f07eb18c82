use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address of a hop as proxies write it: with or without a port, IPv6 with
/// or without brackets. Whatever else stands there (`unknown`, an obfuscated
/// `_name`, garbage) has none.
pub(super) fn address(node: &[u8]) -> Option<IpAddr> {
    let node = std::str::from_utf8(node).ok()?;
    let (address, port) = match node.strip_prefix('[') {
        Some(literal) => {
            let (address, port) = literal.split_once(']')?;
            (IpAddr::V6(address.parse::<Ipv6Addr>().ok()?), port)
        }
        None => match node.parse::<IpAddr>() {
            Ok(address) => (address, ""),
            Err(_) => {
                let (address, port) = node.split_at_checked(node.find(':')?)?;
                (IpAddr::V4(address.parse::<Ipv4Addr>().ok()?), port)
            }
        },
    };
    is_port(port).then_some(address.to_canonical())
}

/// Nothing, or a colon and a number or an obfuscated `_name`.
fn is_port(text: &str) -> bool {
    match text.as_bytes() {
        [] => true,
        [b':', b'_', name @ ..] => {
            !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
        }
        [b':', digits @ ..] => (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_in_every_spelling() {
        for (node, text) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:56", "192.0.2.1"),
            ("192.0.2.1:_gate-1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("[2001:db8::1]:65535", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:c000:201]:80", "192.0.2.1"),
        ] {
            assert_eq!(address(node.as_bytes()), Some(text.parse().unwrap()), "{node}");
        }
    }

    #[test]
    fn anything_else_has_no_address() {
        for node in [
            "",
            "unknown",
            "_hidden",
            "_SEVKISEK",
            "192.0.2",
            "192.0.2.1.",
            "192.0.2.256",
            "0192.0.2.1",
            "192.0.2.1:",
            "192.0.2.1:x",
            "192.0.2.1:_",
            "192.0.2.1:123456",
            "192.0.2.1:-1",
            "192.0.2.1 ",
            "[192.0.2.1]",
            "[::1",
            "::1]",
            "[::1]80",
            "[::1]:",
            "[]",
            "[fe80::1%eth0]",
            "2001:db8::1:56:1:2:3:4:5:6",
            "localhost",
            "\u{661}.1.1.1",
        ] {
            assert_eq!(address(node.as_bytes()), None, "{node}");
        }
        assert_eq!(address(b"\xff"), None);
    }
}
