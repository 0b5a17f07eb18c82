use std::time::Duration;

use bytes::Bytes;

use super::{
    error::{StoreError, StoreErrorKind},
    key::Key,
};
use crate::util::clock::UnixTime;

/// A value to write, with its expiry.
#[derive(Clone)]
pub struct Record {
    value: Bytes,
    written_at: UnixTime,
    expires_at: UnixTime,
}

impl Record {
    /// The maximum length of a value in bytes: 64 KiB.
    pub const MAX_VALUE: usize = 64 * 1024;

    /// Creates a record that is written now, at `written_at`, and expires at `expires_at`.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`StoreErrorKind::TooLarge`] if the value is too long.
    pub fn new(value: impl Into<Bytes>, written_at: UnixTime, expires_at: UnixTime) -> Result<Self, StoreError> {
        let value = value.into();
        if value.len() > Self::MAX_VALUE {
            return Err(StoreErrorKind::TooLarge.into());
        }
        Ok(Self { value, written_at, expires_at })
    }

    /// Returns the value.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// Returns the current time of the writer, by which a store may remove expired entries. It need
    /// not be stored.
    pub fn written_at(&self) -> UnixTime {
        self.written_at
    }

    /// Returns when the value expires: the first moment at which it is no longer valid.
    pub fn expires_at(&self) -> UnixTime {
        self.expires_at
    }

    /// Returns the lifetime of the value, for stores that expire entries by their own clock.
    pub fn time_to_live(&self) -> Duration {
        Duration::from_nanos(self.expires_at.as_nanos().saturating_sub(self.written_at.as_nanos()))
    }
}

crate::util::fmt::debug_fields!(Record, |own| len: own.value.len(), expires_at: own.expires_at);

/// An entry of a store.
///
/// A store may return entries that have expired. Readers must check `expires_at`.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value as it was written.
    pub value: Bytes,
    /// The version, which is different for every write of the key.
    pub version: Version,
    /// The first moment at which the value is no longer valid.
    pub expires_at: UnixTime,
}

/// An entry that is still in its store.
#[derive(Clone, Copy)]
pub(crate) struct EntryView<'a> {
    pub(super) value: &'a [u8],
    pub(super) version: Version,
    pub(super) expires_at: UnixTime,
}

impl EntryView<'_> {
    pub(super) fn to_entry(self) -> Entry {
        let Self { value, version, expires_at } = self;
        Entry { value: Bytes::copy_from_slice(value), version, expires_at }
    }
}

impl Entry {
    pub(super) fn as_entry_view(&self) -> EntryView<'_> {
        EntryView { value: &self.value, version: self.version, expires_at: self.expires_at }
    }
}

crate::util::fmt::debug_fields!(Entry, |own| len: own.value.len(), version: own.version, expires_at: own.expires_at);

/// Identifies a write of a key, even across deletions. A store counts its writes, or draws 128 random bits for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u128);

impl Version {
    /// Creates the version with this number.
    pub const fn from_u64(number: u64) -> Self {
        Self(number as u128)
    }

    /// Creates the version with this number.
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// Returns the number of the version.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

/// One of several operations that a store executes in one call: see [`Store::run`](super::Store::run).
///
/// A later version can add operations. If a store does not know an operation of a call, it executes none of them, and
/// returns an error of the kind [`StoreErrorKind::NotOffered`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Reads the entry of a key.
    Read(Key),
    /// Writes an entry if the key is in this state.
    Write(Key, Expected, Record),
}

/// The state of a key that a write of an [`Operation`] needs.
///
/// A later version can add states. If a store does not know a state in a call, it executes none of the operations, and
/// returns an error of the kind [`StoreErrorKind::NotOffered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// It has no entry.
    Absent,
    /// It has an entry of this version.
    Version(Version),
    /// It has an expired entry of this version, or none, because the store may remove the entry at any time.
    Expired(Version),
}

impl Expected {
    /// Returns whether a key is in this state, given the version of its entry.
    pub fn is_met_by(self, found: Option<Version>) -> bool {
        match (self, found) {
            (Self::Absent, found) => found.is_none(),
            (Self::Expired(_), None) => true,
            (Self::Version(own) | Self::Expired(own), found) => found == Some(own),
        }
    }
}

impl From<Option<Version>> for Expected {
    fn from(version: Option<Version>) -> Self {
        version.map_or(Self::Absent, Self::Version)
    }
}

/// The outcome of an [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum OperationOutcome {
    /// The entry of a key, if there is one.
    Read(Option<Entry>),
    /// Whether an entry was written.
    Write(WriteOutcome),
}

/// The outcome of a conditional write. Losing a race is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriteOutcome<E = Entry> {
    /// The value was written with this version.
    Done(Version),
    /// Nothing was written. Contains the current entry, if there is one.
    Lost(Option<E>),
}
