//! Reading all entries, page by page.

use bytes::Bytes;

use super::{key::Key, record::Entry};

/// The position at which a scan continues. Only the store that returned it can interpret it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ScanCursor(Bytes);

impl ScanCursor {
    /// Creates a cursor of these bytes, whose meaning only the store knows.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes of the cursor.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

// without the bytes, because they may be a key
crate::util::fmt::debug_fields!(ScanCursor, |own| len: own.0.len());

/// Some of the entries of a store, and where to continue. A page can be empty without being the last one.
#[derive(Clone, Debug)]
pub struct ScanPage {
    /// The entries, in no particular order.
    pub entries: Vec<(Key, Entry)>,
    /// The cursor of the next page, or `None` if this is the last one.
    pub next: Option<ScanCursor>,
}

impl ScanPage {
    /// The number of entries that the stores of this crate put on a page, if they can choose.
    pub const USUAL_LEN: usize = 512;

    /// Creates a page of entries in the order of their keys. There is a next page, which begins after the last
    /// entry, unless there are fewer than [`USUAL_LEN`](Self::USUAL_LEN) entries.
    pub fn of_sorted(entries: Vec<(Key, Entry)>) -> Self {
        let last = entries.last().filter(|_| entries.len() >= Self::USUAL_LEN);
        let next = last.map(|(key, _)| ScanCursor::new(Bytes::copy_from_slice(key.as_bytes())));
        Self { entries, next }
    }
}
