//! Compares all stores with a plain map, through the typed layer and without it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{
    any::AnyStore,
    key::Key,
    memory::Memory,
    record::{Record, Version, WriteOutcome},
    table::{Stored, Table},
};
use crate::{
    tenant::Tenant,
    testing::{ManualClock, block_on},
    util::clock::UnixTime,
};

#[derive(Clone, Debug)]
enum Operation {
    Get,
    Insert { value: String, lives_ms: u64 },
    Swap { stale: bool, value: String, lives_ms: u64 },
    Take,
    Advance { ms: u64 },
    Reopen,
}

fn operation() -> impl Strategy<Value = (u8, u8, Operation)> {
    let write = || (".{0,40}", 1..50_u64);
    let operation = prop_oneof![
        3 => Just(Operation::Get),
        4 => write().prop_map(|(value, lives_ms)| Operation::Insert { value, lives_ms }),
        4 => (any::<bool>(), write())
            .prop_map(|(stale, (value, lives_ms))| Operation::Swap { stale, value, lives_ms }),
        2 => Just(Operation::Take),
        3 => (0..30_u64).prop_map(|ms| Operation::Advance { ms }),
        1 => Just(Operation::Reopen),
    ];
    (0..3_u8, 0..3_u8, operation)
}

/// Checks the typed layer, which must be exact to the millisecond.
fn table_agrees(operations: Vec<(u8, u8, Operation)>, mut reopen: impl FnMut(Option<AnyStore>) -> AnyStore) {
    let clock = ManualClock::new();
    let mut table = Table::<String>::new(reopen(None), "model", Arc::new(clock.clone()));
    let tenants = [None, Some(Tenant::parse("a").unwrap()), Some(Tenant::parse("ab").unwrap())];
    let mut model = HashMap::<(u8, u8), Stored<String>>::new();
    let mut last_read = HashMap::<(u8, u8), Stored<String>>::new();
    for (tenant, id, operation) in operations {
        let place = (tenant, id);
        let tenant = tenants[usize::from(tenant)].as_ref();
        let id = &b"bcd"[..usize::from(id)];
        let now = table.now();
        model.retain(|_, stored| now < stored.expires_at);
        match operation {
            Operation::Get => {
                let found = block_on(table.get(tenant, id).wait()).unwrap();
                assert_eq!(found.as_ref(), model.get(&place));
                last_read.extend(found.map(|found| (place, found)));
            }
            Operation::Insert { value, lives_ms } => {
                let expires_at = now + Duration::from_millis(lives_ms);
                match block_on(table.insert(tenant, id, &value, expires_at)).unwrap() {
                    WriteOutcome::Done(version) => {
                        assert!(!model.contains_key(&place));
                        model.insert(place, Stored { value, version, expires_at });
                    }
                    WriteOutcome::Lost(found) => assert_eq!(found.as_ref(), Some(&model[&place])),
                }
            }
            Operation::Swap { stale, value, lives_ms } => {
                let source = if stale { &last_read } else { &model };
                let Some(read) = source.get(&place).cloned() else { continue };
                let expires_at = now + Duration::from_millis(lives_ms);
                match block_on(table.swap(tenant, id, &read, &value, expires_at)).unwrap() {
                    WriteOutcome::Done(version) => {
                        assert_eq!(model.get(&place), Some(&read));
                        assert_ne!(version, read.version);
                        model.insert(place, Stored { value, version, expires_at });
                    }
                    WriteOutcome::Lost(found) => {
                        assert_ne!(model.get(&place), Some(&read));
                        if now < read.expires_at {
                            assert_eq!(found.as_ref(), model.get(&place));
                        }
                    }
                }
            }
            Operation::Take => {
                assert_eq!(block_on(table.take_value(tenant, id)).unwrap(), model.remove(&place));
            }
            Operation::Advance { ms } => clock.advance(Duration::from_millis(ms)),
            Operation::Reopen => {
                // the table must release the file first
                let store = table.into_store();
                table = Table::new(reopen(Some(store)), "model", Arc::new(clock.clone()));
            }
        }
    }
}

/// Checks a store. Expired entries may or may not be removed yet.
fn engine_agrees(operations: Vec<(u8, u8, Operation)>, mut reopen: impl FnMut(Option<AnyStore>) -> AnyStore) {
    let mut store = reopen(None);
    let mut now = UnixTime::from_secs(1_000_000_000);
    let mut model = HashMap::<Key, (Version, UnixTime, String)>::new();
    let mut given = HashMap::<Key, Vec<Version>>::new();
    for (tenant, id, operation) in operations {
        let tenant = Tenant::parse([b"a", b"b", b"c"][usize::from(tenant)]).unwrap();
        let key = Key::new("model", Some(&tenant), [id]).unwrap();
        let found = block_on(store.get(&key).wait()).unwrap();
        let found =
            found.map(|entry| (entry.version, entry.expires_at, String::from_utf8(entry.value.into()).unwrap()));
        match (&found, model.get(&key)) {
            (Some(found), Some(expected)) => assert_eq!(found, expected),
            (None, Some((_, expires_at, _))) => {
                assert!(*expires_at <= now, "a live entry was removed");
                model.remove(&key);
            }
            (found, None) => assert_eq!(found, &None),
        }
        let (expected, value, lives_ms) = match operation {
            Operation::Insert { value, lives_ms } => (None, value, lives_ms),
            Operation::Swap { stale, value, lives_ms } => {
                let old = given.get(&key).and_then(|versions| versions.first()).copied();
                let current = found.as_ref().map(|found| found.0);
                let Some(version) = (if stale { old } else { current }) else { continue };
                (Some(version), value, lives_ms)
            }
            Operation::Take => {
                let taken = block_on(store.take(&key)).unwrap();
                assert_eq!(taken.map(|entry| entry.version), model.remove(&key).map(|entry| entry.0));
                continue;
            }
            Operation::Advance { ms } => {
                now = now + Duration::from_millis(ms);
                continue;
            }
            Operation::Reopen => {
                store = reopen(Some(store));
                continue;
            }
            Operation::Get => continue,
        };
        let expires_at = now + Duration::from_millis(lives_ms);
        let record = Record::new(value.clone(), now, expires_at).unwrap();
        let outcome = match expected {
            None => block_on(store.insert(&key, record)),
            Some(version) => block_on(store.swap(&key, version, record)),
        };
        match outcome.unwrap() {
            WriteOutcome::Done(version) => {
                assert_eq!(found.map(|found| found.0), expected);
                let given = given.entry(key.clone()).or_default();
                assert!(!given.contains(&version), "a version was repeated");
                given.push(version);
                model.insert(key, (version, expires_at, value));
            }
            WriteOutcome::Lost(_) => assert_ne!(found.map(|found| found.0), expected),
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn memory_agrees_with_a_plain_map(operations in vec(operation(), 0..120)) {
        // reopening keeps all entries
        table_agrees(operations.clone(), |store| store.unwrap_or_else(|| Memory::new().into()));
        engine_agrees(operations, |store| store.unwrap_or_else(|| Memory::new().into()));
    }
}

#[cfg(feature = "store-disk")]
proptest! {
    #![proptest_config(Config { cases: 40, failure_persistence: None, ..Config::default() })]

    #[test]
    fn disk_agrees_with_a_plain_map(operations in vec(operation(), 0..60)) {
        let directory = std::env::temp_dir().join(format!("tollgate-model-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let reopen = |path: &'static str| {
            let path = directory.join(path);
            let _ = std::fs::remove_file(&path);
            move |store: Option<AnyStore>| {
                drop(store);
                AnyStore::from(super::Disk::open(&path).unwrap())
            }
        };
        table_agrees(operations.clone(), reopen("table"));
        engine_agrees(operations, reopen("engine"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
