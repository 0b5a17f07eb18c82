//! How operations and entries of a store are written as columns.

use tollgate::{
    clock::UnixTime,
    store::{Entry, Expected, Key, Operation, Record, ScanPage, StoreError, StoreErrorKind, Version},
};

/// A kind of operation. The function `tollgate_run` uses the same numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read = 0,
    WriteAbsent = 1,
    WriteVersion = 2,
    WriteExpired = 3,
    Take = 4,
}

/// An operation as columns.
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) key: Vec<u8>,
    pub(crate) version: i64,
    pub(crate) expires: i64,
    pub(crate) lifetime: i64,
    pub(crate) value: Vec<u8>,
}

impl Call {
    pub(crate) fn take(key: &Key) -> Self {
        Self::without_record(Kind::Take, key)
    }

    /// Returns an error for a state that this version does not know.
    pub(crate) fn write(key: &Key, expected: Expected, record: &Record) -> Result<Self, StoreError> {
        let (kind, version) = match expected {
            Expected::Absent => (Kind::WriteAbsent, None),
            Expected::Version(version) => (Kind::WriteVersion, Some(version)),
            Expected::Expired(version) => (Kind::WriteExpired, Some(version)),
            _ => return Err(StoreErrorKind::NotOffered.into()),
        };
        Ok(Self {
            kind,
            key: key.as_bytes().to_vec(),
            version: version.map_or(NO_VERSION, version_column),
            expires: record.expires_at().as_nanos().cast_signed(),
            lifetime: i64::try_from(record.time_to_live().as_millis()).unwrap_or(i64::MAX),
            value: record.value().to_vec(),
        })
    }

    fn without_record(kind: Kind, key: &Key) -> Self {
        Self { kind, key: key.as_bytes().to_vec(), version: NO_VERSION, expires: 0, lifetime: 0, value: Vec::new() }
    }

    pub(crate) fn is_read(&self) -> bool {
        self.kind == Kind::Read
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, Kind::WriteAbsent | Kind::WriteVersion | Kind::WriteExpired)
    }
}

/// Fails for an operation that this version does not know.
impl TryFrom<&Operation> for Call {
    type Error = StoreError;

    fn try_from(operation: &Operation) -> Result<Self, StoreError> {
        match operation {
            Operation::Read(key) => Ok(Self::without_record(Kind::Read, key)),
            Operation::Write(key, expected, record) => Self::write(key, *expected, record),
            _ => Err(StoreErrorKind::NotOffered.into()),
        }
    }
}

/// No row has this version, because they count from 1.
const NO_VERSION: i64 = -1;

fn version_column(version: Version) -> i64 {
    i64::try_from(version.as_u128()).unwrap_or(NO_VERSION)
}

pub(crate) fn version(column: i64) -> Version {
    Version::from_u64(column.cast_unsigned())
}

/// A row as it is selected: version, expiry and value.
pub(crate) type Row = (i64, i64, Vec<u8>);

/// Selects the first rows after a key.
pub(crate) const SCAN: &str =
    "select key, version, expires, value from tollgate_rows where key > $1 order by key limit $2";

/// A row that [`SCAN`] selects: key, version, expiry and value.
pub(crate) type ScannedRow = (Vec<u8>, i64, i64, Vec<u8>);

pub(crate) fn page(rows: Vec<ScannedRow>) -> Result<ScanPage, StoreError> {
    let entries = rows
        .into_iter()
        .map(|(key, number, expires, value)| Ok((Key::from_bytes(&key)?, entry((number, expires, value)))));
    Ok(ScanPage::of_sorted(entries.collect::<Result<_, StoreError>>()?))
}

/// Selects a row, or none, with the epoch.
pub(crate) const READ: &str =
    "select e.began, r.version, r.expires, r.value from tollgate_epoch e left join tollgate_rows r on r.key = $1";

/// What [`READ`] selects.
pub(crate) type ReadRow = (i64, Option<i64>, Option<i64>, Option<Vec<u8>>);

/// What a call returns, with the epoch.
pub(crate) struct InEpoch<T> {
    pub(crate) epoch: i64,
    pub(crate) value: T,
}

pub(crate) fn read((epoch, number, expires, value): ReadRow) -> InEpoch<Option<Entry>> {
    InEpoch { epoch, value: found(number, expires, value) }
}

/// Returns the entry of columns that are null if there is none.
pub(crate) fn found(number: Option<i64>, expires: Option<i64>, value: Option<Vec<u8>>) -> Option<Entry> {
    number.zip(expires).zip(value).map(|((number, expires), value)| entry((number, expires, value)))
}

pub(crate) fn entry((number, expires, value): Row) -> Entry {
    Entry { value: value.into(), version: version(number), expires_at: UnixTime::from_nanos(expires.cast_unsigned()) }
}
