#![no_main]
//! Parsing any `Cookie` header must not panic, must respect the limits, and must return only values
//! that could be set.

use http::{HeaderMap, HeaderValue, header::COOKIE};
use libfuzzer_sys::fuzz_target;
use tollgate::cookie::{self, SetCookie};

fuzz_target!(|lines: Vec<Vec<u8>>| {
    let values = lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok());
    let headers: HeaderMap = values.map(|value| (COOKIE, value)).collect();
    for name in ["__Host-session", "a"] {
        assert!(cookie::read_cookies(&headers, name).count() <= cookie::MAX_COOKIES);
        for value in cookie::read_cookies(&headers, name).filter(|value| value.len() < 4000) {
            let _written = SetCookie::new(name, value).expect("parsed values can be set").header_value();
        }
    }
});
