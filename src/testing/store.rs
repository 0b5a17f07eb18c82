#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "the suite reports violations by panicking"
)]

use std::{
    collections::HashSet,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use crate::{
    store::{
        AnyStore, BoxFuture, Entry, Expected, Key, Operation, OperationOutcome, Record, Store, StoreErrorKind, Version,
        WriteOutcome,
        table::{Change, Stored, Table},
    },
    tenant::Tenant,
    testing::{clock::ManualClock, scan},
    util::clock::UnixTime,
};

/// Checks that a store fulfils the contract of [`Store`]. Panics at the first violation.
///
/// `make` returns a new, empty store at each call. `run` drives a future to completion on the
/// calling thread, and is called from many threads at once: use [`block_on`] for a store that needs
/// no runtime, or the `block_on` of a tokio handle.
///
/// ```
/// use tollgate::{store::Memory, testing};
///
/// testing::store_conformance(Memory::new, |future| testing::block_on(future));
/// ```
pub fn store_conformance<S: Store>(make: impl Fn() -> S, run: impl Fn(BoxFuture<'_, ()>) + Sync) {
    let fresh = || AnyStore::from(make());
    let alone = |check: BoxFuture<'_, ()>| run(check);
    alone(Box::pin(each_operation_answers_what_it_should(fresh())));
    alone(Box::pin(versions_never_come_back(fresh())));
    alone(Box::pin(odd_keys_are_keys(fresh())));
    alone(Box::pin(keys_never_collide(fresh())));
    alone(Box::pin(values_are_whole(fresh())));
    alone(Box::pin(what_lives_outlasts_writes_beside_what_expires(fresh())));
    alone(Box::pin(expiry_is_exact_by_the_clock(fresh())));
    alone(Box::pin(what_has_expired_is_no_hindrance(fresh())));
    alone(Box::pin(several_operations_are_executed_in_order(fresh())));
    alone(Box::pin(scan::each_entry_is_scanned(fresh())));
    of_many_inserts_one_wins(&fresh(), &run);
    of_many_runs_one_wins(&fresh(), &run);
    of_many_swaps_one_wins(&fresh(), &run);
    of_many_takes_one_gets_the_value(&fresh(), &run);
    of_two_that_write_and_then_read_one_sees_the_other(&fresh(), &run);
    no_update_is_lost(&fresh(), &run);
}

/// Drives a future to completion on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
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

const THREADS: usize = 8;

async fn each_operation_answers_what_it_should(store: AnyStore) {
    let key = key("table", None, "id");
    assert_eq!(get(&store, &key).await, None, "a new store is not empty");
    assert_eq!(take_key(&store, &key).await, None);
    let missing = swap(&store, &key, Version::from_u64(1), "new").await;
    assert_eq!(missing, WriteOutcome::Lost(None), "a swap of nothing");

    let first = done(insert(&store, &key, "first").await);
    let entry = get(&store, &key).await.expect("an inserted value exists");
    assert_eq!((&entry.value[..], entry.version, entry.expires_at), (&b"first"[..], first, FAR));
    let again = insert(&store, &key, "again").await;
    assert_eq!(again, WriteOutcome::Lost(Some(entry)), "an insert over a value returns the existing entry");

    let second = done(swap(&store, &key, first, "second").await);
    let entry = get(&store, &key).await.expect("a swapped value exists");
    assert_eq!((&entry.value[..], entry.version), (&b"second"[..], second));
    let stale = swap(&store, &key, first, "stale").await;
    assert_eq!(stale, WriteOutcome::Lost(Some(entry.clone())), "a swap of an old version returns the existing entry");

    assert_eq!(take_key(&store, &key).await, Some(entry), "take returns the existing entry");
    assert_eq!(take_key(&store, &key).await, None, "take returns an entry once");
    assert_eq!(get(&store, &key).await, None);
    assert_eq!(swap(&store, &key, second, "late").await, WriteOutcome::Lost(None), "a swap of a taken entry");
}

async fn several_operations_are_executed_in_order(store: AnyStore) {
    let [one, two, three] = [b"1", b"2", b"3"].map(|id| key("table", None, id));
    let write = |key: &Key, over: Option<Version>, value: &str| {
        Operation::Write(key.clone(), over.into(), record(value.as_bytes()))
    };
    let read = |key: &Key| Operation::Read(key.clone());
    let run = async |operations: Vec<Operation>| store.run(operations).await.expect("operations");

    assert_eq!(run(Vec::new()).await, [], "no operations");
    let mut outcomes = run(vec![read(&one), write(&one, None, "a"), read(&one), write(&two, None, "b")]).await;
    let Some(OperationOutcome::Write(second)) = outcomes.pop() else { panic!("a write has another outcome") };
    let [first, second] = [get(&store, &one).await, get(&store, &two).await.filter(|it| it.version == done(second))]
        .map(|entry| entry.expect("a value was written"));
    assert_eq!((&first.value[..], &second.value[..]), (&b"a"[..], &b"b"[..]));
    let found = OperationOutcome::Read(Some(first.clone()));
    let written = OperationOutcome::Write(WriteOutcome::Done(first.version));
    assert_eq!(outcomes, [OperationOutcome::Read(None), written, found.clone()], "a read sees the writes before it");

    // nothing happens after a write that loses, and what came before stays
    let stale = Version::from_u64(u64::MAX);
    for (over, lost) in [(None, Some(second.clone())), (Some(stale), Some(second.clone()))] {
        let before = get(&store, &one).await.expect("it exists");
        let swap = write(&one, Some(before.version), "c");
        let mut outcomes =
            run(vec![read(&one), swap, write(&two, over, "d"), write(&three, None, "e"), read(&one)]).await;
        assert_eq!(outcomes.len(), 3, "the operations stop after a write that loses");
        assert_eq!(outcomes.pop(), Some(OperationOutcome::Write(WriteOutcome::Lost(lost))));
        assert_eq!(outcomes.first(), Some(&OperationOutcome::Read(Some(before))));
        assert_eq!(get(&store, &one).await.map(|entry| entry.value), Some("c".into()));
        assert_eq!(get(&store, &two).await, Some(second.clone()));
        assert_eq!(get(&store, &three).await, None);
    }
    let missing = run(vec![write(&three, Some(stale), "f")]).await;
    assert_eq!(missing, [OperationOutcome::Write(WriteOutcome::Lost(None))], "a swap of nothing");

    // an expired entry may be removed at any time
    let expired = |key: &Key, version| vec![Operation::Write(key.clone(), Expected::Expired(version), record(b"g"))];
    let first = get(&store, &one).await.expect("it exists");
    let lost = run(expired(&one, stale)).await;
    assert_eq!(lost, [OperationOutcome::Write(WriteOutcome::Lost(Some(first.clone())))], "another entry has come");
    for (key, version) in [(&one, first.version), (&three, stale)] {
        run(expired(key, version)).await;
        assert_eq!(get(&store, key).await.map(|entry| entry.value), Some("g".into()), "the old entry or none is there");
    }
}

async fn versions_never_come_back(store: AnyStore) {
    let key = key("table", None, "id");
    let mut seen = HashSet::new();
    for _ in 0..20 {
        let mut version = done(insert(&store, &key, "same").await);
        assert!(seen.insert(version), "an insert repeated a version");
        for _ in 0..2 {
            version = done(swap(&store, &key, version, "same").await);
            assert!(seen.insert(version), "a swap repeated a version");
        }
        assert!(take_key(&store, &key).await.is_some());
    }
    let now = done(insert(&store, &key, "same").await);
    for old in seen {
        assert!(
            matches!(swap(&store, &key, old, "lost").await, WriteOutcome::Lost(Some(_))),
            "an old version was accepted"
        );
    }
    assert_eq!(get(&store, &key).await.map(|entry| entry.version), Some(now));
}

async fn odd_keys_are_keys(store: AnyStore) {
    let ids = [
        b"".to_vec(),
        b"\0".to_vec(),
        b"\0\0".to_vec(),
        b"a\0b".to_vec(),
        b":/%{}*?\r\n\"' ".to_vec(),
        vec![0xff; 32],
        (0..=255).collect(),
        vec![b'k'; Key::MAX_ID - 1],
        vec![b'k'; Key::MAX_ID],
    ];
    let tables = ["t", "t:u", "\0", "täble", &"t".repeat(Key::MAX_TABLE)];
    for table in tables {
        for id in &ids {
            let key = key(table, None, id);
            done(insert(&store, &key, id).await);
        }
    }
    for table in tables {
        for id in &ids {
            let entry = take_key(&store, &key(table, None, id)).await.expect("an unusual key exists");
            assert_eq!(&entry.value[..], id, "an unusual key has the value of another");
        }
    }
}

async fn keys_never_collide(store: AnyStore) {
    let longest = "x".repeat(Tenant::MAX_LEN);
    let names = [None, Some("a"), Some("ab"), Some("b"), Some("a:b"), Some(longest.as_str())];
    let tenants = names.map(|name| name.map(|name| Tenant::parse(name).expect("a valid name")));
    let mut keys = Vec::new();
    for tenant in &tenants {
        for (table, id) in [("a", "bc"), ("ab", "c"), ("abc", ""), ("a", "b:c"), ("a:b", "c"), ("a", "abc"), ("b", "c")]
        {
            keys.push(key(table, tenant.as_ref(), id));
        }
    }
    for (number, key) in keys.iter().enumerate() {
        done(insert(&store, key, number.to_string()).await);
    }
    for (number, key) in keys.iter().enumerate() {
        let entry = get(&store, key).await.expect("each key exists");
        assert_eq!(entry.value, number.to_string(), "{key:?} holds the value of another key");
    }
}

async fn values_are_whole(store: AnyStore) {
    for len in [0, 1, 255, 4095, 4096, 4097, Record::MAX_VALUE - 1, Record::MAX_VALUE] {
        let key = key("table", None, len.to_string());
        let value = (0..len).map(|place| (place % 251) as u8).collect::<Vec<_>>();
        let version = done(insert(&store, &key, &value).await);
        assert_eq!(get(&store, &key).await.expect("the entry exists").value, value, "a value of {len} bytes");
        let reversed = value.into_iter().rev().collect::<Vec<_>>();
        done(swap(&store, &key, version, &reversed).await);
        assert_eq!(take_key(&store, &key).await.expect("the entry exists").value, reversed, "a value of {len} bytes");
    }
}

async fn what_lives_outlasts_writes_beside_what_expires(store: AnyStore) {
    let record = |at: u64, until: u64| {
        let value = until.to_string();
        Record::new(value, UnixTime::from_secs(at), UnixTime::from_secs(until)).expect("within the limits")
    };
    // each second adds an entry that lives for a second and one that lives on
    for second in START..START + 200 {
        for (id, until) in [(format!("short {second}"), second + 1), (format!("long {second}"), START + 1000)] {
            let key = key("table", None, id);
            done(store.insert(&key, record(second, until)).await.expect("an insert"));
        }
    }
    for second in START..START + 200 {
        let entry = get(&store, &key("table", None, format!("long {second}"))).await;
        assert!(entry.is_some(), "a live value was removed");
    }
}

async fn expiry_is_exact_by_the_clock(store: AnyStore) {
    let (clock, table) = table(&store);
    let until = table.now() + Duration::from_secs(60);
    let insert = async |id: &[u8]| done(table.insert(None, id, &1, until).await.expect("an insert"));
    for id in [&b"read"[..], b"swapped", b"updated", b"treated as live", b"taken late", b"inserted"] {
        insert(id).await;
    }
    let read = table.get(None, b"swapped").wait().await.expect("a read").expect("the entry exists");

    clock.advance(Duration::from_secs(60) - Duration::from_millis(1));
    let lives =
        |stored: Option<Stored<u32>>| stored.is_some_and(|stored| stored.value == 1 && stored.expires_at == until);
    assert!(lives(table.get(None, b"read").wait().await.expect("a read")), "gone 1 ms too early");
    assert!(lives(table.take_value(None, b"treated as live").await.expect("a take")), "gone 1 ms too early for a take");
    let lost = table.insert(None, b"inserted", &2, until).await.expect("an insert");
    assert!(matches!(lost, WriteOutcome::Lost(Some(stored)) if stored.value == 1), "an insert over a live value");

    clock.advance(Duration::from_millis(1));
    assert_eq!(table.get(None, b"read").wait().await.expect("a read"), None, "still readable at its expiry");
    assert_eq!(table.take_value(None, b"taken late").await.expect("a take"), None, "taken at its expiry");
    let later = until + Duration::from_secs(60);
    let swapped = table.swap(None, b"swapped", &read, &2, later).await.expect("a swap");
    assert_eq!(swapped, WriteOutcome::Lost(None), "swapped at its expiry");
    let found = table.update(None, b"updated", |found, _| Change::<u32, _>::Keep(found.copied())).await;
    assert_eq!(found.expect("an update"), None, "updated at its expiry");
    assert!(matches!(table.insert(None, b"inserted", &2, later).await, Ok(WriteOutcome::Done(_))), "blocks an insert");
    let inserted = table.get(None, b"inserted").wait().await.expect("a read");
    assert_eq!(inserted.map(|stored| (stored.value, stored.expires_at)), Some((2, later)));
    table.remove(None, b"inserted").await.expect("a removal");
    assert_eq!(table.get(None, b"inserted").wait().await.expect("a read"), None, "still readable after its removal");
}

async fn what_has_expired_is_no_hindrance(store: AnyStore) {
    let (clock, table) = table(&store);
    for round in 0..50 {
        let until = table.now() + Duration::from_secs(1);
        done(table.insert(None, b"id", &round, until).await.expect("an insert"));
        clock.advance(Duration::from_secs(1));
        let counted = table.update(None, b"counter", |found, now| {
            Change::Put(found.map_or(1, |count| count + 1), now + Duration::from_secs(10), found.copied())
        });
        assert!(counted.await.expect("an update") < Some(50));
    }
}

fn of_many_inserts_one_wins(store: &AnyStore, run: &(impl Fn(BoxFuture<'_, ()>) + Sync)) {
    for round in 0..20 {
        let key = key("table", None, round.to_string());
        let key = &key;
        let won = race(run, |me| {
            Box::pin(async move { matches!(insert(store, key, me.to_string()).await, WriteOutcome::Done(_)) })
        });
        assert_eq!(won.len(), 1, "of {THREADS} inserts of one key, these succeeded: {won:?}");
        run(Box::pin(async {
            let entry = get(store, key).await.expect("the entry exists");
            assert_eq!(
                entry.value,
                won.iter().map(usize::to_string).collect::<String>(),
                "not the value of the winner"
            );
        }));
    }
}

fn of_many_swaps_one_wins(store: &AnyStore, run: &(impl Fn(BoxFuture<'_, ()>) + Sync)) {
    let key = &key("table", None, "id");
    run(Box::pin(async {
        done(insert(store, key, "start").await);
    }));
    for _ in 0..20 {
        let version = Mutex::new(None);
        run(Box::pin(async {
            let entry = get(store, key).await;
            *lock(&version) = entry.map(|entry| entry.version);
        }));
        let expected = lock(&version).take().expect("the entry exists");
        let won = race(run, |me| {
            Box::pin(async move { matches!(swap(store, key, expected, me.to_string()).await, WriteOutcome::Done(_)) })
        });
        assert_eq!(won.len(), 1, "of {THREADS} swaps of one version, these succeeded: {won:?}");
        run(Box::pin(async {
            let entry = get(store, key).await.expect("the entry exists");
            assert_eq!(
                entry.value,
                won.iter().map(usize::to_string).collect::<String>(),
                "not the value of the winner"
            );
        }));
    }
}

fn of_many_takes_one_gets_the_value(store: &AnyStore, run: &(impl Fn(BoxFuture<'_, ()>) + Sync)) {
    for round in 0..20 {
        let key = key("table", None, round.to_string());
        run(Box::pin(async {
            done(insert(store, &key, "code").await);
        }));
        let key = &key;
        let won = race(run, |_| Box::pin(async move { take_key(store, key).await.is_some() }));
        assert_eq!(won.len(), 1, "of {THREADS} takes of one value, these received it: {won:?}");
    }
}

/// Each thread tries to write the same two rows in opposite orders.
fn of_many_runs_one_wins(store: &AnyStore, run: &(impl Fn(BoxFuture<'_, ()>) + Sync)) {
    for round in 0..20_u32 {
        let [first, second] = ["first", "second"].map(|name| key(name, None, round.to_be_bytes()));
        let winners = race(run, |me| {
            let write = |key: &Key| Operation::Write(key.clone(), Expected::Absent, record(&[me as u8]));
            let keys = if me % 2 == 0 { [&first, &second] } else { [&second, &first] };
            let operations = keys.map(write).into();
            Box::pin(async move {
                let outcomes = store.run(operations).await.expect("operations");
                outcomes.iter().all(|outcome| matches!(outcome, OperationOutcome::Write(WriteOutcome::Done(_))))
            })
        });
        // two that began at different ends can stop each other
        assert!(winners.len() <= 1, "several runs wrote the same rows");
    }
}

/// One thread writes a row and reads another one in one call, and a second one writes that one and then reads the first.
fn of_two_that_write_and_then_read_one_sees_the_other(store: &AnyStore, run: &(impl Fn(BoxFuture<'_, ()>) + Sync)) {
    for round in 0..50_u32 {
        let rows = [0_u8, 1].map(|row| key("table", None, [&round.to_be_bytes()[..], &[row]].concat()));
        let [begun, ended] = &rows;
        let saw = race(run, |me| {
            let write = |key: &Key| Operation::Write(key.clone(), Expected::Absent, record(b"x"));
            let call = vec![write(begun), Operation::Read(ended.clone())];
            Box::pin(async move {
                match me {
                    0 => {
                        let outcomes = store.run(call).await.expect("operations");
                        matches!(outcomes.last(), Some(OperationOutcome::Read(Some(_))))
                    }
                    1 => {
                        done(insert(store, ended, "x").await);
                        get(store, begun).await.is_some()
                    }
                    _ => false,
                }
            })
        });
        assert!(!saw.is_empty(), "neither of two calls saw the write of the other");
    }
}

/// Interleaved tasks on several threads all count in one row.
fn no_update_is_lost(store: &AnyStore, run: &(impl Fn(BoxFuture<'_, ()>) + Sync)) {
    const TASKS: usize = 4;
    const EACH: usize = 5;
    let (_, table) = &table(store);
    race(run, |_| {
        Box::pin(async move {
            let mut tasks = (0..TASKS).map(|_| Box::pin(count(table, EACH))).collect::<Vec<_>>();
            let all = poll_fn(|context| {
                tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
                if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            });
            all.await;
            true
        })
    });
    run(Box::pin(async {
        let counted = table.get(None, b"counter").wait().await.expect("a read").expect("the entry exists");
        assert_eq!(counted.value as usize, THREADS * TASKS * EACH, "updates were lost");
    }));
}

async fn count(table: &Table<u32>, times: usize) {
    for _ in 0..times {
        let add = |found: Option<&u32>, _| Change::Put(found.map_or(1, |count| count + 1), FAR, ());
        while let Err(error) = table.update(None, b"counter", add).await {
            assert_eq!(error.kind(), StoreErrorKind::Busy);
        }
    }
}

/// Starts one future on each of several threads at once, and returns which ones returned true.
fn race<'a>(
    run: &(impl Fn(BoxFuture<'_, ()>) + Sync),
    each: impl Fn(usize) -> BoxFuture<'a, bool> + Sync,
) -> Vec<usize> {
    let (start, won) = (Barrier::new(THREADS), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (start, won, each) = (&start, &won, &each);
            scope.spawn(move || {
                start.wait();
                run(Box::pin(async move {
                    if each(me).await {
                        lock(won).push(me);
                    }
                }));
            });
        }
    });
    won.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const START: u64 = 2_000_000_000;
const NOW: UnixTime = UnixTime::from_secs(START);
const FAR: UnixTime = UnixTime::from_secs(START + 1_000_000);

fn key(table: &str, tenant: Option<&Tenant>, id: impl AsRef<[u8]>) -> Key {
    Key::new(table, tenant, id).expect("within the limits")
}

/// A table in a store of its own, and its clock.
fn table(store: &AnyStore) -> (ManualClock, Table<u32>) {
    let clock = ManualClock::new();
    clock.set_wall(NOW);
    (clock.clone(), Table::new(store.clone(), "table", Arc::new(clock)))
}

async fn get(store: &AnyStore, key: &Key) -> Option<Entry> {
    store.get(key).wait().await.expect("a read")
}

async fn insert(store: &AnyStore, key: &Key, value: impl AsRef<[u8]>) -> WriteOutcome {
    store.insert(key, record(value.as_ref())).await.expect("an insert")
}

async fn swap(store: &AnyStore, key: &Key, expected: Version, value: impl AsRef<[u8]>) -> WriteOutcome {
    store.swap(key, expected, record(value.as_ref())).await.expect("a swap")
}

async fn take_key(store: &AnyStore, key: &Key) -> Option<Entry> {
    store.take(key).await.expect("a take")
}

fn record(value: &[u8]) -> Record {
    Record::new(value.to_vec(), NOW, FAR).expect("within the limits")
}

fn done<E>(outcome: WriteOutcome<E>) -> Version {
    match outcome {
        WriteOutcome::Done(version) => version,
        WriteOutcome::Lost(_) => panic!("a write without competition was lost"),
    }
}
