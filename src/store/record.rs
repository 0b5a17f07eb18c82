use std::{fmt, time::Duration};

use bytes::Bytes;

use super::error::{StoreError, StoreErrorKind};
use crate::util::clock::UnixTime;

/// What is written: a value and when it expires.
#[derive(Clone)]
pub struct Record {
    value: Bytes,
    written_at: UnixTime,
    expires_at: UnixTime,
}

impl Record {
    /// The most bytes that a value may have: 64 KiB.
    pub const MAX_VALUE: usize = 64 * 1024;

    /// A value written at `written_at` (now) that lives until just before
    /// `expires_at`.
    pub fn new(value: impl Into<Bytes>, written_at: UnixTime, expires_at: UnixTime) -> Result<Self, StoreError> {
        let value = value.into();
        if value.len() > Self::MAX_VALUE {
            return Err(StoreErrorKind::TooLarge.into());
        }
        Ok(Self { value, written_at, expires_at })
    }

    /// The value.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// Now, as the writer sees it: what an engine may collect garbage by. It
    /// need not be kept.
    pub fn written_at(&self) -> UnixTime {
        self.written_at
    }

    /// The first moment at which the value is no more.
    pub fn expires_at(&self) -> UnixTime {
        self.expires_at
    }

    /// How long the value lives: what an engine with a clock of its own may
    /// collect garbage by.
    pub fn time_to_live(&self) -> Duration {
        Duration::from_nanos(self.expires_at.as_nanos().saturating_sub(self.written_at.as_nanos()))
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("len", &self.value.len()).field("expires_at", &self.expires_at).finish()
    }
}

/// What is read: a value, its version and when it expires.
///
/// An engine may still hold it after `expires_at`: who reads checks that.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value, whole as it was written.
    pub value: Bytes,
    /// Changes with every write of the key and never comes back.
    pub version: Version,
    /// The first moment at which the value is no more.
    pub expires_at: UnixTime,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("len", &self.value.len())
            .field("version", &self.version)
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// Tells one write of a key from every other write of it, also across
/// deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    /// The version of this number.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// How a conditional write ended. Losing a race is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriteOutcome<E = Entry> {
    /// It is written, and this is its version.
    Done(Version),
    /// Nothing is written; this is what stands there instead, if anything.
    Lost(Option<E>),
}
