//! Checks that a scan of a store returns all entries.
#![expect(clippy::expect_used, clippy::panic, reason = "the suite reports violations by panicking")]

use std::collections::HashMap;

use bytes::Bytes;

use crate::{
    store::{
        AnyStore, Entry, Expected, Key, Operation, OperationOutcome, Record, ScanCursor, ScanPage, StoreErrorKind,
        WriteOutcome,
    },
    tenant::Tenant,
    util::clock::UnixTime,
};

const NOW: UnixTime = UnixTime::from_secs(2_000_000_000);
const FAR: UnixTime = UnixTime::from_secs(2_001_000_000);

/// A store need not offer scans.
pub(super) async fn each_entry_is_scanned(store: AnyStore) {
    match store.scan(None).await {
        Err(error) if error.kind() == StoreErrorKind::NotOffered => return,
        page => assert_eq!(rest(&store, page.expect("a page")).await, HashMap::new(), "a new store is not empty"),
    }
    let tenants = [None, Some(Tenant::parse("acme").expect("a name"))];
    let keys = (0..1200).zip(tenants.iter().cycle()).map(|(number, tenant)| key("table", tenant.as_ref(), number));
    let keys: Vec<Key> = keys.collect();
    let mut expected = HashMap::new();
    for keys in keys.chunks(30) {
        expected.extend(write(&store, keys).await);
    }
    for key in keys.iter().take(10) {
        assert_eq!(store.take(key).await.expect("a take"), expected.remove(key));
    }
    let first = store.scan(None).await.expect("a page");
    assert_eq!(rest(&store, first.clone()).await, expected, "a scan returns each entry as it is");

    // what is there all the time is found, even if others are written and removed
    let (mut page, mut found) = (first, HashMap::new());
    for number in 0.. {
        let other = key("other", None, number);
        write(&store, std::slice::from_ref(&other)).await;
        if number % 2 == 0 {
            assert!(store.take(&other).await.expect("a take").is_some());
        }
        found.extend(page.entries);
        let Some(next) = page.next else { break };
        page = store.scan(Some(next)).await.expect("a page");
    }
    found.retain(|key, _| key.table() == "table");
    assert_eq!(found, expected, "a scan misses entries while others change");
    if let Err(error) = store.scan(Some(ScanCursor::new(vec![b'x'; 2000]))).await {
        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    }
}

fn key(table: &str, tenant: Option<&Tenant>, number: u32) -> Key {
    Key::new(table, tenant, number.to_be_bytes()).expect("within the limits")
}

/// Writes a new entry for each key.
async fn write(store: &AnyStore, keys: &[Key]) -> Vec<(Key, Entry)> {
    let writes = keys.iter().map(|key| {
        let record = Record::new(key.id().to_vec(), NOW, FAR).expect("within the limits");
        Operation::Write(key.clone(), Expected::Absent, record)
    });
    let outcomes = store.run(writes.collect()).await.expect("operations");
    let written = keys.iter().zip(outcomes).map(|(key, outcome)| match outcome {
        OperationOutcome::Write(WriteOutcome::Done(version)) => {
            (key.clone(), Entry { value: Bytes::copy_from_slice(key.id()), version, expires_at: FAR })
        }
        lost => panic!("a write without competition was lost: {lost:?}"),
    });
    written.collect()
}

/// Returns the entries of this page and of those after it.
async fn rest(store: &AnyStore, mut page: ScanPage) -> HashMap<Key, Entry> {
    let mut found = HashMap::new();
    loop {
        found.extend(page.entries);
        let Some(next) = page.next else { return found };
        page = store.scan(Some(next)).await.expect("a page");
    }
}
