//! [`VerifiedTokens`]: tokens whose signature was good, so that it is not worked out again at each request.

use std::sync::{Arc, Mutex, PoisonError};

use super::token::AccessToken;
use crate::{jose::KeySet, util::secret::Digest};

/// Tokens that may stand in each other's place.
const WAYS: usize = 4;

/// Tokens by their digest, in places that are fixed by it: what comes new takes the place of that which ends first.
///
/// Only tokens whose signature is good get here, so nobody can fill it with what he makes up, nor choose the places. Each
/// few places have a lock of their own, held while as many digests are compared.
pub(super) struct VerifiedTokens {
    sets: Box<[Mutex<[Option<VerifiedToken>; WAYS]>]>,
}

#[derive(Clone)]
struct VerifiedToken {
    digest: Digest,
    token: AccessToken,
    /// By which keys it was good.
    keys: Arc<KeySet>,
}

impl VerifiedTokens {
    /// The most tokens that may be asked for.
    pub(super) const MOST: usize = 1 << 20;

    /// A cache of about this many tokens.
    pub(super) fn new(tokens: usize) -> Self {
        Self { sets: (0..tokens.min(Self::MOST).div_ceil(WAYS)).map(|_| Mutex::default()).collect() }
    }

    /// The token of this digest, if it was good by these keys.
    pub(super) fn get(&self, digest: &Digest, keys: &Arc<KeySet>) -> Option<AccessToken> {
        let set = self.set(digest)?.lock().unwrap_or_else(PoisonError::into_inner);
        let known = set.iter().flatten().find(|known| known.digest.matches(digest))?;
        Arc::ptr_eq(&known.keys, keys).then(|| known.token.clone())
    }

    pub(super) fn put(&self, digest: Digest, token: AccessToken, keys: Arc<KeySet>) {
        let Some(set) = self.set(&digest) else { return };
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The places where a token of this digest may stand; none where nothing is remembered.
    fn set(&self, digest: &Digest) -> Option<&Mutex<[Option<VerifiedToken>; WAYS]>> {
        let number = digest.as_bytes().first_chunk().copied().map(usize::from_le_bytes)?;
        self.sets.get(number.checked_rem(self.sets.len())?)
    }
}
