//! A name must be accepted unchanged or rejected, and accepted names must be safe to print.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::{LimitKey, Tenant};

fuzz_target!(|name: &[u8]| {
    let Ok(tenant) = Tenant::parse(name) else { return };
    assert_eq!(tenant.as_bytes(), name);
    assert_eq!(LimitKey::parse(name), Ok(tenant.clone().into()));
    assert_eq!(tenant.as_str().as_bytes(), name);
    assert!((1..=Tenant::MAX_LEN).contains(&name.len()));
    assert!(name.iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\<>".contains(byte)));
    assert!(!name.starts_with(b"ip:") && !name.starts_with(b"~"));
});
