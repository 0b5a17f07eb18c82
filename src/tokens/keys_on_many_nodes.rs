//! Tests of several nodes that share a key ring in a store that may fail.

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};

use super::{
    keys::{Copy, Keys},
    ring::{Ring, Schedule},
};
use crate::{
    gate::MaybeReady,
    jose::Algorithm::{self, EdDsa, Es256},
    store::{
        AnyStore, Entry, Key, Memory, Record, Store, StoreError, StoreErrorKind, Version, WriteOutcome, table::Table,
    },
    support::seal::Seal,
    testing::ManualClock,
    util::{
        clock::{Clock, UnixTime},
        secret::Secret,
    },
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const SCHEDULE: Schedule = Schedule { period: Duration::from_secs(90 * 24 * 3600), lead: HOUR, keep: DAY };
/// Without RSA, because creating an RSA key takes long.
const WANTED: [Algorithm; 2] = [Es256, EdDsa];

/// A store that records its calls, fails on demand, and yields to other tasks. Clones share everything.
#[derive(Clone, Default)]
struct Shared {
    memory: Arc<Memory>,
    is_down: Arc<AtomicBool>,
    done: Arc<Mutex<Vec<&'static str>>>,
}

impl Shared {
    async fn act<T>(
        &self,
        what: &'static str,
        act: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.done.lock().unwrap().push(what);
        let mut polled = false;
        poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        if self.is_down.load(SeqCst) { Err(StoreErrorKind::Unavailable.into()) } else { act.await }
    }

    fn fails(&self, is_down: bool) {
        self.is_down.store(is_down, SeqCst);
    }

    /// Returns the calls since this was last called.
    fn done(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.done.lock().unwrap())
    }

    fn ring(&self) -> Table<Ring> {
        Table::new(AnyStore::from(self.clone()), "signing_keys", Arc::new(ManualClock::new()))
    }

    async fn bytes(&self) -> Option<Vec<u8>> {
        let key = Key::new("signing_keys", None, b"ring").unwrap();
        self.memory.get(&key).wait().await.unwrap().map(|entry| entry.value.to_vec())
    }
}

impl Store for Shared {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (own, key) = (self.clone(), key.clone());
        MaybeReady::Pending(async move { own.act("get", async { own.memory.get(&key).wait().await }).await })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.act("insert", self.memory.insert(key, record)).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.act("swap", self.memory.swap(key, expected, record)).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.act("take", self.memory.take(key)).await
    }
}

fn node(store: &Shared, clock: &ManualClock, seal: Seal, wanted: &[Algorithm]) -> Keys {
    Keys::new(AnyStore::from(store.clone()), Arc::new(clock.clone()), seal, wanted.to_vec(), SCHEDULE)
}

fn plain(store: &Shared, clock: &ManualClock) -> Keys {
    node(store, clock, Seal::default(), &WANTED)
}

fn kids(copy: &Copy) -> Vec<String> {
    copy.set.iter().map(|(kid, _)| kid.unwrap().to_owned()).collect()
}

fn signs(copy: &Copy, algorithm: Algorithm, clock: &ManualClock) -> String {
    copy.signer(algorithm, now(clock)).unwrap().kid.clone()
}

fn now(clock: &ManualClock) -> UnixTime {
    clock.unix(clock.now())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c102_nodes_that_make_keys_at_once_agree_on_one_ring() {
    for _ in 0..20 {
        let (store, clock) = (Shared::default(), ManualClock::new());
        let nodes: Vec<_> = (0..8).map(|_| plain(&store, &clock)).collect();
        // the first keys, then those that are due; exactly one node creates each key
        for (waits, count) in [(Duration::ZERO, 2), (SCHEDULE.period - HOUR, 4)] {
            clock.advance(waits);
            let calls: Vec<_> = nodes
                .iter()
                .cloned()
                .map(|keys| tokio::spawn(async move { kids(&keys.current().await.unwrap()) }))
                .collect();
            let mut rings = Vec::new();
            for call in calls {
                rings.push(call.await.unwrap());
            }
            rings.dedup();
            assert_eq!(rings.len(), 1, "{rings:?}");
            assert_eq!(rings[0].len(), count, "{rings:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rotations_at_once_are_one() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let nodes: Vec<_> = (0..4).map(|_| plain(&store, &clock)).collect();
    nodes[0].current().await.unwrap();
    let calls: Vec<_> = nodes.iter().cloned().map(|keys| tokio::spawn(async move { keys.rotate().await })).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    clock.advance(Duration::from_secs(60));
    let first = nodes[0].current().await.unwrap();
    assert_eq!(kids(&first).len(), 4);
    // until the new keys sign, later rotations add nothing either
    let before = store.bytes().await;
    nodes[1].rotate().await.unwrap();
    assert_eq!(store.bytes().await, before);
    clock.advance(HOUR);
    let first = nodes[0].current().await.unwrap();
    for node in &nodes {
        let copy = node.current().await.unwrap();
        assert_eq!(kids(&copy), kids(&first));
        assert_eq!(signs(&copy, Es256, &clock), signs(&first, Es256, &clock));
    }
    nodes[2].rotate().await.unwrap();
    assert_eq!(kids(&nodes[2].current().await.unwrap()).len(), 6);
}

#[tokio::test]
async fn c102_withdrawn_keys_are_gone_at_once_and_within_a_minute_on_other_nodes() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let (one, other) = (plain(&store, &clock), plain(&store, &clock));
    one.current().await.unwrap();
    one.rotate().await.unwrap();
    let old = kids(&other.current().await.unwrap());
    assert_eq!(old.len(), 4);
    one.withdraw().await.unwrap();
    let copy = one.current().await.unwrap();
    let new = kids(&copy);
    assert!(new.len() == 2 && new.iter().all(|kid| !old.contains(kid)), "{new:?}");
    assert!(new.contains(&signs(&copy, Es256, &clock)) && new.contains(&signs(&copy, EdDsa, &clock)));
    clock.advance(Duration::from_secs(60));
    let copy = other.current().await.unwrap();
    assert_eq!(kids(&copy), new);
    assert!(new.contains(&signs(&copy, Es256, &clock)));
    // an operator who has lost the secret starts over
    let sealed = node(&store, &clock, Seal::new(&Secret::generate()), &WANTED);
    sealed.withdraw().await.unwrap();
    let lost = node(&store, &clock, Seal::new(&Secret::generate()), &WANTED);
    assert!(lost.current().await.is_err());
    lost.withdraw().await.unwrap();
    assert_eq!(kids(&lost.current().await.unwrap()).len(), 2);
}

#[tokio::test]
async fn c102_other_nodes_see_a_rotation_within_a_minute_and_long_before_it_signs() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let (one, other) = (plain(&store, &clock), plain(&store, &clock));
    let old = signs(&one.current().await.unwrap(), Es256, &clock);
    let set = Arc::clone(&other.current().await.unwrap().set);
    one.rotate().await.unwrap();
    // at once on the node that rotated
    let published = kids(&one.current().await.unwrap());
    assert_eq!(published.len(), 4);
    clock.advance(Duration::from_secs(60) - Duration::from_nanos(1));
    store.done();
    let copy = other.current().await.unwrap();
    assert!(Arc::ptr_eq(&copy.set, &set) && other.fresh().is_some() && store.done().is_empty());
    clock.advance(Duration::from_nanos(1));
    assert!(other.fresh().is_none());
    assert_eq!(kids(&other.current().await.unwrap()), published);
    // clients may keep a copy of the keys for an hour
    clock.advance(HOUR - Duration::from_secs(60) - Duration::from_nanos(1));
    for node in [&one, &other] {
        assert_eq!(signs(&node.current().await.unwrap(), Es256, &clock), old);
    }
    clock.advance(Duration::from_nanos(1));
    let new = signs(&one.current().await.unwrap(), Es256, &clock);
    assert!(new != old && published.contains(&new));
    assert_eq!(signs(&other.current().await.unwrap(), Es256, &clock), new);
    // the old key is published for another day
    clock.advance(DAY - Duration::from_nanos(1));
    assert!(kids(&one.current().await.unwrap()).contains(&old));
    clock.advance(Duration::from_secs(60));
    for node in [&one, &other] {
        let left = kids(&node.current().await.unwrap());
        assert!(left.len() == 2 && !left.contains(&old) && left.contains(&new), "{left:?}");
    }
}

#[tokio::test]
async fn the_key_set_keeps_its_allocation_until_a_key_changes() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let keys = plain(&store, &clock);
    let set = Arc::clone(&keys.current().await.unwrap().set);
    for _ in 0..5 {
        clock.advance(Duration::from_secs(61));
        assert!(Arc::ptr_eq(&keys.current().await.unwrap().set, &set));
    }
    assert_eq!(store.done().iter().filter(|what| **what == "get").count(), 7);
    keys.rotate().await.unwrap();
    assert!(!Arc::ptr_eq(&keys.current().await.unwrap().set, &set));
}

#[tokio::test]
async fn an_unknown_kid_causes_one_read_at_once_and_no_other_for_five_seconds() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let (one, other) = (plain(&store, &clock), plain(&store, &clock));
    other.current().await.unwrap();
    let mut seen = Arc::clone(&one.current().await.unwrap().set);
    clock.advance(Duration::from_secs(5));
    other.rotate().await.unwrap();
    store.done();
    // the first request with one of the new keys
    let copy = one.reread_keys(&seen).await.unwrap();
    assert_eq!(kids(&copy).len(), 4);
    assert_eq!(store.done(), ["get"]);
    // a request that still holds the old set gets the new one without a read
    assert!(Arc::ptr_eq(&one.reread_keys(&seen).await.unwrap().set, &copy.set));
    seen = Arc::clone(&copy.set);
    let mut reads = 0;
    for second in 0..60_u32 {
        // made-up keys cause no reads
        for _ in 0..20 {
            assert!(Arc::ptr_eq(&one.reread_keys(&seen).await.unwrap().set, &seen));
        }
        reads += store.done().len();
        assert!(reads <= usize::try_from(second / 5).unwrap(), "{reads} in {second} s");
        clock.advance(SECOND);
    }
    assert_eq!(reads, 11);
}

#[tokio::test]
async fn while_the_store_fails_the_known_keys_are_used_and_it_is_retried_every_five_seconds() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let keys = plain(&store, &clock);
    let set = Arc::clone(&keys.current().await.unwrap().set);
    store.fails(true);
    clock.advance(Duration::from_secs(60));
    store.done();
    let mut asked = 0;
    for second in 0..30 {
        for _ in 0..5 {
            assert!(Arc::ptr_eq(&keys.current().await.unwrap().set, &set));
            assert!(Arc::ptr_eq(&keys.reread_keys(&set).await.unwrap().set, &set));
            assert!(keys.fresh().is_some());
        }
        asked += store.done().len();
        assert_eq!(asked, 1 + second / 5, "after {second} s");
        clock.advance(SECOND);
    }
    assert!(keys.rotate().await.is_err());
    // the store is back, and the copy is renewed after five seconds
    store.fails(false);
    plain(&store, &clock).rotate().await.unwrap();
    clock.advance(Duration::from_secs(5));
    assert_eq!(kids(&keys.current().await.unwrap()).len(), 4);
}

#[tokio::test]
async fn without_known_keys_a_failing_store_is_an_error_until_it_recovers() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let keys = plain(&store, &clock);
    store.fails(true);
    for _ in 0..3 {
        assert!(keys.fresh().is_none());
        assert_eq!(keys.current().await.unwrap_err().kind(), StoreErrorKind::Unavailable);
        assert!(keys.rotate().await.is_err());
    }
    store.fails(false);
    assert_eq!(kids(&keys.current().await.unwrap()).len(), 2);
}

/// A node with a wrong or missing secret gets an error, and the others go on.
#[tokio::test]
async fn a_node_with_another_seal_reads_and_writes_no_keys() {
    let (secret, wrong) = (Secret::generate(), Secret::generate());
    let (store, clock) = (Shared::default(), ManualClock::new());
    let right = node(&store, &clock, Seal::new(&secret), &WANTED);
    right.current().await.unwrap();
    let before = store.bytes().await.unwrap();
    // at once, with a new algorithm, and when keys are due
    for (waits, wanted) in [(0, &WANTED[..]), (0, &[Es256, Algorithm::Rs256]), (90, &WANTED)] {
        clock.advance(DAY * waits);
        for seal in [Seal::new(&wrong), Seal::default()] {
            let other = node(&store, &clock, seal, wanted);
            for _ in 0..2 {
                let error = other.current().await.unwrap_err();
                assert_eq!(error.kind(), StoreErrorKind::Corrupt);
                let source = std::error::Error::source(&error).unwrap().to_string();
                assert!(source.contains("sealed with another secret"), "{source}");
                assert!(other.rotate().await.is_err());
            }
        }
        assert_eq!(store.bytes().await.unwrap(), before);
    }
    // the node with the right secret goes on, and so does a new one
    for keys in [right, node(&store, &clock, Seal::new(&secret), &WANTED)] {
        assert_eq!(kids(&keys.current().await.unwrap()).len(), 4);
    }
}

/// The old secret is needed until the last key that it encrypted is no longer published.
#[tokio::test]
async fn a_node_with_a_new_seal_and_the_older_one_signs_with_the_stored_keys_and_seals_new_ones_with_the_new() {
    let (old, new) = (Secret::generate(), Secret::generate());
    let (store, clock) = (Shared::default(), ManualClock::new());
    let before = kids(&node(&store, &clock, Seal::new(&old), &WANTED).current().await.unwrap());
    let both = node(&store, &clock, Seal::new(&new).with_older(&old), &WANTED);
    assert_eq!(kids(&both.current().await.unwrap()), before);
    both.rotate().await.unwrap();
    assert_eq!(kids(&both.current().await.unwrap()).len(), 4);
    // one that has only one of them does not go on
    for seal in [&old, &new] {
        assert!(node(&store, &clock, Seal::new(seal), &WANTED).current().await.is_err());
    }
    clock.advance(HOUR + DAY);
    assert_eq!(kids(&both.current().await.unwrap()).len(), 2);
    assert!(node(&store, &clock, Seal::new(&new), &WANTED).current().await.is_ok());
}

/// Both nodes find no keys and create some.
#[tokio::test]
async fn of_two_concurrent_nodes_with_different_seals_one_succeeds() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let nodes = [(); 2].map(|()| node(&store, &clock, Seal::new(&Secret::generate()), &WANTED));
    let (one, other) = tokio::join!(nodes[0].current(), nodes[1].current());
    assert_eq!(u8::from(one.is_ok()) + u8::from(other.is_ok()), 1);
    for (node, worked) in nodes.iter().zip([one.is_ok(), other.is_ok()]) {
        clock.advance(HOUR);
        assert_eq!(node.current().await.is_ok(), worked);
    }
}

#[tokio::test]
async fn a_sealed_ring_contains_no_private_key_and_plain_keys_stay_usable_until_rotated_out() {
    let secret = Secret::generate();
    let (store, clock) = (Shared::default(), ManualClock::new());
    let private = async |seal: &Seal| {
        let ring = store.ring().get(None, b"ring").wait().await.unwrap().unwrap().value;
        ring.keys.iter().map(|row| seal.open(row.algorithm.as_str(), &row.secret)).collect::<Vec<_>>()
    };
    let shows = |bytes: &[u8], key: &[u8]| {
        let text = BASE64URL.encode(key);
        // looks for any part of the key
        text.as_bytes().windows(16).any(|part| bytes.windows(16).any(|found| found == part))
            || key.windows(8).any(|part| bytes.windows(8).any(|found| found == part))
    };
    let open = plain(&store, &clock);
    let plain_kids = kids(&open.current().await.unwrap());
    for key in private(&Seal::default()).await {
        assert!(shows(&store.bytes().await.unwrap(), &key.unwrap()), "or the search finds nothing");
    }
    let sealed = node(&store, &clock, Seal::new(&secret), &WANTED);
    assert_eq!(kids(&sealed.current().await.unwrap()), plain_kids);
    sealed.rotate().await.unwrap();
    assert_eq!(kids(&sealed.current().await.unwrap()).len(), 4);
    assert_eq!(private(&Seal::default()).await.iter().flatten().count(), 2, "the new ones are sealed");
    clock.advance(HOUR + DAY);
    assert_eq!(kids(&sealed.current().await.unwrap()).len(), 2);
    let bytes = store.bytes().await.unwrap();
    assert_eq!(private(&Seal::default()).await.iter().flatten().count(), 0);
    for key in private(&Seal::new(&secret)).await {
        assert!(!shows(&bytes, &key.unwrap()));
    }
}

#[tokio::test]
async fn a_node_whose_clock_is_behind_signs_with_a_published_key_and_changes_nothing() {
    let (store, clock) = (Shared::default(), ManualClock::new());
    let keys = plain(&store, &clock);
    let first = signs(&keys.current().await.unwrap(), Es256, &clock);
    let behind = ManualClock::new();
    behind.set_wall(UnixTime::from_secs(999_000_000));
    let late = plain(&store, &behind);
    let copy = late.current().await.unwrap();
    assert_eq!((signs(&copy, Es256, &behind), kids(&copy).len()), (first.clone(), 2));
    // a rotation that dropped the old key changes nothing
    keys.rotate().await.unwrap();
    clock.advance(HOUR + DAY);
    let second = signs(&keys.current().await.unwrap(), Es256, &clock);
    assert_ne!(second, first);
    behind.advance(Duration::from_secs(60));
    let (copy, before) = (late.current().await.unwrap(), store.bytes().await);
    assert_eq!((signs(&copy, Es256, &behind), kids(&copy).len()), (second, 2));
    behind.advance(Duration::from_secs(60));
    late.current().await.unwrap();
    assert_eq!(store.bytes().await, before);
}
