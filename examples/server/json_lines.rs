//! A sink that appends events to a file, for `--event-log`.

use std::{
    ffi::OsString,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use tollgate::event::{Event, Sink};

use crate::whole_lines::WholeLines;

/// Appends each event as a line of JSON to a file, which is rotated by size.
///
/// Before a line would make `log.jsonl` larger than its maximum, the file is renamed to `log.jsonl.1`, the previous
/// `log.jsonl.1` to `log.jsonl.2`, and so on. After a restart, writing continues at the end of the file. While the disk
/// fails, events wait in the log and are offered again.
pub(crate) struct JsonLines {
    path: PathBuf,
    /// The maximum size of a file in bytes. A single longer line still gets a file to itself.
    rotate_at: u64,
    /// How many old files are kept.
    keep: u32,
    file: Option<WholeLines>,
}

impl JsonLines {
    /// Opens a file to append to, and creates it if it does not exist. `rotate_at` is its maximum size in bytes, and
    /// `keep` the number of old files.
    pub(crate) fn open(path: impl Into<PathBuf>, rotate_at: u64, keep: u32) -> Result<Self, String> {
        let mut sink = Self { path: path.into(), rotate_at, keep, file: None };
        match sink.file() {
            Ok(_) => Ok(sink),
            Err(error) => Err(format!("the event log {} can't be used: {}", sink.path.display(), reason(&error))),
        }
    }

    fn file(&mut self) -> io::Result<&mut WholeLines> {
        if self.file.is_none() {
            self.file = Some(WholeLines::open(&self.path)?);
        }
        self.file.as_mut().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file()?.append(lines)
    }

    fn rotate(&mut self) -> io::Result<()> {
        // stop at the first unused number, so that a rotation that failed halfway can be repeated
        let free = (1..self.keep).find(|number| !self.numbered(*number).exists()).unwrap_or(self.keep);
        for number in (1..free).rev() {
            rename(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename(&self.path, &self.numbered(1))?;
        self.file = None;
        self.file().map(|_| ())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

impl Sink for JsonLines {
    fn write(&mut self, events: &[Event]) -> usize {
        let (mut lines, mut taken) = (Vec::new(), 0);
        for (place, event) in events.iter().enumerate() {
            let line = event.to_json();
            let size = self.file.as_ref().map_or(0, WholeLines::len) + lines.len() as u64;
            if size > 0 && size + line.len() as u64 + 1 > self.rotate_at {
                if self.put(&lines).is_err() {
                    return taken;
                }
                (lines, taken) = (Vec::new(), place);
                if self.rotate().is_err() {
                    return taken;
                }
            }
            lines.extend_from_slice(line.as_bytes());
            lines.push(b'\n');
        }
        match self.put(&lines) {
            Ok(()) => events.len(),
            Err(_) => taken,
        }
    }
}

/// Renames a file. A file that was removed meanwhile needs no renaming.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "its directory does not exist",
        ErrorKind::PermissionDenied => "permission denied",
        ErrorKind::IsADirectory => "it is a directory",
        _ => "it can't be opened",
    }
}
