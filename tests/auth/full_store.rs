//! A store without room: writes fail before they take effect, and reads go on.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::SeqCst},
};

use tollgate::{
    gate::MaybeReady,
    store::{
        Entry, Key, Memory, Operation, OperationOutcome, Record, Store, StoreError, StoreErrorKind, Version,
        WriteOutcome,
    },
};

use crate::{
    own_account::totp as code_of,
    sso::{continue_login, id_of},
    world::{ADA, ADA_PASSWORD, World},
};

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
    // after the kind and the length, 24 bytes for each session
    let listed = (list.unwrap().value.len() - 3) / 24;
    assert_eq!(world.sessions.list(&acme, &ada).await.unwrap().len(), listed);
}

#[tokio::test]
async fn b40_a_step_up_stays_usable_while_there_is_no_room() {
    let store = FullStore { memory: Arc::default(), room: Arc::new(AtomicI64::new(i64::MAX)) };
    let world = World::with(store.clone(), |service| service).await.sharing();
    let mut failures = 0;
    for room in 0.. {
        world.advance(3600);
        let mut browser = world.browser();
        browser.log_in("web", ADA).await;
        assert!(browser.authorize("web").await.redirected("code").is_some());
        let id = id_of(&continue_login(&mut browser, "bank", &[]).await);
        assert_eq!(browser.ask("bank", &id, "email", ADA).await.status, 200);
        let code = world.code(ADA).await;
        assert_eq!(browser.verify("bank", &id, &code).await.json()["remaining_steps"], 0);
        assert_eq!(browser.complete("bank", &id).await.status, 200);
        store.room.store(room, SeqCst);
        let answer = browser.authorize("bank").await;
        store.room.store(i64::MAX, SeqCst);
        if answer.redirected("code").is_some() {
            break;
        }
        assert_eq!(answer.redirected("error").as_deref(), Some("temporarily_unavailable"), "{answer:?}");
        failures += 1;
        // there is room again, and the session goes on
        let again = browser.authorize("bank").await;
        assert!(again.redirected("code").is_some(), "room for {room} writes: {again:?}");
    }
    assert!(failures >= 1, "{failures}");
    let (acme, ada) = (tollgate::Tenant::parse("acme").unwrap(), tollgate::UserId::parse("u-ada").unwrap());
    let sessions = world.sessions.list(&acme, &ada).await.unwrap();
    let is_stepped_up = |session: &tollgate::Session| session.amr().any(|name| name == "mfa");
    assert!(!sessions.is_empty() && sessions.iter().all(is_stepped_up), "{sessions:?}");
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

#[tokio::test]
async fn b09_an_enrolment_within_a_login_goes_on_when_there_is_room_again() {
    let store = FullStore { memory: Arc::default(), room: Arc::new(AtomicI64::new(i64::MAX)) };
    let totp = tollgate::auth::Totp::new().seal(&tollgate::Secret::generate());
    let world = World::with(store.clone(), |service| service.totp(totp)).await;
    let (acme, lone) = (tollgate::Tenant::parse("acme").unwrap(), tollgate::UserId::parse("u-lone").unwrap());
    let hash = tollgate::Passwords::insecure_fast().hash(tollgate::Password::new(ADA_PASSWORD)).await.unwrap();
    world.users.create(&acme, tollgate::NewUser::new(lone, "lone".parse().unwrap()).password(hash)).await.unwrap();
    let mut failures = 0;
    for room in 0.. {
        world.advance(30);
        let mut browser = world.browser();
        let id = browser.start("mfa", "lone").await;
        assert_eq!(browser.password("mfa", &id, "lone", ADA_PASSWORD).await.status, 200);
        let mut begin = async |room: i64| {
            store.room.store(room, SeqCst);
            let begun = browser.call("enrol", "mfa", &id, &[("method", "totp")]).await;
            store.room.store(i64::MAX, SeqCst);
            begun
        };
        if room == 0 {
            assert_eq!(begin(0).await.error(), "temporarily_unavailable");
        }
        let secret = begin(i64::MAX).await.json()["secret"].as_str().unwrap().to_owned();
        let code = code_of(&secret, world.time());
        let confirm = [("method", "totp"), ("code", &*code)];
        store.room.store(room, SeqCst);
        let confirmed = browser.call("enrol", "mfa", &id, &confirm).await;
        store.room.store(i64::MAX, SeqCst);
        let row = crate::enrolled::stored(&world, "u-lone").await;
        let is_stored = row.is_some_and(|row| !row["totp"].is_null());
        if confirmed.status == 200 {
            assert!(is_stored);
            break;
        }
        assert_eq!(confirmed.error(), "temporarily_unavailable", "{confirmed:?}");
        failures += 1;
        // the user sets it up again, or uses what was stored
        world.advance(30);
        let proved = if is_stored {
            let code = code_of(&secret, world.time());
            browser.call("authenticate", "mfa", &id, &[("method", "totp"), ("code", &code)]).await
        } else {
            let begun = browser.call("enrol", "mfa", &id, &[("method", "totp")]).await;
            let code = code_of(begun.json()["secret"].as_str().unwrap(), world.time());
            browser.call("enrol", "mfa", &id, &[("method", "totp"), ("code", &code)]).await
        };
        assert_eq!(proved.status, 200, "room for {room} writes: {proved:?}");
        crate::enrolled::enrol(&world, "u-lone", serde_json::json!({})).await;
    }
    assert!(failures >= 3, "{failures}");
}
