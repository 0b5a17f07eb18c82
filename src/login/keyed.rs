//! [`Keyed`]: hashes that only who has the key can make.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::util::secret::{Digest, Secret};

/// The key under everything that is short enough to be guessed: one-time codes, identifiers, addresses.
///
/// A plain hash of a phone number or of six digits is undone in no time by whoever reads the store or the log.
#[derive(Clone)]
pub(crate) struct Keyed(Hmac<Sha256>);

impl Keyed {
    /// Hashes under this key.
    #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
    pub(crate) fn new(key: &Secret) -> Self {
        Self(Hmac::new_from_slice(key.expose().as_bytes()).expect("a key of any length is one"))
    }

    /// The hash of these parts, which may hold any bytes: what one ends with is never taken for the next one's start.
    /// `purpose` keeps apart what is hashed for different ends.
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
    fn each_key_purpose_and_division_into_parts_has_a_hash_of_its_own() {
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
