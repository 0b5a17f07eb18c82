//! `X-Forwarded-For` headers. Nothing may panic, and what a caller writes to the
//! left of an untrusted address must have no effect.

#![no_main]

use std::{net::IpAddr, sync::LazyLock};

use http::{HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use tollgate::{ClientIp, Head, PeerAddr};

static BEHIND: LazyLock<ClientIp> = LazyLock::new(|| ClientIp::behind(["10.0.0.0/8", "fd00::/8"]).unwrap());

const PEER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [198, 51, 100, 7];

fuzz_target!(|written: &[u8]| {
    let appended = "198.51.100.7, [fd00::1]:80";
    let lines = || written.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
    let _ = address(lines());

    assert_eq!(address(lines().chain([appended.into()])), Some(CLIENT.into()));

    let mut joined: Vec<_> = lines().collect();
    if let Some(last) = joined.last_mut() {
        last.extend(b", ");
        last.extend(appended.as_bytes());
    }
    let is_whole = joined.last().is_some_and(|last| HeaderValue::from_bytes(last).is_ok());
    assert!(!is_whole || address(joined.into_iter()) == Some(CLIENT.into()));
});

fn address(lines: impl Iterator<Item = Vec<u8>>) -> Option<IpAddr> {
    let mut request = Request::new(());
    request.extensions_mut().insert(PeerAddr((PEER, 49152).into()));
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(&line) {
            request.headers_mut().append("x-forwarded-for", value);
        }
    }
    BEHIND.address(Head::of_request(&request))
}
