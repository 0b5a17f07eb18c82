//! Encrypts stored keys and secrets with a secret of the operator, so that a copy of the store alone is useless.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::util::secret::{Secret, SecretDigest};

/// A private key or another secret, as it is stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sealed {
    /// Present if it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    nonce: Option<String>,
    key: Zeroizing<String>,
}

impl Sealed {
    pub(crate) fn plain(plain: &[u8]) -> Self {
        Self { nonce: None, key: Zeroizing::new(BASE64URL.encode(plain)) }
    }
}

crate::util::fmt::opaque_debug!(Sealed);

/// Encrypts with AES-256-GCM. Without a secret, everything stays plain.
#[derive(Clone, Default)]
pub(crate) struct Seal(Option<Zeroizing<[u8; 32]>>);

impl Seal {
    pub(crate) fn new(secret: &Secret) -> Self {
        let key = SecretDigest::of_secret([b"tollgate seal of signing keys:", secret.expose().as_bytes()].concat());
        Self(Some(Zeroizing::new(*key.as_bytes())))
    }

    /// Returns whether there is no secret, so that everything stays plain.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Encrypts a key or a secret. The name is authenticated, so that one can't be swapped for another.
    pub(crate) fn close(&self, name: &str, plain: &[u8]) -> Option<Sealed> {
        let Some(secret) = &self.0 else { return Some(Sealed::plain(plain)) };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &secret[..]).ok()?;
        let mut bytes = Zeroizing::new(plain.to_vec());
        let nonce = key.seal_in_place_append_tag(Aad::from(name), &mut *bytes).ok()?;
        let text = |bytes: &[u8]| BASE64URL.encode(bytes);
        Some(Sealed { nonce: Some(text(nonce.as_ref())), key: Zeroizing::new(text(&bytes)) })
    }

    /// Decrypts it. Returns `None` if it was sealed with another secret, or if there is no secret here. Plain values
    /// can always be read.
    pub(crate) fn open(&self, name: &str, stored: &Sealed) -> Option<Zeroizing<Vec<u8>>> {
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
        let stored: Sealed = serde_json::from_str(&written).unwrap();
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
        assert_eq!(format!("{seal:?} {stored:?}"), "Seal(..) Sealed(..)");
    }
}
