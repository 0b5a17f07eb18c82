//! Secrets of callers, and the digests that are stored instead of them.

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::util::encoding::{LEN_OF_32, base64url_of_32, is_base64url_of_32};

/// A random value of 256 bits, such as the secret in a cookie.
///
/// Its `Debug` shows nothing, it can't be compared, and its memory is wiped when it is dropped. If callers present the
/// secret, store only its [`digest`](Secret::digest). Keys and seals are secrets that you keep yourself.
///
/// ```
/// use tollgate::Secret;
///
/// let secret = Secret::generate();
/// let stored = secret.digest();
/// let presented = Secret::parse(secret.expose()).ok_or("malformed")?;
/// assert!(stored.matches(&presented.digest()));
/// # Ok::<(), &str>(())
/// ```
pub struct Secret(Zeroizing<[u8; LEN_OF_32]>);

impl Secret {
    /// Creates a secret from the random generator of the operating system.
    ///
    /// # Panics
    ///
    /// Panics if that generator fails, because no later secret would be safe.
    #[expect(clippy::expect_used, reason = "no input reaches it, and there is no safe way to go on")]
    pub fn generate() -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut_slice()).expect("the operating system provides random bytes");
        Self(Zeroizing::new(base64url_of_32(&bytes)))
    }

    /// Reads a secret that a caller presents: 32 bytes as 43 characters of base64url. Returns
    /// `None` for any other text.
    pub fn parse(text: impl AsRef<[u8]>) -> Option<Self> {
        let text = text.as_ref();
        is_base64url_of_32(text).then_some(())?;
        Some(Self(Zeroizing::new(text.try_into().ok()?)))
    }

    /// Returns the digest of a secret that a caller presents, without copying it. Returns `None` if it has another length
    /// than a secret. Other characters than those of secrets are not refused: their digest is that of no secret.
    #[inline]
    pub(crate) fn digest_of(text: &[u8]) -> Option<SecretDigest> {
        (text.len() == LEN_OF_32).then(|| SecretDigest::of_secret(text))
    }

    /// Returns the secret as 43 characters of base64url, to send to its owner.
    pub fn expose(&self) -> &str {
        // the default is never used: base64url is ASCII
        std::str::from_utf8(self.0.as_slice()).unwrap_or_default()
    }

    /// Returns the digest, to store instead of the secret.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest::of_secret(self.0.as_slice())
    }
}

crate::util::fmt::opaque_debug!(Secret);

/// The SHA-256 of a secret, which is stored in its place.
///
/// It does not implement `==`, which would stop at the first difference and so leak its position
/// through timing. Use [`matches`](SecretDigest::matches).
#[derive(Clone, Copy)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// Hashes these bytes.
    #[inline]
    pub fn of_secret(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Restores a stored digest.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the digest, for storing or looking it up.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Compares two digests in constant time.
    #[inline]
    pub fn matches(&self, other: &Self) -> bool {
        // in words, because `subtle` hides each comparison from the optimizer
        let words = self.0.as_chunks().0.iter().zip(other.0.as_chunks().0);
        let equal = |(own, other): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*own).ct_eq(&u64::from_ne_bytes(*other));
        words.map(equal).fold(Choice::from(1), |all, equal| all & equal).into()
    }
}

crate::util::fmt::opaque_debug!(SecretDigest);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::util::encoding::base64url_to_32;

    #[test]
    fn c104_a_secret_has_256_random_bits_and_only_its_digest_is_stored() {
        let secrets: Vec<_> = (0..1000).map(|_| Secret::generate()).collect();
        let texts: HashSet<_> = secrets.iter().map(Secret::expose).collect();
        assert_eq!(texts.len(), 1000);
        // every bit is set in about half of the secrets
        let mut ones = [0; 256];
        for secret in &secrets {
            let bytes = base64url_to_32(secret.expose().as_bytes()).unwrap();
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += u32::from(bytes[bit / 8] >> (bit % 8) & 1);
            }
        }
        assert!(ones.iter().all(|count| (350..650).contains(count)), "{ones:?}");
        let digest = secrets[0].digest();
        assert_ne!(digest.as_bytes(), &*base64url_to_32(secrets[0].expose().as_bytes()).unwrap());
    }

    #[test]
    fn only_the_same_secret_matches() {
        let secret = Secret::generate();
        let digest = SecretDigest::from_bytes(*secret.digest().as_bytes());
        assert!(digest.matches(&Secret::parse(secret.expose()).unwrap().digest()));
        assert!(!digest.matches(&Secret::generate().digest()));
        for bit in 0..256 {
            let mut bytes = *digest.as_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!digest.matches(&SecretDigest::from_bytes(bytes)), "bit {bit}");
        }
    }

    #[test]
    fn a_digest_is_the_sha_256_of_its_input() {
        let digest = SecretDigest::of_secret("abc");
        let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn debug_shows_nothing() {
        let secret = Secret::generate();
        assert_eq!(format!("{secret:?} {:?}", secret.digest()), "Secret(..) SecretDigest(..)");
    }

    #[test]
    fn invalid_secrets_are_rejected() {
        for text in ["", "short", "__________________________________________9", &"A".repeat(44)] {
            assert!(Secret::parse(text).is_none(), "{text:?}");
        }
    }
}
