//! A sink that appends events to a file.

#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use super::{record::Event, sink::Sink};
use crate::util::error::ConfigError;

/// Appends each event as a line of JSON to a file, which is rotated by size.
///
/// Before a line would make `log.jsonl` larger than 64 MiB ([`rotate_at`](Self::rotate_at)), the
/// file is renamed to `log.jsonl.1`, the previous `log.jsonl.1` to `log.jsonl.2`, and so on. Five
/// old files are kept ([`keep`](Self::keep)). After a restart, writing continues at the end of the
/// file.
///
/// On Unix, new files have mode 0600. Existing files keep their mode.
///
/// Lines are never torn: the remains of a failed write are cut off before the next one. While the
/// disk fails, events wait in the log and are offered again. Writes are not synced to disk
/// individually.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    rotate_at: u64,
    keep: u32,
    file: Option<File>,
    /// The length of all complete lines in the file.
    whole: u64,
    /// The file may end with an incomplete line.
    torn: bool,
}

impl JsonLines {
    /// Opens a file to append to, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be opened or its directory does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref().to_path_buf();
        let mut sink = Self { path, rotate_at: 64 << 20, keep: 5, file: None, whole: 0, torn: false };
        match sink.file() {
            Ok(_) => Ok(sink),
            Err(error) => Err(ConfigError::new("event log file", sink.path.display(), reason(&error))),
        }
    }

    /// Sets the maximum size of a file in bytes. A single longer line still gets a file to itself.
    /// Defaults to 64 MiB.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` is zero.
    pub fn rotate_at(mut self, bytes: u64) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(bytes == 0, "event log file size", bytes, "must be at least 1")?;
        self.rotate_at = bytes;
        Ok(self)
    }

    /// Sets how many old files are kept. Defaults to 5.
    ///
    /// # Errors
    ///
    /// Returns an error unless `files` is between 1 and 1,000.
    pub fn keep(mut self, files: u32) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(files == 0 || files > 1_000, "old event log files", files, "must be from 1 to 1000")?;
        self.keep = files;
        Ok(self)
    }

    /// Returns the open file, positioned after its last complete line.
    fn file(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.create(true).append(true).read(true);
            // events are confidential: only the owner of the process may read them
            #[cfg(unix)]
            options.mode(0o600);
            let mut file = options.open(&self.path)?;
            self.whole = mend(&mut file)?;
            self.torn = false;
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::Error::from(ErrorKind::NotFound))
    }

    /// Writes complete lines, or nothing.
    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        let (torn, whole) = (self.torn, self.whole);
        let file = self.file()?;
        if torn {
            file.set_len(whole)?;
        }
        let written = file.write_all(lines);
        self.torn = written.is_err();
        written?;
        self.whole += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        // stop at the first unused number, so that a rotation that failed halfway can be repeated
        let free = (1..self.keep).find(|number| !self.numbered(*number).exists()).unwrap_or(self.keep);
        for number in (1..free).rev() {
            rename(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename(&self.path, &self.numbered(1))?;
        (self.file, self.whole) = (None, 0);
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
            let size = self.whole + lines.len() as u64;
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

/// Cuts off an incomplete last line after a crash. Returns the length of the file.
fn mend(file: &mut File) -> io::Result<u64> {
    const LONGEST_LINE: u64 = 4096;
    let len = file.metadata()?.len();
    let from = len.saturating_sub(LONGEST_LINE);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(LONGEST_LINE).read_to_end(&mut tail)?;
    let end = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    let rest = tail.get(end..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(len);
    }
    let ours = b"{\"id\":";
    if rest.starts_with(ours) || ours.starts_with(rest) {
        let whole = from + end as u64;
        file.set_len(whole)?;
        return Ok(whole);
    }
    // not written by us, so don't cut it: end the line instead
    file.write_all(b"\n")?;
    Ok(len + 1)
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "its directory does not exist",
        ErrorKind::PermissionDenied => "permission denied",
        ErrorKind::IsADirectory => "it is a directory",
        _ => "it can't be opened",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remains_of_a_failed_write_are_cut_off_before_the_next_one() {
        let path = std::env::temp_dir().join(format!("tollgate-torn-{}", std::process::id()));
        let mut sink = JsonLines::open(&path).unwrap();
        sink.put(b"{\"id\":1}\n").unwrap();
        // as if the disk had become full in the middle of a write
        sink.file.as_mut().unwrap().write_all(b"{\"id\":2").unwrap();
        sink.torn = true;
        sink.put(b"{\"id\":2}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"id\":1}\n{\"id\":2}\n");
        fs::remove_file(&path).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_new_files() {
        use std::os::unix::fs::PermissionsExt;

        use crate::{event::kind::EventKind, util::clock::UnixTime};

        let path = std::env::temp_dir().join(format!("tollgate-mode-{}", std::process::id()));
        let mut sink = JsonLines::open(&path).unwrap().rotate_at(1).unwrap();
        let event = Event::new(EventKind::RateLimited, UnixTime::from_secs(5));
        assert_eq!(sink.write(&[event.clone(), event.clone(), event]), 3);
        for path in [path, sink.numbered(1), sink.numbered(2)] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
            fs::remove_file(path).unwrap();
        }
    }
}
