//! The file: its layout, and how it is opened.

use std::{
    error::Error,
    fs,
    io::{self, Write},
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction};

use crate::{
    store::{
        error::{StoreError, StoreErrorKind},
        key::Key,
        record::{Entry, Version},
        scan::ScanPage,
    },
    util::clock::UnixTime,
};

/// The version of the layout below. Files with a higher version are rejected.
const FORMAT: u64 = 1;

/// `format` → [`FORMAT`], `writes` → the last assigned version.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("tollgate meta");
/// Key → version and expiry (8 bytes each, little endian), value.
pub(super) const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("tollgate entries");
/// Expiry in nanoseconds (8 bytes, big endian) and key → nothing: the entries sorted by expiry.
pub(super) const BY_EXPIRY: TableDefinition<'_, &[u8], ()> = TableDefinition::new("tollgate entries by expiry");

/// The bytes that an entry takes besides its key, which is stored twice, and its value.
const OVERHEAD: u64 = 64;
/// The room that the disk must have before another write is tried. A commit may need more.
const ROOM: usize = 1 << 20;

/// The open file. After a failed write, the engine refuses everything until the file is opened again.
pub(super) struct OpenFile {
    path: PathBuf,
    cache_bytes: usize,
    /// `None` while it is opened again, and if that failed.
    database: RwLock<Option<Database>>,
}

impl OpenFile {
    /// Opens or creates the file, and verifies every page of it.
    pub(super) fn open(path: &Path, cache_bytes: usize) -> Result<Self, StoreError> {
        // the working directory may change before the file is opened again
        let path = guard(|| Ok(std::path::absolute(path)?))?;
        let database = open_database(&path, cache_bytes).map_err(|error| with_path(&error, &path))?;
        let database = RwLock::new(Some(database));
        Ok(Self { path, cache_bytes, database })
    }

    /// Runs an operation on the database.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, Failed>) -> Result<T, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        match &*database {
            Some(database) => guard(|| work(database)),
            None => Err(StoreError::new(StoreErrorKind::Unavailable, "the file could not be opened again")),
        }
    }

    /// Opens the file again. Its last commit is the one before the failed write. Reads fail meanwhile.
    pub(super) fn reopen(&self) -> Result<(), StoreError> {
        // this releases the lock of the file
        let closed = self.replace(None);
        guard(|| {
            drop(closed);
            Ok(())
        })?;
        let database = guard(|| {
            let database = Database::builder().set_cache_size(self.cache_bytes).open(&self.path)?;
            check_format(&database.begin_read()?)?;
            Ok(database)
        })?;
        self.replace(Some(database));
        Ok(())
    }

    fn replace(&self, database: Option<Database>) -> Option<Database> {
        std::mem::replace(&mut *self.database.write().unwrap_or_else(PoisonError::into_inner), database)
    }

    /// Returns an error if the disk has no room.
    pub(super) fn check_room(&self) -> Result<(), StoreError> {
        guard(|| {
            let (name, mut file) = unfinished(&self.path)?;
            let written = file.write_all(&vec![0; ROOM]).and_then(|()| file.sync_data());
            remove(&name)?;
            Ok(written?)
        })
    }
}

/// Returns the bytes that an entry counts for.
pub(super) fn cost(key: &[u8], value_len: usize) -> u64 {
    (2 * key.len() + value_len) as u64 + OVERHEAD
}

/// Returns the bytes that all entries count for.
pub(super) fn stored_bytes(database: &Database) -> Result<u64, Failed> {
    let entries = database.begin_read()?.open_table(ENTRIES)?;
    entries.iter()?.try_fold(0, |sum, row| {
        let (key, value) = row?;
        Ok(sum + cost(key.value(), value.value().len().saturating_sub(HEADER)))
    })
}

fn open_database(path: &Path, cache_bytes: usize) -> Result<Database, StoreError> {
    guard(|| {
        let is_new = !path.try_exists()?;
        if is_new {
            create_database(path)?;
        }
        let mut database = Database::builder().set_cache_size(cache_bytes).open(path)?;
        // before anything is written to a file that may not be ours
        check_format(&database.begin_read()?)?;
        // pages are verified here, not when they are read
        if !database.check_integrity()? {
            crate::util::trace::warning!("the store file had lost track of its free pages and was repaired");
        }
        check_format(&database.begin_read()?)?;
        if is_new {
            // failing to clean up must not prevent the start
            let _left = remove_unfinished(path);
        }
        Ok(database)
    })
}

/// Adds the path to the cause of an error, which is meant for logs.
fn with_path(error: &StoreError, path: &Path) -> StoreError {
    let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    StoreError::new(error.kind(), format!("{}: {cause}", path.display()))
}

/// Creates a file next to `path` and then moves it there, so that an existing file without content
/// is always a sign of damage.
fn create_database(path: &Path) -> Result<(), Failed> {
    let (unfinished, file) = unfinished(path)?;
    let database = Database::builder().create_file(file)?;
    let transaction = begin_write(&database)?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert("format", FORMAT)?;
        meta.insert("writes", 0)?;
        transaction.open_table(ENTRIES)?;
        transaction.open_table(BY_EXPIRY)?;
    }
    transaction.commit()?;
    drop(database);
    // a link, because a rename would replace the file of a concurrent process
    match fs::hard_link(&unfinished, path) {
        Ok(()) => remove(&unfinished)?,
        // a concurrent process may have removed our file, too
        Err(_) if path.try_exists()? => remove(&unfinished)?,
        Err(_) => fs::rename(&unfinished, path)?,
    }
    Ok(sync_directory(path)?)
}

/// Creates a file next to `path` with a new name. An existing file or link of that name is neither
/// followed nor changed.
fn unfinished(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.{}.new", std::process::id(), NUMBERS.fetch_add(1, Relaxed)));
        let name = PathBuf::from(name);
        match private_file(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return Ok((name, file?)),
        }
    }
}

/// Creates a file that only this user can read.
fn private_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Removes files that were left behind by a crash during creation. The store file is open and
/// therefore locked, so a concurrent creation can't succeed any more.
fn remove_unfinished(path: &Path) -> io::Result<()> {
    let Some(own) = path.file_name() else { return Ok(()) };
    for entry in fs::read_dir(directory_of(path))? {
        let name = entry?.file_name();
        let rest = name.as_encoded_bytes().strip_prefix(own.as_encoded_bytes());
        let middle = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".new"));
        let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let numbers = middle.map(|middle| middle.split(|byte| *byte == b'.'));
        if numbers.is_some_and(|mut numbers| numbers.clone().count() == 2 && numbers.all(is_number)) {
            remove(&directory_of(path).join(name))?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the directory, so that the new name survives a power failure.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { fs::File::open(directory_of(path))?.sync_all() } else { Ok(()) }
}

fn check_format(transaction: &ReadTransaction) -> Result<(), Failed> {
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => return Err(corrupt("the file is not a tollgate store").into()),
        Err(error) => return Err(error.into()),
    };
    match meta.get("format")?.map(|format| format.value()) {
        Some(FORMAT) => {}
        Some(newer) if newer > FORMAT => {
            let text = format!("the file has format {newer}; this version reads up to {FORMAT}");
            return Err(StoreError::new(StoreErrorKind::NewerFormat, text).into());
        }
        _ => return Err(corrupt("the file has no format version").into()),
    }
    transaction.open_table(ENTRIES)?;
    transaction.open_table(BY_EXPIRY)?;
    Ok(())
}

/// Starts a transaction that is durable once committed. It commits in two phases, so that later
/// damage can be distinguished from a commit that was never finished.
pub(super) fn begin_write(database: &Database) -> Result<WriteTransaction, Failed> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(redb::Durability::Immediate)?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

pub(super) fn find(database: &Database, key: &Key) -> Result<Option<Entry>, Failed> {
    let transaction = database.begin_read()?;
    let entries = transaction.open_table(ENTRIES)?;
    entries.get(key.as_bytes())?.map(|found| decode_disk_entry(found.value())).transpose()
}

/// Returns the first entries after this key.
pub(super) fn page(database: &Database, after: &[u8]) -> Result<Vec<(Key, Entry)>, Failed> {
    let entries = database.begin_read()?.open_table(ENTRIES)?;
    let rows = entries.range::<&[u8]>((Bound::Excluded(after), Bound::Unbounded))?.take(ScanPage::USUAL_LEN);
    rows.map(|row| {
        let (key, value) = row?;
        Ok((Key::from_bytes(key.value())?, decode_disk_entry(value.value())?))
    })
    .collect()
}

/// The length of version and expiry in front of a value.
pub(super) const HEADER: usize = 16;

/// The versions of this store are counted, so their upper half is zero.
pub(super) fn encode_disk_entry(version: Version, expires_at: UnixTime, value: &[u8]) -> Vec<u8> {
    [&(version.as_u128() as u64).to_le_bytes(), &expires_at.as_nanos().to_le_bytes(), value].concat()
}

pub(super) fn decode_disk_entry(bytes: &[u8]) -> Result<Entry, Failed> {
    let parts = bytes.split_first_chunk().and_then(|(version, rest)| Some((version, rest.split_first_chunk()?)));
    let Some((version, (expires_at, value))) = parts else {
        return Err(corrupt("an entry has no header").into());
    };
    Ok(Entry {
        value: Bytes::copy_from_slice(value),
        version: Version::from_u64(u64::from_le_bytes(*version)),
        expires_at: UnixTime::from_nanos(u64::from_le_bytes(*expires_at)),
    })
}

pub(super) fn expiry_key(expires_at: UnixTime, key: &[u8]) -> Vec<u8> {
    [&expires_at.as_nanos().to_be_bytes(), key].concat()
}

/// Runs an operation and converts a panic to an error, because the engine may panic if the file is
/// damaged.
pub(super) fn guard<T>(work: impl FnOnce() -> Result<T, Failed>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|Failed(error)| error),
        Err(_) => Err(corrupt("the storage engine panicked")),
    }
}

pub(super) fn corrupt(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, what)
}

/// An error of this module. It allows `?` on errors of the engine without exposing them in
/// signatures.
#[derive(Debug)]
pub(super) struct Failed(pub(super) StoreError);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

impl<E: Into<redb::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        use redb::Error as E;
        let error = error.into();
        let kind = match &error {
            E::DatabaseAlreadyOpen => StoreErrorKind::Locked,
            E::UpgradeRequired(_) => StoreErrorKind::NewerFormat,
            E::Io(error) => match error.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => StoreErrorKind::Corrupt,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    StoreErrorKind::Full
                }
                _ => StoreErrorKind::Unavailable,
            },
            E::PreviousIo | E::DatabaseClosed => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Corrupt,
        };
        Self(StoreError::new(kind, Box::new(error) as Box<dyn Error + Send + Sync>))
    }
}
