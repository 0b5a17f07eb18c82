//! Keyed hashes of values that are short enough to be guessed.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::util::secret::{Digest, Secret};

/// Hashes one-time codes, identifiers and addresses under a secret key.
///
/// A plain hash of a phone number or of six digits can be reversed in seconds by anyone who reads the store or the log.
#[derive(Clone)]
pub(crate) struct Keyed(Hmac<Sha256>);

impl Keyed {
    /// Creates a hasher with this key.
    #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
    pub(crate) fn new(key: &Secret) -> Self {
        Self(Hmac::new_from_slice(key.expose().as_bytes()).expect("HMAC takes keys of every length"))
    }

    /// Hashes these parts. Lengths are hashed too, so bytes cannot move from one part to the next. A different `purpose`
    /// gives a different hash.
    pub(crate) fn hash<const N: usize>(&self, purpose: &'static str, parts: [&[u8]; N]) -> Digest {
        let mut mac = self.0.clone();
        for part in std::iter::once(purpose.as_bytes()).chain(parts) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Digest::from_bytes(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyed(..)")
    }
}

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
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Keyed::new(&Secret::generate())), "Keyed(..)");
    }
}
