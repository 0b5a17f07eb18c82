//! The hops of `X-Forwarded-For`, read from the right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Beyond this number the walk ends, as if the header began there.
const MAX_HOPS: usize = 32;

/// Returns the hops of `X-Forwarded-For`, the nearest first, with `None` for one without an address. Elements further
/// left than the last one asked for are never read, so they can't matter.
pub(super) fn x_forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all(&X_FORWARDED_FOR).iter().rev();
    lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).take(MAX_HOPS).map(address)
}

/// Returns the address in a header that has one line and no list.
pub(super) fn single_address(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    address(line.as_bytes()).filter(|_| lines.next().is_none())
}

fn address(element: &[u8]) -> Option<IpAddr> {
    let element = element.trim_ascii();
    let unquoted = element.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    node_address(unquoted.unwrap_or(element))
}

/// Reads the address of a hop as proxies write it: with or without a port, IPv6 with or without brackets. Returns `None` for
/// anything else, such as `unknown`.
fn node_address(node: &[u8]) -> Option<IpAddr> {
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

/// Accepts nothing, or a colon followed by a number.
fn is_port(text: &str) -> bool {
    match text.as_bytes() {
        [] => true,
        [b':', digits @ ..] => (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_read_in_every_spelling() {
        for (node, text) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:56", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("[2001:db8::1]:65535", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:c000:201]:80", "192.0.2.1"),
        ] {
            assert_eq!(node_address(node.as_bytes()), Some(text.parse().unwrap()), "{node}");
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
            "192.0.2.1:_gate-1",
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
            assert_eq!(node_address(node.as_bytes()), None, "{node}");
        }
        assert_eq!(node_address(b"\xff"), None);
    }

    fn parse_x_forwarded_for(lines: &[&str]) -> Vec<Option<IpAddr>> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(X_FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
        }
        x_forwarded_for(&headers).collect()
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn hops_are_read_from_the_right_across_all_lines() {
        let nearest_first = vec![ip("192.0.2.4"), ip("192.0.2.3"), ip("192.0.2.2"), ip("192.0.2.1")];
        assert_eq!(parse_x_forwarded_for(&["192.0.2.1, 192.0.2.2 ,192.0.2.3,\t192.0.2.4"]), nearest_first);
        assert_eq!(parse_x_forwarded_for(&["192.0.2.1, 192.0.2.2", "192.0.2.3", "192.0.2.4"]), nearest_first);
        assert_eq!(parse_x_forwarded_for(&[]), []);
    }

    #[test]
    fn an_element_without_an_address_is_a_hop_without_one() {
        assert_eq!(parse_x_forwarded_for(&["192.0.2.1, unknown"]), [None, ip("192.0.2.1")]);
        assert_eq!(parse_x_forwarded_for(&["192.0.2.1,,\"[::1]:80\""]), [ip("::1"), None, ip("192.0.2.1")]);
        assert_eq!(parse_x_forwarded_for(&["192.0.2.1,"]), [None, ip("192.0.2.1")]);
        assert_eq!(parse_x_forwarded_for(&[""]), [None]);
        assert_eq!(parse_x_forwarded_for(&["\""]), [None]);
        assert_eq!(parse_x_forwarded_for(&["for=192.0.2.1"]), [None]);
    }

    #[test]
    fn at_most_32_hops_are_read() {
        let many = ["192.0.2.1"; MAX_HOPS + 1];
        assert_eq!(parse_x_forwarded_for(&[&many.join(",")]).len(), MAX_HOPS);
        assert_eq!(parse_x_forwarded_for(&many).len(), MAX_HOPS);
        assert_eq!(parse_x_forwarded_for(&[""; MAX_HOPS + 1]).len(), MAX_HOPS);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(line in prop::collection::vec(any::<u8>(), 0..64)) {
            address(&line);
        }

        #[test]
        fn any_header_lines_are_read_as_if_joined(lines in prop::collection::vec("[0-9a-f.:, \"\\[\\]_-]{0,40}", 1..6)) {
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            prop_assert_eq!(parse_x_forwarded_for(&lines), parse_x_forwarded_for(&[&lines.join(",")]));
        }
    }
}
