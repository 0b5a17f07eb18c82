//! The bytes of an entry: version (16 bytes) and expiry (8 bytes), little endian, and the value.

use bytes::Bytes;

use crate::{
    store::{
        error::{StoreError, StoreErrorKind},
        record::{Entry, Version},
    },
    util::clock::UnixTime,
};

/// Returns a version that never repeats: 128 random bits.
#[expect(clippy::expect_used, reason = "no input reaches it, and a repeated version would break swaps")]
pub(super) fn new_version() -> Version {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
    Version::from_u128(u128::from_le_bytes(bytes))
}

pub(super) fn encode_redis_entry(version: Version, expires_at: UnixTime, value: &[u8]) -> Vec<u8> {
    [&version.as_u128().to_le_bytes()[..], &expires_at.as_nanos().to_le_bytes(), value].concat()
}

pub(super) fn decode_redis_entry(bytes: &Bytes) -> Result<Entry, StoreError> {
    let parts = bytes.split_first_chunk().and_then(|(version, rest)| Some((version, rest.split_first_chunk()?)));
    let Some((version, (expires_at, value))) = parts else {
        return Err(StoreError::new(StoreErrorKind::Corrupt, "an entry has no header"));
    };
    Ok(Entry {
        value: bytes.slice_ref(value),
        version: Version::from_u128(u128::from_le_bytes(*version)),
        expires_at: UnixTime::from_nanos(u64::from_le_bytes(*expires_at)),
    })
}
