//! A cache of verified tokens, so that signatures are not checked again for each request.

use std::sync::{Arc, Mutex};

use super::token::AccessToken;
use crate::{
    jose::KeySet,
    util::{lock::lock, secret::SecretDigest},
};

/// The associativity of the cache.
const WAYS: usize = 4;

/// A set-associative cache of tokens by digest. A new token evicts the token of its set that
/// expires first.
///
/// Only tokens with a valid signature are stored, so callers can neither fill the cache nor choose
/// positions in it. Each set has its own lock, which is held only to compare a few digests.
pub(super) struct VerifiedTokens {
    sets: Box<[Mutex<[Option<VerifiedToken>; WAYS]>]>,
}

#[derive(Clone)]
struct VerifiedToken {
    digest: SecretDigest,
    token: AccessToken,
    /// The keys that verified it.
    keys: Arc<KeySet>,
}

impl VerifiedTokens {
    /// The maximum capacity.
    pub(super) const MOST: usize = 1 << 20;

    /// Creates a cache with about this capacity.
    pub(super) fn new(tokens: usize) -> Self {
        Self { sets: (0..tokens.min(Self::MOST).div_ceil(WAYS)).map(|_| Mutex::default()).collect() }
    }

    /// Returns the token with this digest, if it was verified with these keys.
    pub(super) fn get(&self, digest: &SecretDigest, keys: &Arc<KeySet>) -> Option<AccessToken> {
        let set = lock(self.set(digest)?);
        let known = set.iter().flatten().find(|known| known.digest.matches(digest))?;
        Arc::ptr_eq(&known.keys, keys).then(|| known.token.clone())
    }

    pub(super) fn put(&self, digest: SecretDigest, token: AccessToken, keys: Arc<KeySet>) {
        let Some(set) = self.set(&digest) else { return };
        let mut set = lock(set);
        let place = |known: &Option<VerifiedToken>| match known {
            Some(known) if known.digest.matches(&digest) => (0, 0),
            None => (1, 0),
            Some(known) => (2, known.token.claims().exp),
        };
        if let Some(oldest) = set.iter_mut().min_by_key(|known| place(known)) {
            *oldest = Some(VerifiedToken { digest, token, keys });
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.lock().unwrap().iter().flatten().count()).sum()
    }

    /// Returns the set for this digest. Returns `None` if the capacity is zero.
    fn set(&self, digest: &SecretDigest) -> Option<&Mutex<[Option<VerifiedToken>; WAYS]>> {
        let number = digest.as_bytes().first_chunk().copied().map(usize::from_le_bytes)?;
        self.sets.get(number.checked_rem(self.sets.len())?)
    }
}
