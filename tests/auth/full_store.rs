//! A store without room: writes fail before they take effect, and reads go on.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::SeqCst},
};

use tollgate::{
    MaybeReady,
    store::{
        Entry, Key, Memory, Operation, OperationOutcome, Record, Store, StoreError, StoreErrorKind, Version,
        WriteOutcome,
    },
};

use crate::world::{ADA, World};

/// A store that executes each call whole or not at all. Clones share everything.
#[derive(Clone)]
struct FullStore {
    memory: Arc<Memory>,
    /// The number of calls with writes for which there is room.
    room: Arc<AtomicI64>,
}

impl FullStore {
    fn write(&self) -> Result<(), StoreError> {
        if self.room.fetch_sub(1, SeqCst) > 0 { Ok(()) } else { Err(StoreErrorKind::Full.into()) }
    }
}

impl Store for FullStore {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        self.memory.get(key)
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write()?;
        self.memory.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write()?;
        self.memory.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.memory.take(key).await
    }

    async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
        if operations.iter().any(|operation| matches!(operation, Operation::Write(..))) {
            self.write()?;
        }
        self.memory.run(operations).await
    }
}

#[tokio::test]
async fn b40_a_completed_login_stays_usable_while_there_is_no_room() {
    let store = FullStore { memory: Arc::default(), room: Arc::new(AtomicI64::new(i64::MAX)) };
    let world = World::with(store.clone(), |service| service).await;
    let mut failures = 0;
    // the first login of the user, and later ones, which find a list of sessions
    for round in 0..4 {
        let mut room = 0;
        loop {
            let mut browser = world.browser();
            store.room.store(i64::MAX, SeqCst);
            browser.log_in("web", ADA).await;
            store.room.store(room, SeqCst);
            let answer = browser.authorize("web").await;
            store.room.store(i64::MAX, SeqCst);
            if answer.status == 302 && answer.redirected("code").is_some() {
                break;
            }
            assert_eq!(answer.redirected("error").as_deref(), Some("temporarily_unavailable"), "{answer:?}");
            failures += 1;
            // there is room again
            let again = browser.authorize("web").await;
            assert!(again.redirected("code").is_some(), "round {round}, room for {room} writes: {again:?}");
            assert_eq!(browser.authorize("web").await.redirected("code"), None, "it is used up now");
            room += 1;
        }
    }
    assert!(failures >= 4, "{failures}");
    // no attempt has left a session that never began
    let (acme, ada) = (tollgate::Tenant::parse("acme").unwrap(), tollgate::UserId::parse("u-ada").unwrap());
    let list = store.memory.get(&Key::new("session_users", Some(&acme), "u-ada").unwrap()).wait().await.unwrap();
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&list.unwrap().value).unwrap();
    assert_eq!(world.sessions.list(&acme, &ada).await.unwrap().len(), listed.len());
}

#[tokio::test]
async fn b33_the_check_of_the_store_fails_while_there_is_no_room() {
    let store = FullStore { memory: Arc::default(), room: Arc::new(AtomicI64::new(i64::MAX)) };
    let world = World::with(store.clone(), |service| service).await;
    for _ in 0..3 {
        world.service.check_store().await.unwrap();
        store.room.store(0, SeqCst);
        assert_eq!(world.service.check_store().await.unwrap_err().kind(), StoreErrorKind::Full);
        store.room.store(i64::MAX, SeqCst);
        // its row may have expired
        world.advance(61);
    }
}
