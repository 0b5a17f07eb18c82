//! The hops of the header `Forwarded`.

use std::net::IpAddr;

use http::{HeaderMap, header};

use super::hops::{Hops, node_address};
use crate::util::scan::{is_token, split_before};

/// Returns the hops of `Forwarded` (RFC 7239), the nearest first, with `None` for one without an address.
pub(super) fn hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    Hops::new(headers, &header::FORWARDED, last_comma).map(address)
}

/// Finds the last comma outside quotes, read from the right. A quote that a caller opens on the left and never closes
/// therefore swallows nothing that a proxy appends.
fn last_comma(line: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    let mut before = line;
    while let Some((byte, rest)) = before.split_last() {
        before = rest;
        match byte {
            b',' if !is_quoted => return Some(before.len()),
            // another quote inside quotes is escaped, or it is the opening one after an `=`
            b'"' => is_quoted = !is_quoted || before.ends_with(b"\\"),
            _ => {}
        }
    }
    None
}

/// Returns the address in the only `for` of an element, or `None` if the element is malformed.
fn address(element: &[u8]) -> Option<IpAddr> {
    let mut node = None;
    let mut rest = element.trim_ascii();
    while !rest.is_empty() {
        // empty pairs are allowed
        if let Some(next) = rest.strip_prefix(b";") {
            rest = next.trim_ascii_start();
            continue;
        }
        let (name, value, next) = pair(rest)?;
        if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
            return None;
        }
        rest = next;
    }
    node_address(node?)
}

/// Splits off the first pair. Returns its name, its value and what follows: nothing, or `;` and more.
fn pair(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, rest) = split_before(text, b'=');
    let value = rest.get(1..)?;
    let (value, next) = match value.strip_prefix(b"\"") {
        Some(quoted) => {
            let end = end_of_quote(quoted)?;
            (quoted.get(..end)?, quoted.get(end + 1..)?.trim_ascii_start())
        }
        None => split_before(value, b';'),
    };
    let is_whole = next.is_empty() || next.starts_with(b";");
    (is_token(name) && is_whole).then_some((name, value.trim_ascii_end(), next))
}

fn end_of_quote(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    text.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn parse_forwarded(lines: &[&str]) -> Vec<Option<IpAddr>> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::FORWARDED, HeaderValue::from_str(line).unwrap());
        }
        hops(&headers).collect()
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        assert_eq!(parse_forwarded(&["for=\"_gazonk\""]), [None]);
        assert_eq!(parse_forwarded(&["For=\"[2001:db8:cafe::17]:4711\""]), [ip("2001:db8:cafe::17")]);
        assert_eq!(parse_forwarded(&["for=192.0.2.60;proto=http;by=203.0.113.43"]), [ip("192.0.2.60")]);
        assert_eq!(parse_forwarded(&["for=192.0.2.43, for=198.51.100.17"]), [ip("198.51.100.17"), ip("192.0.2.43")]);
        assert_eq!(parse_forwarded(&["for=_hidden, for=_SEVKISEK"]), [None, None]);
        assert_eq!(
            parse_forwarded(&["for=192.0.2.43, for=\"[2001:db8:cafe::17]\""]),
            [ip("2001:db8:cafe::17"), ip("192.0.2.43")]
        );
        assert_eq!(parse_forwarded(&["for=192.0.2.43", "for=unknown"]), [None, ip("192.0.2.43")]);
    }

    #[test]
    fn separators_inside_quotes_are_ignored() {
        for element in [
            "host=\"a, for=192.0.2.9\";for=192.0.2.1",
            "for=192.0.2.1;host=\"a;for=192.0.2.9, \\\"; for=192.0.2.9\"",
            "for=192.0.2.1;host=\"\\\\\"",
            "for=192.0.2.1;host=\"\\\\\\\", for=192.0.2.9\"",
            " ;for=\"192.0.2.1:80\" ; ;proto=https; ",
        ] {
            assert_eq!(parse_forwarded(&[element]), [ip("192.0.2.1")], "{element}");
            let list = format!("for=192.0.2.2,{element},{element}");
            assert_eq!(parse_forwarded(&[&list]), [ip("192.0.2.1"), ip("192.0.2.1"), ip("192.0.2.2")], "{element}");
        }
    }

    #[test]
    fn a_malformed_element_is_a_hop_without_an_address() {
        for element in [
            "",
            ";",
            "for",
            "for=",
            "=192.0.2.1",
            "192.0.2.1",
            "proto=https",
            "for=192.0.2.1;for=192.0.2.1",
            "for=192.0.2.1;For=192.0.2.2",
            "for=192.0.2.1;proto",
            "for=\"192.0.2.1",
            "for=192.0.2.1\"",
            "for=\"192.0.2.1\"x",
            "for=\"192.0.2.1\"proto=https",
            "for=\"\\192.0.2.1\"",
            "for =192.0.2.1",
            "for= 192.0.2.1",
            "f(r=x;for=192.0.2.1",
        ] {
            assert_eq!(parse_forwarded(&[element]), [None], "{element}");
        }
    }

    #[test]
    fn an_unclosed_quote_does_not_hide_hops_on_its_right() {
        for open in ["for=\"", "for=\"\\", "\"", "for=\"a,\"b,\""] {
            let list = format!("{open}, for=192.0.2.1;host=\"x\", for=192.0.2.2");
            assert_eq!(parse_forwarded(&[&list]).get(..2), Some(&[ip("192.0.2.2"), ip("192.0.2.1")][..]), "{open}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(line in prop::collection::vec(any::<u8>(), 0..64)) {
            last_comma(&line);
            address(&line);
        }

        #[test]
        fn almost_valid_bytes_are_read_without_a_panic(line in "((for|by|=|;|,|\"|\\\\| |192\\.0\\.2\\.1|\\[::1\\]|:80|_x){0,20})") {
            for (at, _) in line.char_indices() {
                address(&line.as_bytes()[at..]);
            }
            prop_assert!(parse_forwarded(&[&line]).len() <= line.len() + 1);
        }
    }
}
