//! Public names for things that are found by a secret.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::util::secret::Digest;

const LEN: usize = 16;

/// A public identifier for something that is found by a [`Digest`], such as a session.
///
/// It may be shown, logged and sent in URLs. It is a hash of the digest, which is itself a hash of
/// the secret, so it reveals neither. A handle alone gives no access to anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle([u8; LEN]);

impl Handle {
    /// Returns the handle that belongs to this digest.
    pub fn of(digest: &Digest) -> Self {
        let hash = Digest::of([b"tollgate handle:", &digest.as_bytes()[..]].concat());
        // the default is never used: the hash has 32 bytes
        Self(hash.as_bytes().first_chunk().copied().unwrap_or_default())
    }

    #[cfg(feature = "tokens")]
    pub(crate) const fn from_bytes(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    #[cfg(feature = "tokens")]
    pub(crate) const fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }

    /// Parses the output of [`to_string`](ToString::to_string): 22 characters of base64url. Returns
    /// `None` for anything else.
    pub fn parse(text: impl AsRef<[u8]>) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// The error of parsing a [`Handle`] with [`FromStr`](std::str::FromStr).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleError;

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a handle must be 22 characters of base64url")
    }
}

impl std::error::Error for HandleError {}

impl FromStr for Handle {
    type Err = HandleError;

    fn from_str(text: &str) -> Result<Self, HandleError> {
        Self::parse(text).ok_or(HandleError)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::secret::Secret;

    #[test]
    fn c108_a_handle_identifies_one_digest_and_does_not_reveal_it() {
        let (one, other) = (Secret::generate().digest(), Secret::generate().digest());
        let handle = Handle::of(&one);
        assert_eq!(handle, Handle::of(&one));
        assert_ne!(handle, Handle::of(&other));
        assert!(!one.as_bytes().windows(4).any(|part| handle.0.windows(4).any(|shown| shown == part)));
        // the last bit of the digest counts too
        let mut flipped = *one.as_bytes();
        flipped[31] ^= 1;
        assert_ne!(handle, Handle::of(&Digest::from_bytes(flipped)));
    }

    #[test]
    fn only_handles_can_be_parsed() {
        let handle = Handle::of(&Digest::of("x"));
        let text = handle.to_string();
        assert_eq!((text.len(), Handle::parse(&text)), (22, Some(handle)));
        for bad in ["", "short", &format!("{text}A"), &"=".repeat(22), &text[1..]] {
            assert_eq!(Handle::parse(bad), None, "{bad:?}");
        }
    }
}
