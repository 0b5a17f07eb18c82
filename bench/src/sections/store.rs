//! The cost of the stores. Compare figures of one run only, never those of two machines.

use std::{
    env, fs,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use tollgate::{
    Tenant,
    clock::UnixTime,
    gate::MaybeReady,
    store::{AnyStore, Disk, Key, Memory, Record, WriteOutcome},
};

use crate::{
    report::unless_quick,
    stats::{Table, ratio},
};

const NOW: UnixTime = UnixTime::from_secs(2_000_000_000);
const FAR: UnixTime = UnixTime::from_secs(3_000_000_000);
/// Longer than the rows of most sessions.
const VALUE: [u8; 200] = [b'v'; 200];

/// Prints the tables.
/// A name, the number of threads, and what each of them does.
type Measure = (&'static str, u64, fn(&AnyStore, u64, u64));

pub fn run() {
    let directory = env::temp_dir().join(format!("tollgate-bench-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();

    println!("### The store\n");
    println!(
        "Durable writes of 200 bytes on this disk, with redb alone and with `Disk`. Then reads and writes of one store with \
         10,000 rows. {} s each.\n",
        lasts().as_secs_f64()
    );
    let mut table = Table::new(["durable writes", "a second", "÷ redb"]);
    let naive = naive_commits(&directory.join("naive"), true);
    row(&mut table, "one commit for each write (redb alone)", naive, naive);
    row(&mut table, "redb alone, in one phase", naive_commits(&directory.join("one phase"), false), naive);
    let disk = AnyStore::from(Disk::open(directory.join("disk")).unwrap());
    for writers in [1, 8, 64] {
        row(&mut table, &format!("Disk, {writers} writers"), in_parallel(&disk, writers, insert_one), naive);
    }
    row(&mut table, "Disk, 64 writers that swap", in_parallel(&disk, 64, swap_one), naive);
    table.print();

    let mut table = Table::new(["reads and writes", "a second", "÷ Disk, get"]);
    fill(&disk, 10_000);
    let reads = in_parallel(&disk, 1, get_one);
    row(&mut table, "Disk, get", reads, reads);
    let memory = AnyStore::from(Memory::new().entries(8_000_000).unwrap().bytes(8 << 30).unwrap());
    fill(&memory, 10_000);
    let measures: [Measure; 5] = [
        ("Memory, get, 1 thread", 1, get_one),
        ("Memory, get, 2 threads", 2, get_one),
        ("Memory, swap, 1 thread", 1, swap_one),
        ("Memory, swap, 2 threads", 2, swap_one),
        ("Memory, insert and take, 1 thread", 1, insert_and_take),
    ];
    for (name, threads, step) in measures {
        row(&mut table, name, in_parallel(&memory, threads, step), reads);
    }
    table.print();

    drop(disk);
    fs::remove_dir_all(&directory).unwrap();
}

fn row(table: &mut Table, name: &str, per_second: f64, base: f64) {
    table.row([name.to_owned(), format!("{per_second:.0}"), ratio(per_second / base)]);
}

/// How long each row is measured.
fn lasts() -> Duration {
    Duration::from_millis(unless_quick(2_000, 100))
}

/// Calls `step(store, lane, number)` repeatedly on this many threads. Returns the calls per second.
fn in_parallel(store: &AnyStore, lanes: u64, step: fn(&AnyStore, u64, u64)) -> f64 {
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        for lane in 0..lanes {
            let (stop, steps) = (&stop, &steps);
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Relaxed) {
                    step(store, lane, number);
                    number += 1;
                }
                steps.fetch_add(number, Relaxed);
            });
        }
        thread::sleep(lasts());
        stop.store(true, Relaxed);
    });
    steps.load(Relaxed) as f64 / began.elapsed().as_secs_f64()
}

fn insert_one(store: &AnyStore, lane: u64, number: u64) {
    static ROUND: AtomicU64 = AtomicU64::new(0);
    let round = ROUND.fetch_add(1, Relaxed);
    let outcome = block_on(store.insert(&key("inserted", &[lane, number, round]), record()));
    assert!(matches!(outcome, Ok(WriteOutcome::Done(_))));
}

fn swap_one(store: &AnyStore, lane: u64, _: u64) {
    let key = key("swapped", &[lane]);
    let MaybeReady::Ready(found) = store.get(&key) else { panic!() };
    let outcome = match found.unwrap() {
        Some(entry) => block_on(store.swap(&key, entry.version, record())),
        None => block_on(store.insert(&key, record())),
    };
    assert!(matches!(outcome, Ok(WriteOutcome::Done(_))));
}

fn insert_and_take(store: &AnyStore, lane: u64, number: u64) {
    let key = key("taken", &[lane, number]);
    assert!(matches!(block_on(store.insert(&key, record())), Ok(WriteOutcome::Done(_))));
    assert!(block_on(store.take(&key)).unwrap().is_some());
}

fn fill(store: &AnyStore, rows: u64) {
    thread::scope(|scope| {
        for lane in 0..64 {
            scope.spawn(move || {
                for number in (lane..rows).step_by(64) {
                    assert!(matches!(
                        block_on(store.insert(&key("read", &[number]), record())),
                        Ok(WriteOutcome::Done(_))
                    ));
                }
            });
        }
    });
}

fn get_one(store: &AnyStore, lane: u64, number: u64) {
    let key = key("read", &[(number * 7919 + lane * 4999) % 10_000]);
    let MaybeReady::Ready(found) = store.get(&key) else { panic!() };
    assert!(found.unwrap().is_some());
}

fn naive_commits(path: &std::path::Path, two_phases: bool) -> f64 {
    let table = redb::TableDefinition::<&[u8], &[u8]>::new("rows");
    let database = redb::Database::create(path).unwrap();
    let (began, mut writes) = (Instant::now(), 0_u64);
    while began.elapsed() < lasts() {
        let mut transaction = database.begin_write().unwrap();
        transaction.set_two_phase_commit(two_phases);
        transaction.open_table(table).unwrap().insert(key("inserted", &[writes]).as_bytes(), &VALUE[..]).unwrap();
        transaction.commit().unwrap();
        writes += 1;
    }
    writes as f64 / began.elapsed().as_secs_f64()
}

/// Creates a key as long as a digest.
fn key(table: &str, numbers: &[u64]) -> Key {
    let mut id = [0; 32];
    for (place, number) in id.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    Key::new(table, Some(&Tenant::parse("acme").unwrap()), id).unwrap()
}

fn record() -> Record {
    Record::new(&VALUE[..], NOW, FAR).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}
