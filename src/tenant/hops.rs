//! The hops that proxies have written, read from the right, and those of `X-Forwarded-For`.

use std::{
    iter::Rev,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{GetAll, ValueIter},
};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Beyond these bounds the walk ends, as if the header began there.
const MAX_HOPS: usize = 32;
const MAX_BYTES: usize = 8 * 1024;

/// The elements of a list header from the right: the last one of the last line comes first. Nothing is copied. Elements
/// further left than the last one asked for are never read, so they can't matter.
pub(super) struct Hops<'a> {
    lines: Rev<ValueIter<'a, HeaderValue>>,
    line: Option<&'a [u8]>,
    last_comma: fn(&[u8]) -> Option<usize>,
    elements: usize,
    bytes: usize,
}

impl<'a> Hops<'a> {
    /// Walks this header. `last_comma` finds the last comma of a line that separates two elements.
    pub(super) fn new(headers: &'a HeaderMap, name: &HeaderName, last_comma: fn(&[u8]) -> Option<usize>) -> Self {
        let lines = GetAll::iter(&headers.get_all(name)).rev();
        Self { lines, line: None, last_comma, elements: MAX_HOPS, bytes: MAX_BYTES }
    }
}

impl<'a> Iterator for Hops<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.elements = self.elements.checked_sub(1)?;
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next()?.as_bytes(),
        };
        let (unseen, seen) = line.split_at_checked(line.len().saturating_sub(self.bytes))?;
        let element = match (self.last_comma)(seen) {
            Some(comma) => {
                self.line = line.get(..unseen.len() + comma);
                seen.get(comma + 1..)?
            }
            None if unseen.is_empty() => seen,
            None => return None,
        };
        self.bytes = self.bytes.saturating_sub(element.len() + 1);
        Some(element)
    }
}

/// Returns the hops of `X-Forwarded-For`, the nearest first, with `None` for one without an address.
pub(super) fn x_forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    Hops::new(headers, &X_FORWARDED_FOR, last_comma).map(address)
}

/// Returns the address in a header that has one line and no list.
pub(super) fn single_address(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    address(line.as_bytes()).filter(|_| lines.next().is_none())
}

fn last_comma(line: &[u8]) -> Option<usize> {
    line.iter().rposition(|byte| *byte == b',')
}

fn address(element: &[u8]) -> Option<IpAddr> {
    let element = element.trim_ascii();
    let unquoted = element.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    node_address(unquoted.unwrap_or(element))
}

/// Reads the address of a hop as proxies write it: with or without a port, IPv6 with or without brackets. Returns `None` for
/// anything else, such as `unknown` or an obfuscated `_name`.
pub(super) fn node_address(node: &[u8]) -> Option<IpAddr> {
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

/// Accepts nothing, or a colon followed by a number or an obfuscated `_name`.
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
    use proptest::prelude::*;

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

    #[test]
    fn at_most_8_kib_are_read() {
        let padded = |spaces: usize| format!("192.0.2.1,{}192.0.2.2", " ".repeat(spaces));
        let room = MAX_BYTES - "192.0.2.1,192.0.2.2".len();
        assert_eq!(parse_x_forwarded_for(&[&padded(room)]), [ip("192.0.2.2"), ip("192.0.2.1")]);
        assert_eq!(parse_x_forwarded_for(&[&padded(room + 1)]), [ip("192.0.2.2")]);
        assert_eq!(parse_x_forwarded_for(&["192.0.2.1", &padded(room)]), [ip("192.0.2.2"), ip("192.0.2.1")]);
        assert_eq!(parse_x_forwarded_for(&[&" ".repeat(MAX_BYTES + 1)]), []);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(line in prop::collection::vec(any::<u8>(), 0..64)) {
            last_comma(&line);
            address(&line);
        }

        #[test]
        fn any_header_lines_are_read_as_if_joined(lines in prop::collection::vec("[0-9a-f.:, \"\\[\\]_-]{0,40}", 1..6)) {
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            prop_assert_eq!(parse_x_forwarded_for(&lines), parse_x_forwarded_for(&[&lines.join(",")]));
        }
    }
}
