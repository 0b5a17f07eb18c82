//! A file to which whole lines are appended. Lines are never torn, not even by a crash.

#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

/// The remains of a failed write are cut off before the next one. Writes are not synced to disk individually.
pub(crate) struct WholeLines {
    file: File,
    /// The length of all complete lines.
    len: u64,
    /// The file may end with an incomplete line.
    is_torn: bool,
}

impl WholeLines {
    /// Opens a file to append to, and creates it if it does not exist. On Unix, a new file has mode 0600.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true);
        // events are confidential: only the owner of the process may read them
        #[cfg(unix)]
        options.mode(0o600);
        let mut file = options.open(path)?;
        let len = mend(&mut file)?;
        Ok(Self { file, len, is_torn: false })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends complete lines, or nothing.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.len)?;
        }
        let written = self.file.write_all(lines);
        self.is_torn = written.is_err();
        written?;
        self.len += lines.len() as u64;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remains_of_a_failed_write_are_cut_off_before_the_next_one() {
        let path = std::env::temp_dir().join(format!("tollgate-torn-{}", std::process::id()));
        let mut lines = WholeLines::open(&path).unwrap();
        lines.append(b"{\"id\":1}\n").unwrap();
        // as if the disk had become full in the middle of a write
        lines.file.write_all(b"{\"id\":2").unwrap();
        lines.is_torn = true;
        lines.append(b"{\"id\":2}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"id\":1}\n{\"id\":2}\n");
        std::fs::remove_file(&path).unwrap();
    }
}
