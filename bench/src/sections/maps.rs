//! Maps that could store the rows of tenants.

use std::{
    hash::BuildHasher,
    hint::black_box,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use papaya::ResizeMode;

use super::{rounds, tenant_counts};
use crate::{
    machine::{pin, scheduled},
    random::{Random, tenant_id},
    stats::{Table, median, nanos, tenants},
};

const ROUNDS: usize = 7;
const CALLS: u64 = 100_000;

/// Roughly the row of a tenant.
struct Row {
    refused_until: AtomicU64,
    log: Mutex<[u64; 8]>,
}

impl Row {
    fn new() -> Self {
        Self { refused_until: AtomicU64::new(0), log: Mutex::new([0; 8]) }
    }
}

trait Candidate: Send + Sync {
    fn insert(&self, key: [u8; 16]);
    /// The work of an admission.
    fn spend(&self, key: &[u8; 16]) -> u64;
    /// A look at the row.
    fn look(&self, key: &[u8; 16]) -> u64;
}

struct Papaya(papaya::HashMap<[u8; 16], Row, RandomState>);

impl Candidate for Papaya {
    fn insert(&self, key: [u8; 16]) {
        self.0.pin().insert(key, Row::new());
    }

    fn spend(&self, key: &[u8; 16]) -> u64 {
        let rows = self.0.pin();
        let Some(row) = rows.get(key) else { return 0 };
        let mut log = row.log.lock().expect("no thread panics");
        log[0] += 1;
        log[0]
    }

    fn look(&self, key: &[u8; 16]) -> u64 {
        self.0.pin().get(key).map_or(0, |row| row.refused_until.load(Relaxed))
    }
}

/// Many maps with one collector, as in tollgate.
struct Shards {
    hasher: RandomState,
    shards: Vec<papaya::HashMap<[u8; 16], Row, RandomState>>,
}

impl Shards {
    fn new() -> Self {
        let (hasher, collector) = (RandomState::default(), Arc::new(seize::Collector::new()));
        let shard = |_| {
            papaya::HashMap::builder()
                .hasher(hasher.clone())
                .resize_mode(ResizeMode::Blocking)
                .shared_collector(Arc::clone(&collector))
                .build()
        };
        Self { shards: (0..256).map(shard).collect(), hasher }
    }

    fn shard(&self, key: &[u8; 16]) -> &papaya::HashMap<[u8; 16], Row, RandomState> {
        let hash = std::hash::BuildHasher::hash_one(&self.hasher, key);
        &self.shards[(hash >> 32) as usize % 256]
    }
}

impl Candidate for Shards {
    fn insert(&self, key: [u8; 16]) {
        self.shard(&key).pin().insert(key, Row::new());
    }

    fn spend(&self, key: &[u8; 16]) -> u64 {
        let rows = self.shard(key).pin();
        let Some(row) = rows.get(key) else { return 0 };
        let mut log = row.log.lock().expect("no thread panics");
        log[0] += 1;
        log[0]
    }

    fn look(&self, key: &[u8; 16]) -> u64 {
        self.shard(key).pin().get(key).map_or(0, |row| row.refused_until.load(Relaxed))
    }
}

/// The locks of the map guard the row.
struct Dash(dashmap::DashMap<[u8; 16], Units, RandomState>);

impl Candidate for Dash {
    fn insert(&self, key: [u8; 16]) {
        self.0.insert(key, (0, [0; 8]));
    }

    fn spend(&self, key: &[u8; 16]) -> u64 {
        let Some(mut row) = self.0.get_mut(key) else { return 0 };
        row.1[0] += 1;
        row.1[0]
    }

    fn look(&self, key: &[u8; 16]) -> u64 {
        self.0.get(key).map_or(0, |row| row.0)
    }
}

type Units = (u64, [u64; 8]);

/// As in the limiter: small tables of rows, each behind a mutex.
struct Tables {
    shards: Vec<LockedTable>,
    hasher: RandomState,
}

#[derive(Default)]
#[repr(align(64))]
struct LockedTable(Mutex<HashTable<([u8; 16], Units)>>);

impl Tables {
    fn new() -> Self {
        Self { shards: (0..1024).map(|_| LockedTable::default()).collect(), hasher: RandomState::default() }
    }

    fn row<T>(&self, key: &[u8; 16], use_row: impl FnOnce(&mut Units) -> T) -> Option<T> {
        let hash = self.hasher.hash_one(key);
        let mut rows = self.shards[(hash >> 32) as usize % 1024].0.lock().expect("no thread panics");
        rows.find_mut(hash, |(known, _)| known == key).map(|(_, row)| use_row(row))
    }
}

impl Candidate for Tables {
    fn insert(&self, key: [u8; 16]) {
        let hash = self.hasher.hash_one(key);
        let mut rows = self.shards[(hash >> 32) as usize % 1024].0.lock().expect("no thread panics");
        rows.insert_unique(hash, (key, (0, [0; 8])), |(known, _)| self.hasher.hash_one(known));
    }

    fn spend(&self, key: &[u8; 16]) -> u64 {
        let spend = |row: &mut Units| {
            row.1[0] += 1;
            row.1[0]
        };
        self.row(key, spend).unwrap_or(0)
    }

    fn look(&self, key: &[u8; 16]) -> u64 {
        self.row(key, |row| row.0).unwrap_or(0)
    }
}

pub fn run() {
    println!("### The map of tenants: processor time of a lookup in nanoseconds\n");
    println!(
        "`spend` finds a row and updates it under its lock. `look` only reads. 16-byte names, \
         foldhash. Medians of {} interleaved rounds.\n",
        rounds(ROUNDS)
    );
    let mut table =
        Table::new(["map", "tenants", "spend, 1 thread", "spend, 2 threads", "look, 1 thread", "look, 2 threads"]);
    for (_, count) in tenant_counts() {
        let blocking = papaya::HashMap::builder().hasher(RandomState::default());
        let maps: [(&str, Box<dyn Candidate>); 6] = [
            ("hashbrown × 1024, a mutex each", Box::new(Tables::new())),
            ("papaya, a mutex a row", Box::new(Papaya(blocking.resize_mode(ResizeMode::Blocking).build()))),
            ("papaya × 256, a mutex a row", Box::new(Shards::new())),
            ("dashmap", Box::new(Dash(dashmap::DashMap::with_hasher(RandomState::default())))),
            (
                "dashmap, 256 shards",
                Box::new(Dash(dashmap::DashMap::with_hasher_and_shard_amount(RandomState::default(), 256))),
            ),
            (
                "dashmap, 1024 shards",
                Box::new(Dash(dashmap::DashMap::with_hasher_and_shard_amount(RandomState::default(), 1024))),
            ),
        ];
        for (_, map) in &maps {
            for tenant in 0..count {
                map.insert(tenant_id(tenant));
            }
        }
        let mut times = vec![[const { Vec::new() }; 4]; maps.len()];
        for round in 0..rounds(ROUNDS) as u64 {
            for ((_, map), times) in maps.iter().zip(&mut times) {
                let cells = [(1, true), (2, true), (1, false), (2, false)];
                for ((threads, spends), times) in cells.into_iter().zip(times) {
                    times.push(measure(map.as_ref(), threads, spends, count, round));
                }
            }
        }
        for ((name, _), times) in maps.iter().zip(&times) {
            let cells = times.iter().map(|times| nanos(median(times)));
            table.row([(*name).to_owned(), tenants(count)].into_iter().chain(cells));
        }
    }
    table.print();
}

fn measure(map: &dyn Candidate, threads: u64, spends: bool, count: u64, round: u64) -> f64 {
    let barrier = Barrier::new(threads as usize);
    let each: Vec<f64> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|core| {
                let barrier = &barrier;
                scope.spawn(move || {
                    pin(core as usize);
                    let mut random = Random(round * 8 + core);
                    barrier.wait();
                    let ((before, _), began) = (scheduled(), Instant::now());
                    for _ in 0..CALLS {
                        let key = tenant_id(random.below(count));
                        black_box(if spends { map.spend(&key) } else { map.look(&key) });
                    }
                    let (wall, (after, _)) = (began.elapsed(), scheduled());
                    let cpu = (after - before).min(wall.as_nanos() as u64);
                    cpu as f64 / CALLS as f64
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread panicked")).collect()
    });
    each.iter().sum::<f64>() / threads as f64
}
