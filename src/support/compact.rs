//! Compact bytes of stored values.
//!
//! Numbers are little-endian. A text or a list follows its length in two bytes. An empty text means that there is no
//! value.

use crate::store::{StoreError, StoreErrorKind};

/// Writes the bytes of a value.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// Begins with the kind of the value.
    pub(crate) fn new(kind: u8, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(kind);
        Self(bytes)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    /// Writes bytes whose length is fixed.
    pub(crate) fn bytes<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.0.extend(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), StoreError> {
        self.len(text.len())?;
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }

    pub(crate) fn optional_text(&mut self, text: Option<&str>) -> Result<(), StoreError> {
        self.text(text.unwrap_or_default())
    }

    /// Writes each item of a list.
    pub(crate) fn list<T>(
        &mut self,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.len(items.len())?;
        items.iter().try_for_each(|item| write(self, item))
    }

    fn len(&mut self, len: usize) -> Result<(), StoreError> {
        self.0.extend(u16::try_from(len).map_err(|_| StoreErrorKind::TooLarge)?.to_le_bytes());
        Ok(())
    }
}

/// The bytes of a value that were not read yet.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a whole value of this kind. Returns `None` unless all bytes are used.
    pub(crate) fn read_whole_value<T>(
        kind: u8,
        bytes: &'a [u8],
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let mut reader = Self(bytes.strip_prefix(&[kind])?);
        read(&mut reader).filter(|_| reader.0.is_empty())
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| *byte)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.bytes().map(|bytes| u64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let len = self.len()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn optional_text(&mut self) -> Option<Option<&'a str>> {
        Some(Some(self.text()?).filter(|text| !text.is_empty()))
    }

    /// Reads each item of a list.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.len()?).map(|_| read(self)).collect()
    }

    fn len(&mut self) -> Option<usize> {
        self.bytes().map(|bytes| usize::from(u16::from_le_bytes(*bytes)))
    }
}
