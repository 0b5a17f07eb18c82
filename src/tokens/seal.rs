//! [`Seal`]: encrypts private keys with a secret of the operator, so that a copy of the store alone can't sign.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::util::secret::{Digest, Secret};

/// A private key as it is stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// Present if the key is sealed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    nonce: Option<String>,
    key: Zeroizing<String>,
}

impl Stored {
    pub(super) fn plain(pkcs8: &[u8]) -> Self {
        Self { nonce: None, key: Zeroizing::new(BASE64URL.encode(pkcs8)) }
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stored(..)")
    }
}

/// Encrypts with AES-256-GCM. Without a secret, keys stay plain.
#[derive(Clone, Default)]
pub(super) struct Seal(Option<Zeroizing<[u8; 32]>>);

impl Seal {
    pub(super) fn new(secret: &Secret) -> Self {
        let key = Digest::of([b"tollgate seal of signing keys:", secret.expose().as_bytes()].concat());
        Self(Some(Zeroizing::new(*key.as_bytes())))
    }

    /// Seals a key. The name is authenticated, so that a sealed key can't be swapped for another.
    pub(super) fn close(&self, name: &str, pkcs8: &[u8]) -> Option<Stored> {
        let Some(secret) = &self.0 else { return Some(Stored::plain(pkcs8)) };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &secret[..]).ok()?;
        let mut bytes = Zeroizing::new(pkcs8.to_vec());
        let nonce = key.seal_in_place_append_tag(Aad::from(name), &mut *bytes).ok()?;
        let text = |bytes: &[u8]| BASE64URL.encode(bytes);
        Some(Stored { nonce: Some(text(nonce.as_ref())), key: Zeroizing::new(text(&bytes)) })
    }

    /// Opens a key. Returns `None` if it is sealed with another secret, or if there is no secret here. Plain keys can always
    /// be read.
    pub(super) fn open(&self, name: &str, stored: &Stored) -> Option<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(BASE64URL.decode(stored.key.as_bytes()).ok()?);
        let Some(nonce) = &stored.nonce else { return Some(bytes) };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &self.0.as_ref()?[..]).ok()?;
        let nonce = Nonce::try_assume_unique_for_key(&BASE64URL.decode(nonce).ok()?).ok()?;
        let len = key.open_in_place(nonce, Aad::from(name), &mut bytes).ok()?.len();
        bytes.truncate(len);
        Some(bytes)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Seal(..)" } else { "Seal(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_and_name_open_a_sealed_key() {
        let secret = Secret::generate();
        let seal = Seal::new(&secret);
        let stored = seal.close("ES256", b"private").unwrap();
        let written = serde_json::to_string(&stored).unwrap();
        assert!(!written.contains(&BASE64URL.encode(b"private")));
        let stored: Stored = serde_json::from_str(&written).unwrap();
        let again = Seal::new(&Secret::parse(secret.expose()).unwrap());
        assert_eq!(again.open("ES256", &stored).unwrap().as_slice(), b"private");
        assert!(again.open("RS256", &stored).is_none());
        assert!(Seal::new(&Secret::generate()).open("ES256", &stored).is_none());
        assert!(Seal::default().open("ES256", &stored).is_none());
        // two sealings of one key have nothing in common
        assert_ne!(seal.close("ES256", b"private").unwrap().key, stored.key);
    }

    #[test]
    fn a_key_stored_without_a_secret_can_be_read_with_one() {
        let plain = Seal::default().close("ES256", b"private").unwrap();
        assert_eq!(Seal::new(&Secret::generate()).open("ES256", &plain).unwrap().as_slice(), b"private");
    }

    #[test]
    fn debug_shows_nothing() {
        let seal = Seal::new(&Secret::generate());
        let stored = Seal::default().close("ES256", b"private").unwrap();
        assert_eq!(format!("{seal:?} {stored:?}"), "Seal(..) Stored(..)");
    }
}
