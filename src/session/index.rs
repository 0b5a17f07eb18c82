//! Which sessions a user has: one row for each user.

use serde::{Deserialize, Serialize};

use crate::util::{clock::UnixTime, secret::Digest};

/// The most sessions that a user has at once.
pub(super) const MOST: usize = 100;

/// The sessions of a user, oldest secret first.
///
/// What lives is in it, always: it is written before a session begins and after
/// one has ended. So it may also name sessions that have ended, or never began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Index(Vec<Listed>);

/// A session by its digest, and its absolute end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Listed {
    #[serde(with = "crate::util::secret::text")]
    pub(super) digest: Digest,
    expires: u64,
}

impl Listed {
    pub(super) fn new(digest: Digest, expires: UnixTime) -> Self {
        Self { digest, expires: expires.as_nanos() }
    }

    pub(super) fn expires(&self) -> UnixTime {
        UnixTime::from_nanos(self.expires)
    }
}

impl Index {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Listed> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.0.iter().any(|listed| listed.digest.matches(digest))
    }

    /// Without those that have expired.
    pub(super) fn living(mut self, now: UnixTime) -> Self {
        self.0.retain(|listed| now < listed.expires());
        self
    }

    /// With one more, and without the oldest beyond the bound.
    pub(super) fn with(mut self, new: Listed) -> Self {
        self.0.push(new);
        let beyond = self.0.len().saturating_sub(MOST);
        self.0.drain(..beyond);
        self
    }

    /// With a new secret in the place of an old one, if that is there.
    pub(super) fn replaced(mut self, old: &Digest, new: Listed) -> Option<Self> {
        let place = self.0.iter_mut().find(|listed| listed.digest.matches(old))?;
        *place = new;
        Some(self)
    }

    /// Only those of which `keep` is true.
    pub(super) fn only(mut self, keep: impl FnMut(&Listed) -> bool) -> Self {
        self.0.retain(keep);
        self
    }

    /// Those that `other` does not have.
    pub(super) fn without(&self, other: &Self) -> Vec<Listed> {
        self.0.iter().filter(|listed| !other.has(&listed.digest)).cloned().collect()
    }

    /// When the last of them has expired; now, if there is none.
    pub(super) fn expires(&self, now: UnixTime) -> UnixTime {
        self.0.iter().map(Listed::expires).fold(now, UnixTime::max)
    }
}
