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
pub(crate) struct Seal {
    current: Option<SealKey>,
    /// Keys of earlier secrets, which only decrypt.
    older: Vec<SealKey>,
}

type SealKey = Zeroizing<[u8; 32]>;

fn derive_key(secret: &Secret) -> SealKey {
    let key = SecretDigest::of_secret([b"tollgate seal of signing keys:", secret.expose().as_bytes()].concat());
    Zeroizing::new(*key.as_bytes())
}

impl Seal {
    #[cfg(test)]
    pub(crate) fn new(secret: &Secret) -> Self {
        Self::default().with_secret(secret)
    }

    /// Encrypts with this secret from now on.
    pub(crate) fn with_secret(self, secret: &Secret) -> Self {
        Self { current: Some(derive_key(secret)), ..self }
    }

    /// Also decrypts what was encrypted with this earlier secret.
    pub(crate) fn with_older(mut self, secret: &Secret) -> Self {
        self.older.push(derive_key(secret));
        self
    }

    /// Returns this seal, or the other one if this has no secret. Earlier secrets of both count.
    pub(crate) fn or(mut self, other: &Self) -> Self {
        self.older.extend_from_slice(&other.older);
        Self { current: self.current.or_else(|| other.current.clone()), older: self.older }
    }

    /// Returns whether there is no secret, so that everything stays plain.
    pub(crate) fn is_open(&self) -> bool {
        self.current.is_none()
    }

    /// Encrypts a key or a secret. The name is authenticated, so that one can't be swapped for another.
    pub(crate) fn close(&self, name: &str, plain: &[u8]) -> Option<Sealed> {
        let Some(secret) = &self.current else { return Some(Sealed::plain(plain)) };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &secret[..]).ok()?;
        let mut bytes = Zeroizing::new(plain.to_vec());
        let nonce = key.seal_in_place_append_tag(Aad::from(name), &mut *bytes).ok()?;
        let text = |bytes: &[u8]| BASE64URL.encode(bytes);
        Some(Sealed { nonce: Some(text(nonce.as_ref())), key: Zeroizing::new(text(&bytes)) })
    }

    /// Decrypts it. Returns `None` if it was sealed with a secret that is unknown here. Plain values can always be read.
    pub(crate) fn open(&self, name: &str, stored: &Sealed) -> Option<Zeroizing<Vec<u8>>> {
        let Some(nonce) = &stored.nonce else {
            return BASE64URL.decode(stored.key.as_bytes()).ok().map(Zeroizing::new);
        };
        self.current.iter().chain(&self.older).find_map(|key| open_with(key, name, nonce, stored))
    }

    /// Encrypts a stored secret again if it is not encrypted with the current secret.
    pub(crate) fn renew(&self, name: &str, stored: &mut Sealed) {
        let is_current = |nonce: &String| self.current.iter().any(|key| open_with(key, name, nonce, stored).is_some());
        if self.is_open() || stored.nonce.as_ref().is_some_and(is_current) {
            return;
        }
        if let Some(closed) = self.open(name, stored).and_then(|plain| self.close(name, &plain)) {
            *stored = closed;
        }
    }
}

fn open_with(key: &SealKey, name: &str, nonce: &str, stored: &Sealed) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(BASE64URL.decode(stored.key.as_bytes()).ok()?);
    let key = RandomizedNonceKey::new(&AES_256_GCM, &key[..]).ok()?;
    let nonce = Nonce::try_assume_unique_for_key(&BASE64URL.decode(nonce).ok()?).ok()?;
    let len = key.open_in_place(nonce, Aad::from(name), &mut bytes).ok()?.len();
    bytes.truncate(len);
    Some(bytes)
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.current.is_some() { "Seal(..)" } else { "Seal(none)" })
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
    fn an_earlier_secret_only_decrypts_and_what_it_encrypted_is_renewed() {
        let (old, new) = (Secret::generate(), Secret::generate());
        let (was, only_new) = (Seal::new(&old), Seal::new(&new));
        let both = Seal::default().with_older(&Secret::generate()).with_older(&old).or(&only_new);
        let mut stored = was.close("ES256", b"private").unwrap();
        assert_eq!(both.open("ES256", &stored).unwrap().as_slice(), b"private");
        assert!(both.open("RS256", &stored).is_none());
        assert!(was.open("ES256", &both.close("ES256", b"private").unwrap()).is_none());

        both.renew("ES256", &mut stored);
        assert_eq!(only_new.open("ES256", &stored).unwrap().as_slice(), b"private");
        assert!(was.open("ES256", &stored).is_none());
        // what is current, unknown, or of a seal without a secret stays as it is
        let before = serde_json::to_string(&stored).unwrap();
        for seal in [&both, &only_new, &was, &Seal::default(), &Seal::default().with_older(&new)] {
            seal.renew("ES256", &mut stored);
            assert_eq!(serde_json::to_string(&stored).unwrap(), before);
        }
        let mut plain = Sealed::plain(b"private");
        both.renew("ES256", &mut plain);
        assert_eq!(only_new.open("ES256", &plain).unwrap().as_slice(), b"private");
        assert!(was.open("ES256", &plain).is_none());
    }

    #[test]
    fn debug_shows_nothing() {
        let seal = Seal::new(&Secret::generate());
        let stored = Seal::default().close("ES256", b"private").unwrap();
        assert_eq!(format!("{seal:?} {stored:?}"), "Seal(..) Sealed(..)");
    }
}
