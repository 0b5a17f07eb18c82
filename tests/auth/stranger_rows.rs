//! Rows that anyone can cause, and how long they are kept.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
};

use tollgate::{
    auth::Passkeys,
    clock::UnixTime,
    gate::MaybeReady,
    store::{Entry, Key, Memory, Record, Store, StoreError, Version, WriteOutcome},
};

use crate::{
    soft_passkey::{RP_ID, SoftPasskey, begin, enrolled, prove},
    world::{ADA, World},
};

/// The table and the expiry of each row, by its key.
type Expiries = BTreeMap<Vec<u8>, (String, UnixTime)>;

/// A store that knows when its rows expire.
#[derive(Clone, Default)]
struct Rows(Arc<Memory>, Arc<Mutex<Expiries>>);

impl Rows {
    /// Returns the latest time at which a row of this table expires that was written since the last call.
    fn latest(&self, table: &str) -> Option<UnixTime> {
        let written = std::mem::take(&mut *self.1.lock().unwrap());
        written.into_values().filter(|(own, _)| own == table).map(|(_, expires_at)| expires_at).max()
    }

    fn note(&self, key: &Key, record: &Record) {
        self.1.lock().unwrap().insert(key.as_bytes().to_vec(), (key.table().to_owned(), record.expires_at()));
    }
}

impl Store for Rows {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        self.0.get(key)
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.note(key, &record);
        self.0.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.note(key, &record);
        self.0.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.1.lock().unwrap().remove(key.as_bytes());
        self.0.take(key).await
    }
}

#[tokio::test]
async fn made_up_passkeys_leave_rows_for_a_minute_only() {
    let (rows, acme) = (Rows::default(), "acme".parse::<tollgate::Tenant>().unwrap());
    let world = World::with(rows.clone(), |service| service.first_party(acme).passkeys(Passkeys::new(RP_ID))).await;
    let mut known = enrolled(&world, ADA).await;
    let mut browser = world.browser();
    for identifier in [None, Some(ADA)] {
        rows.latest("throttles");
        for _ in 0..3 {
            let begun = begin(&mut browser, "web", identifier).await;
            assert_eq!(prove(&mut browser, &begun, &SoftPasskey::new()).await.status, 401);
        }
        let latest = rows.latest("throttles").unwrap();
        assert_eq!(latest.as_secs(), world.time().as_secs() + 60, "{identifier:?}");
    }
    // failures with a known one are remembered for its account
    known.flags &= !0x04;
    let begun = begin(&mut browser, "web", None).await;
    assert_eq!(prove(&mut browser, &begun, &known).await.status, 401);
    assert_eq!(rows.latest("throttles").unwrap().as_secs(), world.time().as_secs() + 24 * 3600);
}

#[tokio::test]
async fn wrong_responses_of_a_known_passkey_and_of_a_made_up_one_are_refused_alike() {
    let acme = "acme".parse::<tollgate::Tenant>().unwrap();
    let world = World::with(Memory::new(), |service| service.first_party(acme).passkeys(Passkeys::new(RP_ID))).await;
    let mut known = enrolled(&world, ADA).await;
    known.flags &= !0x04;
    let mut answers = [known, SoftPasskey::new()].map(|passkey| (passkey, world.browser(), Vec::new()));
    for wait in [0, 0, 0, 0, 0, 0, 30, 0, 60, 0, 0] {
        world.advance(wait);
        for (passkey, browser, seen) in &mut answers {
            let begun = begin(browser, "web", None).await;
            let answer = prove(browser, &begun, passkey).await;
            seen.push((answer.status, answer.headers.get("retry-after").cloned()));
        }
    }
    assert_eq!(answers[0].2, answers[1].2);
    assert_eq!(answers[0].2.iter().filter(|(status, _)| *status == 429).count(), 2);
}
