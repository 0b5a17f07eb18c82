use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use proptest::prelude::*;

use super::*;

fn lines<L: AsRef<[u8]>>(lines: &[L]) -> HeaderMap {
    let values = lines.iter().map(|line| HeaderValue::from_bytes(line.as_ref()).unwrap());
    values.map(|value| (header::COOKIE, value)).collect()
}

fn found(line: &str, name: &str) -> Vec<String> {
    read_cookies(&lines(&[line]), name).map(str::to_owned).collect()
}

#[test]
fn cookies_are_read_as_rfc_6265bis_writes_them() {
    let cases: &[(&str, &[&str])] = &[
        ("a=1", &["1"]),
        ("b=0; a=1; c=2", &["1"]),
        ("b=0;a=1;c=2", &["1"]),
        ("  a \t=\t 1  ;b=2", &["1"]),
        // an equals sign is part of the value
        ("a=1=2==", &["1=2=="]),
        ("a=", &[""]),
        // quotes are part of the value and do not hide a semicolon
        ("a=\"1\"", &["\"1\""]),
        ("a=\"\"", &["\"\""]),
        ("a=\"1;2\"", &[]),
        ("a=\"", &[]),
        ("a=1\"2", &[]),
        // cookies without a name are skipped
        ("=a=1", &[]),
        ("a", &[]),
        ("=", &[]),
        (";;; ;a=1;;", &["1"]),
        // names are case-sensitive and have no wildcards
        ("A=1; aa=2; a.=3; xa=4", &[]),
        // bytes that no server may set
        ("a=x y; a=x,y; a=x\\y; a=\té; a=ok", &["ok"]),
        ("a=\u{fc}", &[]),
        ("$Version=1; a=1; $Path=/", &["1"]),
    ];
    for (line, expected) in cases {
        assert_eq!(found(line, "a"), *expected, "{line}");
    }
    assert_eq!(read_cookies(&HeaderMap::new(), "a").count(), 0);
}

#[test]
fn c107_a_cookie_with_the_wrong_prefix_is_ignored() {
    let line = "session=1; __Secure-session=2; __host-session=3; =__Host-session=4; __Host-=5; __Host-session =6";
    assert_eq!(found(line, "__Host-session"), ["6"]);
    assert_eq!(found("__Host-session=1; __Secure-session=2", "session"), [""; 0]);
}

#[test]
fn c107_all_cookies_of_a_name_are_returned_in_order_across_headers() {
    let headers = lines(&["a=1; b=0; a=2", "b=1", "a=3"]);
    assert!(read_cookies(&headers, "a").eq(["1", "2", "3"]));
}

#[test]
fn c107_a_non_ascii_header_does_not_hide_the_others() {
    let headers = lines(&[&b"x=\xff\xfe; a=1"[..], b"a=\xff; a=2"]);
    assert!(read_cookies(&headers, "a").eq(["1", "2"]));
}

#[test]
fn c107_huge_headers_are_read_up_to_the_limits() {
    // at most 200 cookies are read
    let mut many = "b=0;".repeat(MAX_COOKIES - 1);
    many.push_str("a=1;a=2");
    assert_eq!(found(&many, "a"), ["1"]);
    let headers = lines(&["b=0"; MAX_COOKIES + 1]);
    assert_eq!(read_cookies(&headers, "b").count(), MAX_COOKIES);
    // at most 16 KiB are read, and a cookie cut off there is not half read
    let padding = "x".repeat(MAX_HEADER_BYTES - "a=1;b=;a=23;".len());
    assert_eq!(found(&format!("a=1;b={padding};a=23;a=4"), "a"), ["1", "23"]);
    assert_eq!(found(&format!("a=1;b={padding}x;a=23;a=4"), "a"), ["1"]);
    assert_eq!(found(&format!("a=1;a={};a=2", "x".repeat(1 << 20)), "a"), ["1"]);
}

#[test]
fn c103_a_session_cookie_has_every_attribute() {
    let cookie = SetCookie::new("__Host-session", "abc").unwrap();
    assert_eq!(cookie.header_value(), "__Host-session=abc; Path=/; Secure; HttpOnly; SameSite=Lax");
    assert!(cookie.header_value().is_sensitive());
    assert_eq!(format!("{cookie:?}"), "SetCookie { name: \"__Host-session\", .. }");
}

#[test]
fn each_setter_writes_its_attribute() {
    let cookie = SetCookie::new("a", "\"1\"").unwrap().max_age(Duration::from_millis(1500));
    assert_eq!(cookie.header_value(), "a=\"1\"; Path=/; Max-Age=2; Secure; HttpOnly; SameSite=Lax");
    let cookie = SetCookie::new("a", "1").unwrap().insecure_plain_http().unwrap();
    assert_eq!(cookie.header_value(), "a=1; Path=/; HttpOnly; SameSite=Lax");
    let cookie = SetCookie::removal("__Host-session").unwrap();
    assert_eq!(cookie.header_value(), "__Host-session=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax");
}

#[test]
fn c103_a_prefix_enforces_its_rules() {
    // browsers ignore the case of prefixes
    for name in ["__Host-a", "__host-a", "__HOST-a", "__Secure-a", "__secure-a"] {
        assert!(SetCookie::new(name, "1").unwrap().insecure_plain_http().is_err());
    }
}

#[test]
fn c103_a_cookie_that_browsers_would_drop_is_rejected() {
    assert!(SetCookie::new("abc", &"x".repeat(4093)).is_ok());
    assert!(SetCookie::new("abc", &"x".repeat(4094)).is_err());
}

#[test]
fn nothing_can_be_injected_into_the_header() {
    for name in ["", "a b", "a=b", "a;b", "a\r\nb", "a\"", "é", "a,b", "a\0"] {
        assert!(SetCookie::new(name, "1").is_err(), "{name:?}");
    }
    for value in ["a b", "a;b", "a,b", "a\\b", "a\r\nb", "a\"b", "\"", "é", "a\0", "\x7f", "\ta"] {
        let error = SetCookie::new("a", value).unwrap_err();
        assert!(!error.to_string().contains(value), "{value:?}");
    }
}

proptest! {
    #[test]
    fn cookies_round_trip(
        name in "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,40}",
        value in "[!#-+\\--:<-\\[\\]-~]{0,100}",
        quoted: bool,
        others in prop::collection::vec("[a-z= \"\u{e9}]{0,10}", 0..10),
        at: prop::sample::Index,
    ) {
        let value = if quoted { format!("\"{value}\"") } else { value };
        let cookie = SetCookie::new(&name, &value).unwrap().header_value();
        let pair = cookie.to_str().unwrap().split("; ").next().unwrap().to_owned();
        // other names in this header start with a space or a lower-case letter; ours with a dot
        let (name, pair) = (format!(".{name}"), format!(".{pair}"));
        let mut pairs = others;
        pairs.insert(at.index(pairs.len() + 1), pair);
        prop_assert_eq!(found(&pairs.join("; "), &name), [value]);
    }

    #[test]
    fn c107_nothing_panics_on_arbitrary_bytes(
        headers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4),
        near in "[a=; \t\"\\\\,\u{e9}]{0,60}",
    ) {
        let values = headers.iter().filter_map(|line| HeaderValue::from_bytes(line).ok());
        let map: HeaderMap = values.map(|value| (header::COOKIE, value)).collect();
        prop_assert!(read_cookies(&map, "a").all(|value| is_value(value.as_bytes())));
        prop_assert!(found(&near, "a").iter().all(|value| is_value(value.as_bytes())));
    }

    #[test]
    fn every_valid_cookie_can_be_written(name: String, value: String, seconds: u64) {
        if let Ok(cookie) = SetCookie::new(&name, &value) {
            let cookie = cookie.max_age(Duration::from_secs(seconds));
            let written = cookie.header_value();
            let start = format!("{name}={value}; Path=/; Max-Age={seconds}; ");
            prop_assert!(written.to_str().unwrap().starts_with(&start));
        }
    }
}
