//! Keyed hashes of values that are short enough to be guessed.

use blake2::{
    Blake2bMac,
    digest::{KeyInit, Mac, consts::U32},
};

use crate::util::secret::{Secret, SecretDigest};

/// Hashes one-time codes, identifiers and addresses under a secret key.
///
/// A plain hash of a phone number or of six digits can be reversed in seconds by anyone who reads the store or the log.
///
/// Keyed BLAKE2b (RFC 7693) hashes most values in one step; an HMAC with SHA-256 needs three to five.
#[derive(Clone)]
pub(crate) struct Keyed(Blake2bMac<U32>);

impl Keyed {
    /// Creates a hasher with this key.
    #[expect(clippy::expect_used, reason = "BLAKE2b takes keys of up to 64 bytes, and a secret has 43")]
    pub(crate) fn new(key: &Secret) -> Self {
        let mut mac = Blake2bMac::new_from_slice(key.expose().as_bytes()).expect("the key is short enough");
        // a block is only hashed when something follows it: this byte lets the key be hashed once, here
        mac.update(&[1]);
        Self(mac)
    }

    /// Hashes these parts. Lengths are hashed too, so bytes cannot move from one part to the next. A different `purpose`
    /// gives a different hash.
    pub(crate) fn hash<const N: usize>(&self, purpose: &'static str, parts: [&[u8]; N]) -> SecretDigest {
        let mut mac = self.0.clone();
        for part in std::iter::once(purpose.as_bytes()).chain(parts) {
            mac.update(&(part.len() as u32).to_be_bytes());
            mac.update(part);
        }
        SecretDigest::from_bytes(mac.finalize().into_bytes().into())
    }
}

impl Keyed {
    /// Returns whether both have the same key.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.hash("same key", []).matches(&other.hash("same key", []))
    }
}

crate::util::fmt::opaque_debug!(Keyed);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_purposes_and_part_boundaries_change_the_hash() {
        let key = Secret::generate();
        let keyed = Keyed::new(&key);
        let hash = keyed.hash("a", [b"bc", b"d"]);
        assert!(hash.matches(&Keyed::new(&key).hash("a", [b"bc", b"d"])));
        for other in [
            keyed.hash("b", [b"bc", b"d"]),
            keyed.hash("a", [b"b", b"cd"]),
            keyed.hash("a", [b"bcd", b""]),
            keyed.hash("a", [b"bcd"]),
            Keyed::new(&Secret::generate()).hash("a", [b"bc", b"d"]),
        ] {
            assert!(!hash.matches(&other));
        }
    }

    #[test]
    fn hashers_are_the_same_if_their_keys_are() {
        let key = Secret::generate();
        let keyed = Keyed::new(&key);
        assert!(keyed.is_same(&Keyed::new(&key)) && !keyed.is_same(&Keyed::new(&Secret::generate())));
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Keyed::new(&Secret::generate())), "Keyed(..)");
    }
}
