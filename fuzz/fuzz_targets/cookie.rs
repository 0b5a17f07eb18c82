#![no_main]
//! Whatever a `Cookie` header holds, reading it never panics, keeps to the
//! bounds, and yields only values that could be set.

use http::{HeaderMap, HeaderValue, header::COOKIE};
use libfuzzer_sys::fuzz_target;
use tollgate::cookie::{self, SetCookie};

fuzz_target!(|lines: Vec<Vec<u8>>| {
    let values = lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok());
    let headers: HeaderMap = values.map(|value| (COOKIE, value)).collect();
    for name in ["__Host-session", "a"] {
        assert!(cookie::read(&headers, name).count() <= cookie::MAX_COOKIES);
        for value in cookie::read(&headers, name).filter(|value| value.len() < 4000) {
            let _written = SetCookie::new(name, value).expect("what is read could be set").header_value();
        }
    }
});
