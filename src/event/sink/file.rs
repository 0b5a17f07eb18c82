#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use super::Sink;
use crate::{event::Event, util::error::ConfigError};

/// Writes each event as one line of JSON to a file that is rotated by size.
///
/// `log.jsonl` becomes `log.jsonl.1` when the next line would make it larger
/// than 64 MiB ([`rotate_at`](Self::rotate_at)); `log.jsonl.1` becomes
/// `log.jsonl.2`, and so on; 5 old files are kept ([`keep`](Self::keep)).
/// After a restart it goes on at the end of the file.
///
/// On Unix a file that it makes has the mode 0600: its owner alone may read it.
/// One that is there already keeps its mode.
///
/// Each line is whole: what a failed write has left is cut off before the next
/// one. When the disk fails, the events wait in the log and are offered again.
/// The file is left to the system to bring to the disk.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    rotate_at: u64,
    keep: u32,
    file: Option<File>,
    /// Bytes of whole lines in the file.
    whole: u64,
    /// The file may hold more than whole lines.
    torn: bool,
}

impl JsonLines {
    /// Opens the file, which is made where it does not exist; its directory must.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref().to_path_buf();
        let mut sink = Self { path, rotate_at: 64 << 20, keep: 5, file: None, whole: 0, torn: false };
        match sink.open() {
            Ok(_) => Ok(sink),
            Err(error) => Err(ConfigError::new("event log file", sink.path.display(), reason(&error))),
        }
    }

    /// The size that a file does not exceed, in bytes, if its first line does not.
    pub fn rotate_at(mut self, bytes: u64) -> Result<Self, ConfigError> {
        if bytes == 0 {
            return Err(ConfigError::new("event log file size", bytes, "must be at least 1"));
        }
        self.rotate_at = bytes;
        Ok(self)
    }

    /// How many old files are kept, from 1 to 1,000.
    pub fn keep(mut self, files: u32) -> Result<Self, ConfigError> {
        if files == 0 || files > 1_000 {
            return Err(ConfigError::new("event log files kept", files, "must be from 1 to 1000"));
        }
        self.keep = files;
        Ok(self)
    }

    /// The open file, whole lines only, at its end.
    fn open(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.create(true).append(true).read(true);
            // who was refused and when is nobody else's business
            #[cfg(unix)]
            options.mode(0o600);
            let mut file = options.open(&self.path)?;
            self.whole = mend(&mut file)?;
            self.torn = false;
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::Error::from(ErrorKind::NotFound))
    }

    /// Writes whole lines, or none of them.
    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        let (torn, whole) = (self.torn, self.whole);
        let file = self.open()?;
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
        // up to the first number that is free: what a failure has left half done is not moved twice
        let free = (1..self.keep).find(|number| !self.numbered(*number).exists()).unwrap_or(self.keep);
        for number in (1..free).rev() {
            rename(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename(&self.path, &self.numbered(1))?;
        (self.file, self.whole) = (None, 0);
        self.open().map(|_| ())
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

/// A file that somebody has taken away needs no other name.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Cuts off a line that a crash left without its end. Answers how long the file then is.
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
    // not ours to cut: end the line instead
    file.write_all(b"\n")?;
    Ok(len + 1)
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "its directory does not exist",
        ErrorKind::PermissionDenied => "it may not be written",
        ErrorKind::IsADirectory => "it is a directory",
        _ => "it can't be opened",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_write_has_left_is_cut_off_before_the_next() {
        let path = std::env::temp_dir().join(format!("tollgate-torn-{}", std::process::id()));
        let mut sink = JsonLines::create(&path).unwrap();
        sink.put(b"{\"id\":1}\n").unwrap();
        // as when the disk took a part of a write and then was full
        sink.file.as_mut().unwrap().write_all(b"{\"id\":2").unwrap();
        sink.torn = true;
        sink.put(b"{\"id\":2}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"id\":1}\n{\"id\":2}\n");
        fs::remove_file(&path).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn nobody_but_the_owner_may_read_a_file_that_it_makes() {
        use std::os::unix::fs::PermissionsExt;

        use crate::{event::EventKind, util::clock::UnixTime};

        let path = std::env::temp_dir().join(format!("tollgate-mode-{}", std::process::id()));
        let mut sink = JsonLines::create(&path).unwrap().rotate_at(1).unwrap();
        let event = Event::new(EventKind::RateLimited, UnixTime::from_secs(5));
        assert_eq!(sink.write(&[event.clone(), event.clone(), event]), 3);
        for path in [path, sink.numbered(1), sink.numbered(2)] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
            fs::remove_file(path).unwrap();
        }
    }
}
