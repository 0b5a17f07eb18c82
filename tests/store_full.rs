//! A file that has reached its limit, and a disk without room.
#![cfg(all(feature = "store-disk", feature = "test-util"))]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests; the child process reports through stdout"
)]

#[path = "support/programs.rs"]
#[cfg(target_os = "linux")]
mod programs;

use std::{env, fs, path::PathBuf, time::Duration};

use tollgate::{
    clock::UnixTime,
    store::{Disk, DiskConfig, Entry, Expected, Key, Operation, Record, Store, StoreErrorKind, WriteOutcome},
    testing::block_on,
};

const NOW: UnixTime = UnixTime::from_secs(2_000_000_000);
const FAR: UnixTime = UnixTime::from_secs(3_000_000_000);

fn key(number: u64) -> Key {
    Key::new("rows", None, number.to_be_bytes()).unwrap()
}

fn record(len: usize, expires_at: UnixTime) -> Record {
    Record::new(vec![7; len], NOW, expires_at).unwrap()
}

fn insert(disk: &Disk, number: u64, len: usize) -> Result<(), StoreErrorKind> {
    match block_on(disk.insert(&key(number), record(len, FAR))) {
        Ok(WriteOutcome::Done(_)) => Ok(()),
        Ok(lost) => panic!("{lost:?}"),
        Err(error) => Err(error.kind()),
    }
}

fn find(disk: &Disk, number: u64) -> Option<Entry> {
    block_on(disk.get(&key(number)).wait()).unwrap()
}

/// Inserts rows of this length until one is refused, and returns the number of the refused one.
fn fill(disk: &Disk, from: u64, len: usize) -> u64 {
    let refused = (from..from + 100_000).find(|number| insert(disk, *number, len).is_err()).unwrap();
    assert_eq!(insert(disk, refused, len), Err(StoreErrorKind::Full));
    refused
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("tollgate-store-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a11_beyond_its_bytes_a_file_refuses_rows_and_still_removes_and_replaces_them() {
    let directory = Directory::new("bytes");
    let open = || Disk::open_with(directory.0.join("state"), DiskConfig::new().bytes(256 * 1024).unwrap()).unwrap();
    let disk = open();
    // one row expires soon; the others fill the rest
    let soon = NOW + Duration::from_secs(10);
    assert!(matches!(block_on(disk.insert(&key(1_000), record(4000, soon))), Ok(WriteOutcome::Done(_))));
    let rows = fill(&disk, 0, 4000);
    let cost = 4000 + 2 * key(0).as_bytes().len() as u64 + 64;
    assert_eq!(rows + 1, 256 * 1024 / cost);
    // rows can shrink and change, and not grow
    let swap = |number: u64, len: usize| {
        let version = find(&disk, number).unwrap().version;
        block_on(disk.swap(&key(number), version, record(len, FAR))).map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(swap(0, 4000), Ok(()));
    assert_eq!(swap(0, 12_000), Err(StoreErrorKind::Full));
    assert_eq!(find(&disk, 0).unwrap().value.len(), 4000);
    assert_eq!(swap(0, 100), Ok(()));
    assert_eq!(swap(0, 4000), Ok(()));
    assert_eq!(insert(&disk, rows, 4000), Err(StoreErrorKind::Full));
    // one that is removed makes room for one
    assert!(block_on(disk.take(&key(1))).unwrap().is_some());
    assert_eq!(insert(&disk, rows, 4000), Ok(()));
    assert_eq!(insert(&disk, rows + 1, 4000), Err(StoreErrorKind::Full));
    // what was stored is counted after a restart
    drop(disk);
    let disk = open();
    assert_eq!(insert(&disk, rows + 1, 4000), Err(StoreErrorKind::Full));
    // and what has expired makes room as well
    let late = Record::new(vec![7; 4000], soon, FAR).unwrap();
    assert!(matches!(block_on(disk.insert(&key(rows + 1), late)), Ok(WriteOutcome::Done(_))));
    assert!(find(&disk, 1_000).is_none());
    assert_eq!(insert(&disk, rows + 2, 4000), Err(StoreErrorKind::Full));
    assert!(DiskConfig::new().bytes(131_071).is_err());
}

/// A batch that meets the limit on the way has no effect, so a login is not used up by one that could not begin its session.
#[test]
fn b40_a_batch_without_room_for_all_its_writes_writes_none() {
    let directory = Directory::new("batch");
    let path = directory.0.join("state");
    let open = || Disk::open_with(&path, DiskConfig::new().bytes(256 * 1024).unwrap()).unwrap();
    let disk = open();
    let full = fill(&disk, 0, 4000);
    let version = find(&disk, 0).unwrap().version;
    // one row shrinks, one is new and small, and one has no room
    let batch = || {
        vec![
            Operation::Write(key(0), Expected::Version(version), record(3000, FAR)),
            Operation::Write(key(full), Expected::Absent, record(100, FAR)),
            Operation::Read(key(full)),
            Operation::Write(key(full + 1), Expected::Absent, record(4000, FAR)),
        ]
    };
    for _ in 0..3 {
        assert_eq!(block_on(disk.run(batch())).unwrap_err().kind(), StoreErrorKind::Full);
        let found = find(&disk, 0).unwrap();
        assert_eq!((found.version, found.value.len(), found.expires_at), (version, 4000, FAR));
        assert!(find(&disk, full).is_none() && find(&disk, full + 1).is_none());
        assert_eq!(insert(&disk, full, 4000), Err(StoreErrorKind::Full), "it counts the same bytes");
    }
    drop(disk);
    let disk = open();
    assert_eq!(insert(&disk, full, 4000), Err(StoreErrorKind::Full));
    assert!(block_on(disk.take(&key(1))).unwrap().is_some());
    assert_eq!(block_on(disk.run(batch())).unwrap().len(), 4);
    assert_eq!(find(&disk, 0).unwrap().value.len(), 3000);
}

/// Does nothing unless it runs in the child process below.
#[test]
fn child_process() {
    if let Some(path) = env::var_os(CHILD) {
        child(&PathBuf::from(path));
    }
}

const CHILD: &str = "TOLLGATE_STORE_FULL_CHILD";

fn child(directory: &std::path::Path) {
    const LEN: usize = 16 * 1024;
    let (ballast, path) = (directory.join("ballast"), directory.join("state"));
    let take_room = || fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    take_room();
    let disk = Disk::open(&path).unwrap();
    let mut rows = 0;
    for round in 0..3 {
        let refused = fill(&disk, rows, LEN);
        assert!(refused > rows, "round {round} wrote nothing");
        rows = refused;
        // reads go on, with all that was acknowledged and nothing else
        assert!((0..rows).all(|number| find(&disk, number).is_some_and(|entry| entry.value.len() == LEN)));
        assert!(find(&disk, rows).is_none());
        assert_eq!(insert(&disk, rows, 1), Err(StoreErrorKind::Full));
        fs::remove_file(&ballast).unwrap();
        assert_eq!(insert(&disk, rows, LEN), Ok(()), "round {round}: there is room again");
        rows += 1;
        // removing leaves free pages in the file, which the next round uses
        for number in 0..rows {
            assert!(block_on(disk.take(&key(number))).unwrap().is_some());
        }
        rows = 0;
        take_room_if_possible(&ballast);
    }
    for number in 0..5 {
        assert_eq!(insert(&disk, number, LEN), Ok(()));
    }
    drop(disk);
    let disk = Disk::open(&path).unwrap();
    assert!((0..5).all(|number| find(&disk, number).is_some()));
    println!("\nDONE");
}

/// Fills the rest of the disk, but for some room.
fn take_room_if_possible(ballast: &std::path::Path) {
    let written = (1..=3).rev().find(|mib| fs::write(ballast, vec![1; mib << 20]).is_ok());
    if written.is_none() {
        fs::write(ballast, []).unwrap();
    }
}

/// The disk of the child process is a small file system in memory, which only that process sees.
#[cfg(target_os = "linux")]
#[test]
fn a11_after_the_disk_was_full_writes_work_again_as_soon_as_there_is_room() {
    use std::process::Command;

    let Some(unshare) = programs::program(&["unshare"]) else { return programs::missing("unshare") };
    let directory = Directory::new("enospc");
    let script = r#"mount -t tmpfs -o size=8m tollgate "$0" || exit 77; exec "$1" --exact child_process --nocapture"#;
    let output = Command::new(unshare)
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .args([directory.0.as_os_str(), env::current_exe().unwrap().as_os_str()])
        .env(CHILD, &directory.0)
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || errors.contains("unshare") {
        // this needs a permission of the machine, not a program that can be installed
        eprintln!("skipped: this machine does not allow a file system to be mounted");
        return;
    }
    assert!(text.contains("\nDONE"), "{text}\n{errors}");
}
