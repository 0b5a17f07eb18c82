//! [`PublicId`]: a short name that may be shown, logged and sent to others.

use std::str::FromStr;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::util::{encoding::base64url_to_16, secret::SecretDigest};

const LEN: usize = 16;

/// A public id of 128 bits, such as the `sid` of a session.
///
/// It is not a secret: it may be shown, logged and sent in a URL. Knowing it proves nothing, because everything that it
/// names needs a secret as well.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicId([u8; LEN]);

impl PublicId {
    /// Derives the id from this digest. It reveals nothing about the digest.
    pub fn of_digest(digest: &SecretDigest) -> Self {
        let hash = SecretDigest::of_secret([b"tollgate handle:", &digest.as_bytes()[..]].concat());
        // the default is never used: the hash has 32 bytes
        Self(hash.as_bytes().first_chunk().copied().unwrap_or_default())
    }

    /// Creates a random handle.
    ///
    /// # Panics
    ///
    /// Panics if the random generator of the operating system fails.
    #[expect(clippy::expect_used, reason = "no input reaches it, and there is no safe way to go on")]
    pub(crate) fn random() -> Self {
        let mut bytes = [0; LEN];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        Self(bytes)
    }

    pub(crate) const fn from_bytes(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }

    /// Reads what [`to_string`](ToString::to_string) wrote: 22 characters of base64url.
    /// Returns `None` for any other text.
    pub fn parse(text: impl AsRef<[u8]>) -> Option<Self> {
        base64url_to_16(text.as_ref()).map(Self)
    }
}

crate::util::fmt::display!(PublicId, |own| &URL_SAFE_NO_PAD.encode(own.0));

/// The error of [`PublicId::from_str`](FromStr::from_str).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicIdError;

crate::util::fmt::text_error!(PublicIdError, "an id must be 22 characters of base64url");

impl FromStr for PublicId {
    type Err = PublicIdError;

    fn from_str(text: &str) -> Result<Self, PublicIdError> {
        Self::parse(text).ok_or(PublicIdError)
    }
}

crate::util::fmt::debug_text!(PublicId, |own| format_args!("{own}"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::secret::Secret;

    #[test]
    fn c108_a_handle_identifies_one_digest_and_does_not_reveal_it() {
        let (one, other) = (Secret::generate().digest(), Secret::generate().digest());
        let handle = PublicId::of_digest(&one);
        assert_eq!(handle, PublicId::of_digest(&one));
        assert_ne!(handle, PublicId::of_digest(&other));
        assert!(!one.as_bytes().windows(4).any(|part| handle.0.windows(4).any(|shown| shown == part)));
        // the last bit of the digest counts too
        let mut flipped = *one.as_bytes();
        flipped[31] ^= 1;
        assert_ne!(handle, PublicId::of_digest(&SecretDigest::from_bytes(flipped)));
    }

    #[test]
    fn c104_random_handles_differ_in_every_bit() {
        let handles: Vec<_> = (0..1000).map(|_| PublicId::random()).collect();
        let mut ones = [0; 128];
        for handle in &handles {
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += u32::from(handle.0[bit / 8] >> (bit % 8) & 1);
            }
        }
        assert!(ones.iter().all(|count| (350..650).contains(count)), "{ones:?}");
    }

    #[test]
    fn only_a_written_handle_can_be_parsed() {
        let handle = PublicId::of_digest(&SecretDigest::of_secret("x"));
        let text = handle.to_string();
        assert_eq!((text.len(), PublicId::parse(&text)), (22, Some(handle)));
        let stray_bits = format!("{}B", "A".repeat(21));
        for bad in ["", "short", &format!("{text}A"), &"=".repeat(22), &text[1..], &stray_bits] {
            assert_eq!(PublicId::parse(bad), None, "{bad:?}");
        }
    }
}
