//! Failures that only a file can have: crashes, damage, a second process.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests; the child process reports through stdout"
)]

use std::{
    env, fs,
    future::Future,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    pin::Pin,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use tollgate::{
    clock::UnixTime,
    store::{AnyStore, Disk, DiskConfig, Entry, Key, Record, Store, StoreError, StoreErrorKind, Version, WriteOutcome},
    testing::block_on,
};

const NOW: UnixTime = UnixTime::from_secs(2_000_000_000);
const FAR: UnixTime = UnixTime::from_secs(3_000_000_000);

// Crash tests: this program starts itself as a child process and kills it.

/// Does nothing unless it runs in a child process.
#[test]
fn child_process() {
    if let Ok(path) = env::var(CHILD) {
        child(Path::new(&path));
    }
}

const CHILD: &str = "TOLLGATE_STORE_CHILD";
const LANES: u64 = 6;

/// Each lane inserts, swaps and takes its own row repeatedly, and prints `lane step` for each
/// acknowledged step.
fn child(path: &Path) {
    let store = AnyStore::from(Disk::open(path).unwrap());
    println!("\nopen");
    thread::scope(|scope| {
        for lane in 0..LANES {
            let store = &store;
            scope.spawn(move || {
                let key = lane_key(lane);
                let mut step = find(store, &key).map_or(0, |entry| step_of(lane, &entry) + 1);
                loop {
                    let record = Record::new(value_of(lane, step), NOW, FAR).unwrap();
                    let outcome = match find(store, &key) {
                        Some(entry) => block_on(store.swap(&key, entry.version, record)),
                        None => block_on(store.insert(&key, record)),
                    };
                    assert!(matches!(outcome, Ok(WriteOutcome::Done(_))));
                    // one write per line, so that a received line was acknowledged
                    let line = format!("{lane} {step}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                    step += 1;
                }
            });
        }
    });
}

fn lane_key(lane: u64) -> Key {
    Key::new("lanes", None, lane.to_be_bytes()).unwrap()
}

/// A value of a few bytes to many pages, derived from lane and step.
fn value_of(lane: u64, step: u64) -> Vec<u8> {
    let len = 16 + (step * 7919 % 9000) as usize;
    let mut value = [lane.to_be_bytes(), step.to_be_bytes()].concat();
    value.resize(len, (lane ^ step) as u8);
    value
}

fn step_of(lane: u64, entry: &Entry) -> u64 {
    let step = u64::from_be_bytes(entry.value[8..16].try_into().unwrap());
    assert_eq!(entry.value, value_of(lane, step), "a value that was never written");
    step
}

#[test]
fn kill_9_loses_no_acknowledged_write_and_leaves_none_half_written() {
    let directory = Directory::new();
    let path = &directory.file();
    let mut random = Random(0x5eed);
    let mut acknowledged = [None; LANES as usize];
    let mut in_all = 0;
    for round in 0..200 {
        // one in four is killed at any time after its start, the others a moment after some writes
        let writes_first = if round % 4 == 0 { 0 } else { 1 + random.below(40) as usize };
        let mut child = start_child(path);
        let output = BufReader::new(child.stdout.take().unwrap());
        let (enough, is_enough) = channel();
        let reader = thread::spawn(move || {
            let mut lines = Vec::new();
            for line in output.split(b'\n').map_while(Result::ok) {
                // the test harness prints other lines
                if line.contains(&b' ') && line.iter().all(|byte| b"0123456789 ".contains(byte)) {
                    lines.push(String::from_utf8(line).unwrap());
                    if lines.len() == writes_first {
                        enough.send(()).unwrap();
                    }
                }
            }
            lines
        });
        let wait = if writes_first == 0 { 20_000 } else { 3_000 };
        if writes_first > 0 {
            is_enough.recv().unwrap();
        }
        thread::sleep(Duration::from_micros(random.below(wait)));
        child.kill().unwrap();
        child.wait().unwrap();
        let lines = reader.join().unwrap();
        for line in lines {
            let (lane, step) = line.split_once(' ').unwrap();
            let (lane, step) = (lane.parse::<usize>().unwrap(), step.parse::<u64>().unwrap());
            acknowledged[lane] = Some(step);
            in_all += 1;
        }
        let store = AnyStore::from(Disk::open(path).unwrap());
        for (lane, acknowledged) in (0..).zip(&mut acknowledged) {
            let found = find(&store, &lane_key(lane)).map(|entry| step_of(lane, &entry));
            assert!(found >= *acknowledged, "round {round}: {acknowledged:?} was acknowledged, {found:?} is there");
            assert!(
                found <= acknowledged.map_or(Some(0), |step| Some(step + 1)),
                "round {round}: {found:?} was never written"
            );
            *acknowledged = found;
        }
    }
    println!("     200 kills, {in_all} writes acknowledged, none lost");
}

fn start_child(path: &Path) -> Child {
    let program = env::current_exe().unwrap();
    Command::new(program)
        .args(["--exact", "child_process", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

// Damage tests.

/// Creates a cleanly closed file of several pages. Returns its bytes and rows.
fn sound_file(path: &Path) -> (Vec<u8>, Vec<(Key, Vec<u8>)>) {
    let store = AnyStore::from(Disk::open(path).unwrap());
    let mut rows = Vec::new();
    for number in 0..60_u8 {
        let key = Key::new("rows", None, [number]).unwrap();
        let value = vec![number; usize::from(number) * 50];
        let version = insert(&store, &key, &value);
        let value = [value, vec![1]].concat();
        let record = Record::new(value.clone(), NOW, FAR).unwrap();
        assert!(matches!(block_on(store.swap(&key, version, record)), Ok(WriteOutcome::Done(_))));
        rows.push((key, value));
    }
    drop(store);
    (fs::read(path).unwrap(), rows)
}

/// Like [`sound_file`], but left behind by a killed process.
fn crashed_file(path: &Path) -> (Vec<u8>, Vec<(Key, Vec<u8>)>) {
    let (_, rows) = sound_file(path);
    let disk = Disk::open(path).unwrap();
    let key = Key::new("last", None, "row").unwrap();
    assert!(matches!(block_on(disk.insert(&key, Record::new("last", NOW, FAR).unwrap())), Ok(WriteOutcome::Done(_))));
    let bytes = fs::read(path).unwrap();
    drop(disk);
    (bytes, [rows, vec![(key, b"last".to_vec())]].concat())
}

#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    refused_by_read: usize,
    right: usize,
}

/// Opens a file with these bytes. It must be rejected or return correct data.
fn open_damaged(path: &Path, bytes: &[u8], rows: &[(Key, Vec<u8>)], what: &str, tally: &mut Tally) {
    fs::write(path, bytes).unwrap();
    let store = match Disk::open_with(path, DiskConfig::new().cache_bytes(1 << 20)) {
        Ok(store) => AnyStore::from(store),
        Err(error) => {
            let clear = matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::NewerFormat);
            assert!(clear, "{what}: {error:?}");
            tally.refused += 1;
            return;
        }
    };
    for (key, value) in rows {
        match block_on(store.get(key).wait()) {
            Ok(found) => assert_eq!(found.as_ref().map(|entry| &entry.value[..]), Some(&value[..]), "{what}: {key:?}"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{what}: {error:?}");
                tally.refused_by_read += 1;
                return;
            }
        }
    }
    let key = Key::new("rows", None, "new").unwrap();
    match block_on(store.insert(&key, Record::new("new", NOW, FAR).unwrap())) {
        Ok(outcome) => assert!(matches!(outcome, WriteOutcome::Done(_)), "{what}"),
        Err(error) => assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{what}: {error:?}"),
    }
    tally.right += 1;
}

#[test]
fn a_damaged_byte_causes_an_error_or_no_harm() {
    type Make = fn(&Path) -> (Vec<u8>, Vec<(Key, Vec<u8>)>);
    for (state, make) in [("closed", sound_file as Make), ("crashed", crashed_file)] {
        let directory = Directory::new();
        let path = &directory.file();
        let (sound, rows) = make(path);
        let mut random = Random(7);
        let mut tally = Tally::default();
        // every bit at the start of the header, a bit of every third byte of the rest of it, then
        // positions all over the file
        let begin = (0..64 * 8).map(|bit| (bit / 8, bit % 8));
        let header = (64..512).step_by(3).map(|place| (place, place % 8));
        let anywhere = (0..250).map(|_| (random.below(sound.len() as u64) as usize, random.below(8) as usize));
        for (place, bit) in begin.chain(header).chain(anywhere.collect::<Vec<_>>()) {
            let mut bytes = sound.clone();
            bytes[place] ^= 1 << bit;
            // the only bit without a checksum: it selects the newer of two commits. After a crash,
            // flipping it makes the last commit look unfinished. After a clean close, both commits
            // are equal
            let unprotected = state == "crashed" && (place, bit) == (9, 0);
            let rows = if unprotected { &rows[..rows.len() - 1] } else { &rows };
            open_damaged(path, &bytes, rows, &format!("{state}, bit {bit} of byte {place}"), &mut tally);
        }
        for _ in 0..60 {
            let mut bytes = sound.clone();
            let from = random.below(sound.len() as u64 / 512) as usize * 512;
            let fill = random.below(256) as u8;
            bytes[from..from + 512].fill(fill);
            open_damaged(path, &bytes, &rows, &format!("{state}, sector at {from} full of {fill}"), &mut tally);
        }
        println!("     {state} file of {} bytes: {tally:?}", sound.len());
        assert!(tally.refused > 10 && tally.right > 10);
    }
}

#[test]
fn a_truncated_file_is_rejected() {
    let directory = Directory::new();
    let path = &directory.file();
    let (sound, rows) = sound_file(path);
    let mut random = Random(11);
    let mut tally = Tally::default();
    let near = (0..40).chain(sound.len() - 40..sound.len());
    for len in near.chain((0..300).map(|_| random.below(sound.len() as u64) as usize)) {
        open_damaged(path, &sound[..len], &rows, &format!("cut at {len}"), &mut tally);
    }
    println!("     {tally:?}");
    assert_eq!(tally.right + tally.refused_by_read, 0, "a truncated file was accepted");
}

#[test]
fn foreign_files_are_rejected_and_not_modified() {
    let directory = Directory::new();
    let path = &directory.file();
    let kind = || open_error(path).kind();
    fs::write(path, b"").unwrap();
    assert_eq!(kind(), StoreErrorKind::Corrupt, "an empty file");
    fs::write(path, "a text\n".repeat(10_000)).unwrap();
    assert_eq!(kind(), StoreErrorKind::Corrupt, "a text");
    assert_eq!(fs::read(path).unwrap().len(), 70_000, "a foreign file was written to");

    let table = redb::TableDefinition::<&str, u64>::new("tollgate meta");
    fs::remove_file(path).unwrap();
    write_redb(path, redb::TableDefinition::new("something else"), 1);
    assert_eq!(kind(), StoreErrorKind::Corrupt, "a database of something else");
    fs::remove_file(path).unwrap();
    write_redb(path, table, 2);
    assert_eq!(kind(), StoreErrorKind::NewerFormat);
    let before = fs::read(path).unwrap();
    let error = open_error(path);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, format!("{}: the file has format 2; this version reads up to 1", path.display()));
    assert_eq!(error.to_string(), "the store was written by a newer version");
    assert!(!error.is_transient());
    assert_eq!(before.len(), fs::read(path).unwrap().len());

    let missing = path.with_file_name("no such directory").join("state");
    assert_eq!(open_error(&missing).kind(), StoreErrorKind::Unavailable);
    assert_eq!(open_error(path.parent().unwrap()).kind(), StoreErrorKind::Unavailable, "a directory");
}

fn write_redb(path: &Path, table: redb::TableDefinition<'_, &str, u64>, format: u64) {
    let database = redb::Database::create(path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(table).unwrap().insert("format", format).unwrap();
    transaction.commit().unwrap();
}

#[cfg(unix)]
#[test]
fn creation_follows_no_links_and_cleans_up_after_crashes() {
    let directory = Directory::new();
    let (path, victim) = (directory.file(), directory.0.join("victim"));
    fs::write(&victim, "precious").unwrap();
    let others = ["state.new", "state.1.new", "state.1.x.new", "state.1.2.3.new", "other.1.0.new"];
    for other in others {
        fs::write(directory.0.join(other), "").unwrap();
    }
    // all names that this process might use next
    for number in 0..64 {
        let name = format!("state.{}.{number}.new", std::process::id());
        std::os::unix::fs::symlink(&victim, directory.0.join(name)).unwrap();
    }
    fs::write(directory.0.join("state.1.0.new"), "torn").unwrap();
    drop(Disk::open(&path).unwrap());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    let names = fs::read_dir(&directory.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let mut expected: Vec<&str> = others.into_iter().chain(["state", "victim"]).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn only_its_owner_can_read_a_file() {
    use std::os::unix::fs::PermissionsExt;

    let directory = Directory::new();
    let path = &directory.file();
    let mode = || fs::metadata(path).unwrap().permissions().mode() & 0o777;
    drop(Disk::open(path).unwrap());
    assert_eq!(mode(), 0o600);
    // what an operator has changed stays, because a backup may need it
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    drop(Disk::open(path).unwrap());
    assert_eq!(mode(), 0o640);
}

#[test]
fn a_second_process_sees_that_the_file_is_locked() {
    let directory = Directory::new();
    let path = &directory.file();
    let mut child = start_child(path);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.by_ref().lines().any(|line| line.unwrap() == "open"));
    let drain = thread::spawn(move || output.read_to_end(&mut Vec::new()));
    let error = open_error(path);
    assert_eq!(error.kind(), StoreErrorKind::Locked);
    assert!(error.is_transient());
    child.kill().unwrap();
    child.wait().unwrap();
    drain.join().unwrap().unwrap();
    drop(Disk::open(path).unwrap());

    let disk = Disk::open(path).unwrap();
    assert_eq!(open_error(path).kind(), StoreErrorKind::Locked, "the same process, a second time");
    drop(disk);
}

#[test]
fn expired_entries_are_removed_and_their_space_is_reused() {
    let directory = Directory::new();
    let path = &directory.file();
    let disk = Disk::open_with(path, DiskConfig::new().entries(100).unwrap()).unwrap();
    let insert = |number: u64, at: u64| {
        let at = UnixTime::from_secs(2_000_000_000 + at);
        let record = Record::new(vec![1; 4000], at, at + Duration::from_secs(1)).unwrap();
        block_on(disk.insert(&Key::new("rows", None, number.to_be_bytes()).unwrap(), record))
    };
    for number in 0..100 {
        assert!(matches!(insert(number, 0), Ok(WriteOutcome::Done(_))));
    }
    assert_eq!(insert(100, 0).unwrap_err().kind(), StoreErrorKind::Full);
    let mut sizes = Vec::new();
    for second in 1..20 {
        for number in 0..100 {
            assert!(matches!(insert(second * 1000 + number, second), Ok(WriteOutcome::Done(_))), "second {second}");
        }
        sizes.push(fs::metadata(path).unwrap().len());
    }
    assert_eq!(sizes[4], sizes[18], "the file grows although it has no more live entries");
}

#[test]
fn a_reopened_file_has_all_rows_and_new_versions() {
    let directory = Directory::new();
    let path = &directory.file();
    let versions = Arc::new(AtomicU64::new(0));
    for round in 0..10_u64 {
        let disk = Arc::new(Disk::open(path).unwrap());
        let threads = (0..4_u64).map(|lane| {
            let (disk, versions) = (Arc::clone(&disk), Arc::clone(&versions));
            thread::spawn(move || {
                let key = Key::new("rows", None, [round, lane].map(u64::to_be_bytes).concat()).unwrap();
                let outcome = block_on(disk.insert(&key, Record::new("row", NOW, FAR).unwrap()));
                let Ok(WriteOutcome::Done(version)) = outcome else { panic!("{outcome:?}") };
                versions.fetch_max(u64::try_from(version.as_u128()).unwrap(), Relaxed);
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
    }
    let store = AnyStore::from(Disk::open(path).unwrap());
    for round in 0..10_u64 {
        for lane in 0..4_u64 {
            let key = Key::new("rows", None, [round, lane].map(u64::to_be_bytes).concat()).unwrap();
            assert!(find(&store, &key).is_some(), "round {round}, lane {lane}");
        }
    }
    let next = insert(&store, &Key::new("rows", None, "next").unwrap(), b"");
    assert!(next.as_u128() > u128::from(versions.load(Relaxed)), "a version was repeated after reopening the file");
}

#[test]
fn a_store_dropped_by_its_own_writer_does_not_deadlock() {
    struct Last(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>, Sender<()>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            self.1.send(()).unwrap();
        }
    }
    let directory = Directory::new();
    let disk = Disk::open(directory.file()).unwrap();
    let write = Box::pin(async move {
        let key = Key::new("rows", None, "row").unwrap();
        _ = disk.insert(&key, Record::new("row", NOW, FAR).unwrap()).await;
    });
    let (sender, dropped) = channel();
    let last = Arc::new(Last(Mutex::new(None), sender));
    let waker = Waker::from(Arc::clone(&last));
    // the writer waits for this lock, and then drops the write, which owns the store
    let mut owner = last.0.lock().unwrap();
    assert!(owner.insert(write).as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(owner);
    dropped.recv_timeout(Duration::from_secs(30)).unwrap();
}

/// A directory that is removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static DIRECTORIES: AtomicU64 = AtomicU64::new(0);
        let name = format!("tollgate-store-disk-{}-{}", std::process::id(), DIRECTORIES.fetch_add(1, Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn find(store: &AnyStore, key: &Key) -> Option<Entry> {
    block_on(store.get(key).wait()).unwrap()
}

fn insert(store: &AnyStore, key: &Key, value: &[u8]) -> Version {
    match block_on(store.insert(key, Record::new(value.to_vec(), NOW, FAR).unwrap())) {
        Ok(WriteOutcome::Done(version)) => version,
        lost => panic!("{lost:?}"),
    }
}

fn open_error(path: &Path) -> StoreError {
    match Disk::open(path) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
