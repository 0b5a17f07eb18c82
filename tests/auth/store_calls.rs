//! How many store calls a login by code takes. Each call of the service reads each row once.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use serde_json::json;
use tollgate::{
    Secret,
    auth::Totp,
    gate::MaybeReady,
    store::{
        Entry, Expected, Key, Memory, Operation, OperationOutcome, Record, Store, StoreError, Version, WriteOutcome,
    },
};

use crate::{
    enrolled::{app, enrol},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, World},
};

/// A store that records its calls. Clones share everything.
#[derive(Clone, Default)]
struct CallStore {
    memory: Arc<Memory>,
    calls: Arc<Mutex<Vec<Vec<String>>>>,
}

impl CallStore {
    /// Returns the operations of each call since the last time.
    fn calls(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn note(&self, what: &str, key: &Key) {
        self.calls.lock().unwrap().push(vec![format!("{what} {}", key.table())]);
    }
}

impl Store for CallStore {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        self.note("get", key);
        self.memory.get(key)
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.note("insert", key);
        self.memory.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.note("swap", key);
        self.memory.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.note("take", key);
        self.memory.take(key).await
    }

    async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
        let named = operations.iter().map(|operation| match operation {
            Operation::Read(key) => format!("get {}", key.table()),
            Operation::Write(key, Expected::Absent, _) => format!("insert {}", key.table()),
            Operation::Write(key, _, _) => format!("swap {}", key.table()),
            other => format!("{other:?}"),
        });
        self.calls.lock().unwrap().push(named.collect());
        self.memory.run(operations).await
    }
}

/// The calls of a login by code, and what each is for. No row is read twice in one of them but the generation of the user,
/// which must be read again after the session was written.
const LOGIN: [(&str, &[&str]); 5] = [
    (
        "start",
        &[
            // a name leads to a user, whose account has to list it
            "get user_names",
            "get users",
            // ends the login if the user is ended meanwhile
            "get generations",
            // refuses a challenge that was used before, and begins the login
            "get redeemed_challenges, insert logins",
        ],
    ),
    (
        "authenticate",
        &[
            "get logins",
            // whether the address is a verified contact
            "get users",
            // what was sent for this name and address, and to the address
            "get generations, get sends, get sends",
            // counts first, and then opens the challenge
            "insert sends, insert sends, swap logins",
        ],
    ),
    (
        "verify-otp",
        &[
            "get logins",
            // whether the account may still log in
            "get users",
            // the failures before
            "get generations, get throttles, get throttles",
            // removes the failures, or counts one more, and then proves the step
            "insert throttles, insert throttles, swap logins",
        ],
    ),
    (
        "complete",
        &[
            "get logins",
            // whether the proofs still count, and what the device cookie is signed for
            "get users",
            "get generations, swap logins",
        ],
    ),
    (
        "authorize",
        &[
            "get redeemed_challenges, get logins",
            // lists the session, spends the login for it, begins it, issues the code, and sees an `end_user` at the same time
            "insert session_users, swap logins, insert sessions, insert codes, get generations",
            // whether all proofs still count; last, so that no change of the account goes unseen
            "get users",
        ],
    ),
];

#[tokio::test]
async fn a_login_by_code_takes_18_store_calls() {
    let store = CallStore::default();
    let world = World::with(store.clone(), |service| service).await;
    // the key of the service is made
    world.browser().start("web", ADA).await;
    let mut browser = world.browser();
    let mut calls = Vec::new();
    let mut note = |name, store: &CallStore| {
        calls.push((name, store.calls().iter().map(|call| call.join(", ")).collect::<Vec<_>>()));
    };
    store.calls();
    let id = browser.start("web", ADA).await;
    note("start", &store);
    browser.ask("web", &id, "sms", ADA_PHONE).await;
    note("authenticate", &store);
    let code = world.code(ADA_PHONE).await;
    assert_eq!(browser.verify("web", &id, &code).await.status, 200);
    note("verify-otp", &store);
    browser.complete("web", &id).await;
    note("complete", &store);
    assert!(browser.authorize("web").await.redirected("code").is_some());
    note("authorize", &store);
    let expected: Vec<_> =
        LOGIN.iter().map(|(name, calls)| (*name, calls.iter().map(|call| (*call).to_owned()).collect())).collect();
    assert_eq!(calls, expected);
    assert_eq!(LOGIN.iter().map(|(_, calls)| calls.len()).sum::<usize>(), 18);
}

/// The credentials of a user are read after a right secret alone, so that nothing before it takes longer for a user who has some.
#[tokio::test]
async fn b08_c115_the_enrolled_factors_are_read_once_a_step_is_proved() {
    let mut before: Option<Vec<Vec<String>>> = None;
    for row in [json!({}), json!({ "totp": app(1) })] {
        let store = CallStore::default();
        let totp = Totp::new().seal(&Secret::generate());
        let world = crate::enrolled::world_on(store.clone().into(), |service| service.totp(totp)).await;
        world.browser().start("web", ADA).await;
        enrol(&world, "u-ada", row).await;
        let reads =
            |calls: &[Vec<String>]| calls.iter().flatten().filter(|call| call.ends_with(" credentials")).count();
        store.calls();
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        assert_eq!(browser.password("web", &id, ADA, "wrong").await.status, 401);
        assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
        assert_eq!(browser.verify("web", &id, "wrong").await.status, 401);
        let calls = store.calls();
        assert_eq!(reads(&calls), 0, "{calls:?}");
        assert_eq!(before.get_or_insert_with(|| calls.clone()), &calls);
        let code = world.code(ADA_PHONE).await;
        assert_eq!(browser.verify("web", &id, &code).await.status, 200);
        assert_eq!(reads(&store.calls()), 1);
        let id = browser.start("web", ADA).await;
        assert_eq!(browser.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
        assert_eq!(reads(&store.calls()), 1);
    }
}

/// A user with another session needs one call more: the session is added to the list that was found.
#[tokio::test]
async fn the_next_login_of_a_user_takes_one_store_call_more() {
    let store = CallStore::default();
    let world = World::with(store.clone(), |service| service).await;
    let mut elsewhere = world.browser();
    elsewhere.log_in("web", ADA).await;
    assert!(elsewhere.authorize("web").await.redirected("code").is_some());
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    browser.password("web", &id, ADA, ADA_PASSWORD).await;
    browser.complete("web", &id).await;
    store.calls();
    assert!(browser.authorize("web").await.redirected("code").is_some());
    let calls: Vec<_> = store.calls().iter().map(|call| call.join(", ")).collect();
    assert_eq!(
        calls,
        [
            "get redeemed_challenges, get logins",
            "insert session_users, swap logins, insert sessions, insert codes, get generations",
            "swap session_users, swap logins, insert sessions, insert codes, get generations",
            "get users",
        ]
    );
}
