//! The bytes of stored rows.
//!
//! A row begins with a byte for its kind. Numbers are little-endian. A text or a list follows its length in two bytes.
//! [`row_struct`] and [`row_enum`] describe the parts of a row once, for writing and for reading.

use std::{convert::identity, sync::Arc};

use super::error::{StoreError, StoreErrorKind};
use crate::{
    tenant::Tenant,
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// A value that is a part of rows.
pub(crate) trait RowPart: Sized {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError>;

    /// Returns `None` if the row is malformed.
    fn read_part(reader: &mut Reader<'_>) -> Option<Self>;

    /// Does the same without keeping the value.
    fn check_part(reader: &mut Reader<'_>) -> Option<()> {
        Self::read_part(reader).map(drop)
    }
}

/// Checks a field of a struct.
pub(crate) fn check_field<S, T: RowPart>(_: impl Fn(&S) -> &T, reader: &mut Reader<'_>) -> Option<()> {
    T::check_part(reader)
}

/// Makes a struct a part of rows: its fields in this order.
macro_rules! row_struct {
    ($name:ident($field:ident)) => {
        impl $crate::store::compact::RowPart for $name {
            fn write_part(&self, writer: &mut $crate::store::compact::Writer) -> Result<(), $crate::store::StoreError> {
                let Self($field) = self;
                $field.write_part(writer)
            }

            fn read_part(reader: &mut $crate::store::compact::Reader<'_>) -> Option<Self> {
                $crate::store::compact::RowPart::read_part(reader).map(Self)
            }
        }
    };
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::store::compact::RowPart for $name {
            fn write_part(&self, writer: &mut $crate::store::compact::Writer) -> Result<(), $crate::store::StoreError> {
                let Self { $($field),+ } = self;
                $($crate::store::compact::RowPart::write_part($field, writer)?;)+
                Ok(())
            }

            fn read_part(reader: &mut $crate::store::compact::Reader<'_>) -> Option<Self> {
                // evaluated in this order
                Some(Self { $($field: $crate::store::compact::RowPart::read_part(reader)?),+ })
            }

            fn check_part(reader: &mut $crate::store::compact::Reader<'_>) -> Option<()> {
                $($crate::store::compact::check_field(|own: &Self| &own.$field, reader)?;)+
                Some(())
            }
        }
    };
}
pub(crate) use row_struct;

/// Makes an enum a part of rows: a number for the variant, and its value. Numbers are never reused with another meaning.
macro_rules! row_enum {
    ($name:ident { $($number:literal => $variant:ident $(($value:ty))?),+ $(,)? }) => {
        impl $crate::store::compact::RowPart for $name {
            fn write_part(&self, writer: &mut $crate::store::compact::Writer) -> Result<(), $crate::store::StoreError> {
                match self {
                    $(row_enum!(@variant $variant value $($value)?) => {
                        writer.byte($number);
                        $(<$value as $crate::store::compact::RowPart>::write_part(value, writer)?;)?
                    })+
                }
                Ok(())
            }

            fn read_part(reader: &mut $crate::store::compact::Reader<'_>) -> Option<Self> {
                match reader.byte()? {
                    $($number => Some(Self::$variant $((<$value as $crate::store::compact::RowPart>::read_part(reader)?))?),)+
                    _ => None,
                }
            }
        }
    };
    (@variant $variant:ident $binding:ident) => { Self::$variant };
    (@variant $variant:ident $binding:ident $value:ty) => { Self::$variant($binding) };
}
pub(crate) use row_enum;

/// Makes types with a text a part of rows: the method that returns the text, and a function that reads it. A second one
/// can check it without keeping it.
macro_rules! row_text {
    ($($name:ty: $as_text:ident, $read:expr $(, $check:expr)?;)+) => {$(
        impl $crate::store::compact::RowPart for $name {
            fn write_part(&self, writer: &mut $crate::store::compact::Writer) -> Result<(), $crate::store::StoreError> {
                writer.text(self.$as_text().as_ref())
            }

            fn read_part(reader: &mut $crate::store::compact::Reader<'_>) -> Option<Self> {
                $crate::store::compact::read_with(reader, $read)
            }

            $(fn check_part(reader: &mut $crate::store::compact::Reader<'_>) -> Option<()> {
                $crate::store::compact::read_with(reader, $check)
            })?
        }
    )+};
}
pub(crate) use row_text;

/// Lets the compiler know what a closure reads from.
pub(crate) fn read_with<'r, T>(reader: &mut Reader<'r>, read: impl FnOnce(&mut Reader<'r>) -> Option<T>) -> Option<T> {
    read(reader)
}

/// Makes a [`RowPart`] a row of this kind. A number is never used again with another meaning.
macro_rules! stored_row {
    ($name:ty, $kind:literal, $error:literal) => {
        impl $crate::store::table::Value for $name {
            fn encode_row(&self) -> Result<Vec<u8>, $crate::store::StoreError> {
                $crate::store::compact::encode_row($kind, self)
            }

            fn decode_row(bytes: &[u8]) -> Result<Self, $crate::store::StoreError> {
                use $crate::store::{
                    StoreError, StoreErrorKind,
                    compact::{Reader, RowPart},
                };
                let row = Reader::read_whole_value($kind, bytes, RowPart::read_part);
                row.ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, $error))
            }
        }
    };
}
pub(crate) use stored_row;

/// Returns the bytes of a row of this kind.
pub(crate) fn encode_row<T: RowPart>(kind: u8, row: &T) -> Result<Vec<u8>, StoreError> {
    // about as long as the row
    let mut writer = Writer::new(kind, size_of::<T>());
    row.write_part(&mut writer)?;
    Ok(writer.into_bytes())
}

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

    /// Writes bytes whose length is fixed.
    pub(crate) fn bytes<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.0.extend(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), StoreError> {
        self.len(text.len())?;
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn len(&mut self, len: usize) -> Result<(), StoreError> {
        self.0.extend(u16::try_from(len).map_err(|_| StoreErrorKind::TooLarge)?.to_le_bytes());
        Ok(())
    }
}

/// The bytes of a value that were not read yet.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads a whole value of this kind. Returns `None` unless all bytes are used.
    pub(crate) fn read_whole_value<T>(
        kind: u8,
        bytes: &'a [u8],
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let mut reader = Self(bytes.strip_prefix(&[kind])?);
        read(&mut reader).filter(|_| reader.0.is_empty())
    }

    /// Returns the bytes that were not read yet.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| *byte)
    }

    #[inline]
    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.sized_bytes()?).ok()
    }

    /// Reads the bytes of a text, for types that check them.
    pub(crate) fn sized_bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.len()?;
        self.split(len)
    }

    fn len(&mut self) -> Option<usize> {
        self.bytes().map(|bytes| usize::from(u16::from_le_bytes(*bytes)))
    }

    #[inline]
    fn split(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// Makes numbers and types with bytes of a fixed length a part of rows.
macro_rules! row_bytes {
    ($($name:ty: $write:expr, $read:expr;)+) => {$(
        impl RowPart for $name {
            fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
                writer.bytes(&$write(*self));
                Ok(())
            }

            fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
                reader.bytes().copied().map($read)
            }
        }
    )+};
}

row_bytes! {
    u8: u8::to_le_bytes, u8::from_le_bytes;
    u16: u16::to_le_bytes, u16::from_le_bytes;
    u32: u32::to_le_bytes, u32::from_le_bytes;
    u64: u64::to_le_bytes, u64::from_le_bytes;
    [u8; 32]: identity, identity;
    PublicId: |id: PublicId| *id.as_bytes(), PublicId::from_bytes;
    UnixTime: |time: UnixTime| time.as_nanos().to_le_bytes(), |bytes| UnixTime::from_nanos(u64::from_le_bytes(bytes));
    SecretDigest: |digest: SecretDigest| *digest.as_bytes(), SecretDigest::from_bytes;
}

row_text! {
    String: as_str, |reader| reader.text().map(str::to_owned);
    Box<str>: as_ref, |reader| reader.text().map(Box::from), |reader| reader.text().map(drop);
    Tenant: as_str, |reader| Tenant::parse(reader.sized_bytes()?).ok();
}

impl RowPart for bool {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        u8::from(*self).write_part(writer)
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        reader.byte().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }
}

/// Eight bytes on every machine.
impl RowPart for usize {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        u64::try_from(*self).unwrap_or(u64::MAX).write_part(writer)
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        u64::read_part(reader)?.try_into().ok()
    }
}

impl<T: RowPart> RowPart for Arc<T> {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        (**self).write_part(writer)
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        T::read_part(reader).map(Self::new)
    }
}

impl<T: RowPart> RowPart for Vec<T> {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        writer.len(self.len())?;
        self.iter().try_for_each(|item| item.write_part(writer))
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        (0..reader.len()?).map(|_| T::read_part(reader)).collect()
    }

    fn check_part(reader: &mut Reader<'_>) -> Option<()> {
        (0..reader.len()?).try_for_each(|_| T::check_part(reader))
    }
}

impl<A: RowPart, B: RowPart> RowPart for (A, B) {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        self.0.write_part(writer)?;
        self.1.write_part(writer)
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        Some((A::read_part(reader)?, B::read_part(reader)?))
    }
}

/// A byte that tells whether there is a value, and the value.
impl<T: RowPart> RowPart for Option<T> {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        self.is_some().write_part(writer)?;
        self.as_ref().map_or(Ok(()), |value| value.write_part(writer))
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        if bool::read_part(reader)? { T::read_part(reader).map(Some) } else { Some(None) }
    }

    fn check_part(reader: &mut Reader<'_>) -> Option<()> {
        if bool::read_part(reader)? { T::check_part(reader) } else { Some(()) }
    }
}
