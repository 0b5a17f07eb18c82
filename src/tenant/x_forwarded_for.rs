use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use super::{hops::Hops, node};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The hops of `X-Forwarded-For`, the nearest first; `None` for one that names no address.
pub(super) fn hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    Hops::new(headers, &X_FORWARDED_FOR, last_comma).map(address)
}

fn last_comma(line: &[u8]) -> Option<usize> {
    line.iter().rposition(|byte| *byte == b',')
}

fn address(element: &[u8]) -> Option<IpAddr> {
    let element = element.trim_ascii();
    let unquoted = element.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    node::address(unquoted.unwrap_or(element))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::tenant::hops::{MAX_BYTES, MAX_HOPS};

    fn read(lines: &[&str]) -> Vec<Option<IpAddr>> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(X_FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
        }
        hops(&headers).collect()
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_hops_come_from_the_right_over_all_lines() {
        let nearest_first = vec![ip("192.0.2.4"), ip("192.0.2.3"), ip("192.0.2.2"), ip("192.0.2.1")];
        assert_eq!(read(&["192.0.2.1, 192.0.2.2 ,192.0.2.3,\t192.0.2.4"]), nearest_first);
        assert_eq!(read(&["192.0.2.1, 192.0.2.2", "192.0.2.3", "192.0.2.4"]), nearest_first);
        assert_eq!(read(&[]), []);
    }

    #[test]
    fn an_element_without_an_address_is_a_hop_without_one() {
        assert_eq!(read(&["192.0.2.1, unknown"]), [None, ip("192.0.2.1")]);
        assert_eq!(read(&["192.0.2.1,,\"[::1]:80\""]), [ip("::1"), None, ip("192.0.2.1")]);
        assert_eq!(read(&["192.0.2.1,"]), [None, ip("192.0.2.1")]);
        assert_eq!(read(&[""]), [None]);
        assert_eq!(read(&["\""]), [None]);
        assert_eq!(read(&["for=192.0.2.1"]), [None]);
    }

    #[test]
    fn no_more_than_32_hops_are_looked_at() {
        let many = ["192.0.2.1"; MAX_HOPS + 1];
        assert_eq!(read(&[&many.join(",")]).len(), MAX_HOPS);
        assert_eq!(read(&many).len(), MAX_HOPS);
        assert_eq!(read(&[""; MAX_HOPS + 1]).len(), MAX_HOPS);
    }

    #[test]
    fn no_more_than_8_kib_are_looked_at() {
        let padded = |spaces: usize| format!("192.0.2.1,{}192.0.2.2", " ".repeat(spaces));
        let room = MAX_BYTES - "192.0.2.1,192.0.2.2".len();
        assert_eq!(read(&[&padded(room)]), [ip("192.0.2.2"), ip("192.0.2.1")]);
        assert_eq!(read(&[&padded(room + 1)]), [ip("192.0.2.2")]);
        assert_eq!(read(&["192.0.2.1", &padded(room)]), [ip("192.0.2.2"), ip("192.0.2.1")]);
        assert_eq!(read(&[&" ".repeat(MAX_BYTES + 1)]), []);
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
            prop_assert_eq!(read(&lines), read(&[&lines.join(",")]));
        }
    }
}
