//! A store that may have lost revocations refuses the access tokens that were issued before.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use tollgate::{
    ClientTable, Tokens,
    clock::UnixTime,
    gate::MaybeReady,
    store::{AnyStore, Entry, Key, Memory, Record, Store, StoreError, Version, WriteOutcome},
    testing::ManualClock,
};

use crate::{
    issued_tokens::IssuedTokens,
    special_worlds::client,
    world::{ADA, ADA_PASSWORD, World},
};

/// A store on a server that was replaced at this second.
struct Replaced(Memory, Arc<AtomicU64>);

impl Store for Replaced {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        self.0.get(key)
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.0.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.0.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.0.take(key).await
    }

    fn is_persistent(&self) -> bool {
        self.0.is_persistent()
    }

    fn complete_since(&self) -> UnixTime {
        UnixTime::from_secs(self.1.load(SeqCst))
    }
}

#[tokio::test]
async fn access_tokens_from_before_a_loss_are_refused_and_can_be_renewed() {
    let since = Arc::new(AtomicU64::new(0));
    let store = AnyStore::from(Replaced(Memory::new(), Arc::clone(&since)));
    let clients = ClientTable::new([client("web")]).unwrap();
    let world = World::made(store, ManualClock::new(), clients, Tokens::new(), |service| service).await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3]);
    let issued_at = crate::issued_tokens::claims(&issued.access)["iat"].as_u64().unwrap();
    since.store(issued_at, SeqCst);
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3], "nothing after it is lost");
    since.store(issued_at + 1, SeqCst);
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [false; 3]);
    world.advance(1);
    let next = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    assert_eq!(browser.opens(&world, "web", &next.access).await, [true; 3]);
}

/// The store loses the key under the keyed hashes, and another node makes a new one.
#[tokio::test]
async fn b37_a_node_notices_that_the_key_of_the_login_service_was_replaced() {
    let (since, clock) = (Arc::new(AtomicU64::new(0)), ManualClock::new());
    let store = AnyStore::from(Replaced(Memory::new(), Arc::clone(&since)));
    let one = World::on(store.clone(), clock.clone(), |service| service).await;
    let other = World::on(store.clone(), clock, |service| service).await;
    for world in [&one, &other] {
        world.browser().log_in("web", ADA).await;
    }
    for round in 0..2 {
        assert!(store.take(&Key::new("auth_keys", None, b"hashes").unwrap()).await.unwrap().is_some());
        since.store(round + 1, SeqCst);
        for nodes in [[&one, &other], [&other, &one]] {
            let mut browser = nodes[0].browser();
            let id = browser.start("web", ADA).await;
            assert_eq!(browser.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
            browser.service = nodes[1].service.clone();
            assert_eq!(browser.complete("web", &id).await.json()["status"], "completed");
            browser.service = nodes[0].service.clone();
            assert!(browser.authorize("web").await.redirected("code").is_some());
        }
    }
}
