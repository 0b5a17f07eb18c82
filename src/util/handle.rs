//! [`Handle`]: what a log or a page shows in place of a secret.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::util::secret::Digest;

const LEN: usize = 16;

/// A short name of something that is found by a [`Digest`], such as a session.
///
/// It may be shown, logged and sent in a URL: it is a hash of the digest, which
/// is a hash of the secret, and neither can be had from it. Nothing is looked up
/// by it alone, so who knows one can do nothing with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle([u8; LEN]);

impl Handle {
    /// The handle of what has this digest.
    pub fn of(digest: &Digest) -> Self {
        let hash = Digest::of([b"tollgate handle:", &digest.as_bytes()[..]].concat());
        // never the default: a digest has 32 bytes
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

    /// Reads what [`to_string`](ToString::to_string) wrote: 22 characters of
    /// base64url. `None` for all else.
    pub fn parse(text: impl AsRef<[u8]>) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// What [`parse`](Handle::parse) refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleError;

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a handle is 22 characters of base64url")
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
    fn c108_a_handle_names_one_digest_and_shows_nothing_of_it() {
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
    fn a_handle_reads_back_and_nothing_else_does() {
        let handle = Handle::of(&Digest::of("x"));
        let text = handle.to_string();
        assert_eq!((text.len(), Handle::parse(&text)), (22, Some(handle)));
        for bad in ["", "short", &format!("{text}A"), &"=".repeat(22), &text[1..]] {
            assert_eq!(Handle::parse(bad), None, "{bad:?}");
        }
    }
}
