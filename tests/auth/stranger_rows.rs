//! Rows that anyone can cause, and how long they are kept.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
};

use tollgate::{
    auth::{Passkeys, SignUp},
    clock::UnixTime,
    gate::MaybeReady,
    store::{Entry, Key, Memory, Record, Store, StoreError, Version, WriteOutcome},
};

use crate::{
    soft_passkey::{RP_ID, SoftPasskey, begin, enrolled, prove},
    world::{ADA, World, parameters},
};

const DAY: u64 = 24 * 3600;

/// The table, the length and the expiry of each row, by its key.
type Expiries = BTreeMap<Vec<u8>, (String, usize, UnixTime)>;

/// A store that knows when its rows expire.
#[derive(Clone, Default)]
struct Rows(Arc<Memory>, Arc<Mutex<Expiries>>);

impl Rows {
    /// Returns the latest time at which a row of this table expires that was written since the last call.
    fn latest(&self, table: &str) -> Option<UnixTime> {
        let written = std::mem::take(&mut *self.1.lock().unwrap());
        written.into_values().filter(|(own, ..)| own == table).map(|(.., expires_at)| expires_at).max()
    }

    /// Returns how long the rows of this table live that were written since the last call of `latest`, in seconds, sorted.
    fn lives(&self, table: &str, now: UnixTime) -> Vec<u64> {
        let mut lives: Vec<u64> = self.shapes_of(table, now).into_iter().map(|(_, life)| life).collect();
        lives.sort_unstable();
        lives
    }

    /// Returns the length of each row of this table, and how long it lives, sorted.
    fn shapes_of(&self, table: &str, now: UnixTime) -> Vec<(usize, u64)> {
        let rows = self.1.lock().unwrap();
        let own = rows.values().filter(|(own, ..)| own == table);
        let mut shapes: Vec<_> = own.map(|(_, len, expires_at)| (*len, expires_at.as_secs() - now.as_secs())).collect();
        shapes.sort_unstable();
        shapes
    }

    /// Returns the number of rows that were written since the last call of `latest` by table, and the length and the expiry of the
    /// largest one.
    fn shapes(&self) -> BTreeMap<String, (usize, usize, UnixTime)> {
        let mut shapes = BTreeMap::new();
        for (table, len, expires_at) in self.1.lock().unwrap().values() {
            let (rows, most, latest) = shapes.entry(table.clone()).or_insert((0, 0, *expires_at));
            (*rows, *most, *latest) = (*rows + 1, *len.max(most), *expires_at.max(latest));
        }
        shapes
    }

    fn note(&self, key: &Key, record: &Record) {
        let row = (key.table().to_owned(), record.value().len(), record.expires_at());
        self.1.lock().unwrap().insert(key.as_bytes().to_vec(), row);
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
async fn made_up_passkeys_leave_rows_like_those_of_known_ones() {
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
        // each of the three has a row of its own for a minute, and one that many share for a day
        assert_eq!(rows.lives("throttles", world.time()), [60, 60, 60, DAY, DAY, DAY], "{identifier:?}");
    }
    // failures with a known one are remembered for its account
    known.flags &= !0x04;
    rows.latest("throttles");
    let begun = begin(&mut browser, "web", None).await;
    assert_eq!(prove(&mut browser, &begun, &known).await.status, 401);
    assert_eq!(rows.lives("throttles", world.time()), [60, DAY]);
}

#[tokio::test]
async fn c031_c066_rows_that_count_attempts_and_codes_are_alike_for_known_and_unknown_names() {
    let mut all = Vec::new();
    for name in [ADA, "xda@example.com"] {
        let rows = Rows::default();
        let world = World::with(rows.clone(), |service| service).await;
        let mut browser = world.browser();
        for _ in 0..3 {
            let id = browser.start("web", name).await;
            assert_eq!(browser.password("web", &id, name, "wrong").await.status, 401);
            assert_eq!(browser.ask("web", &id, "email", name).await.status, 200);
            assert_eq!(browser.verify("web", &id, "wrong").await.status, 401);
            // longer than the minute between two codes
            world.advance(61);
        }
        all.push(["sends", "throttles"].map(|table| rows.shapes_of(table, world.time())));
    }
    assert_eq!(all[0], all[1]);
    assert_eq!((all[0][0].len(), all[0][1].len()), (2, 4));
}

#[tokio::test]
async fn made_up_names_share_a_bounded_number_of_the_rows_for_equal_work() {
    let (rows, client) = (Rows::default(), "web");
    let world = World::with(rows.clone(), |service| service).await;
    let mut browser = world.browser();
    rows.latest("throttles");
    // about thirty pairs of 2,000 names share one of 65,536 rows
    for number in 0..2000 {
        let name = format!("made{number}@example.com");
        let id = browser.start(client, &name).await;
        browser.password(client, &id, &name, "wrong").await;
        world.advance(2);
    }
    let written = rows.lives("throttles", world.time()).len();
    assert!((3900..4000).contains(&written), "{written}");
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

#[tokio::test]
async fn c127_c128_a_sign_up_leaves_one_ticket_for_ten_minutes_and_a_made_up_link_leaves_nothing() {
    let rows = Rows::default();
    let world = World::with(rows.clone(), |service| service.sign_up(SignUp::Open)).await;
    for address in [ADA, "nora@example.com"] {
        let mut browser = world.browser();
        let body = parameters("web");
        let id = browser.post("/authentication/start", &body).await.json()["session_id"].as_str().unwrap().to_owned();
        let reset =
            browser.post("/reset-password/start", &body).await.json()["session_id"].as_str().unwrap().to_owned();
        rows.latest("tickets");
        let link = "A".repeat(43);
        let refused = browser.life("sign-up/invitation", "web", &id, &[("link", &link)]).await;
        assert_eq!(refused.error(), "invalid_link");
        let refused = browser.life("reset-password/link", "web", &reset, &[("link", &link)]).await;
        assert_eq!(refused.error(), "invalid_link");
        assert_eq!(rows.shapes(), BTreeMap::new());
        for _ in 0..3 {
            let sent = browser.life("sign-up/code", "web", &id, &[("email", address)]).await;
            assert_eq!(sent.status, 200, "{sent:?}");
            world.advance(31);
        }
        let shapes = rows.shapes();
        let (tickets, len, expires_at) = shapes["tickets"];
        assert!(tickets == 1 && len < 512, "{shapes:?}");
        assert_eq!(expires_at.as_secs(), world.time().as_secs() - 31 + 600);
        // the counts of messages to the address live for a day: one of all clients, one of this client, and one of the login
        let (counts, len, expires_at) = shapes["sends"];
        assert!(counts == 3 && len < 512, "{shapes:?}");
        assert!(expires_at.as_secs() <= world.time().as_secs() + 24 * 3600, "{shapes:?}");
        assert_eq!(shapes.keys().collect::<Vec<_>>(), ["logins", "sends", "tickets"]);
    }
}

#[tokio::test]
async fn c127_guesses_of_a_sign_up_leave_one_row_as_long_as_its_login() {
    let rows = Rows::default();
    let world = World::with(rows.clone(), |service| service.sign_up(SignUp::Open)).await;
    let mut browser = world.browser();
    let id = browser.post("/authentication/start", &parameters("web")).await.json()["session_id"].clone();
    let id = id.as_str().unwrap();
    browser.life("sign-up/code", "web", id, &[("email", "nora@example.com")]).await;
    rows.latest("throttles");
    for _ in 0..5 {
        assert_eq!(browser.life("sign-up/verify", "web", id, &[("otp", "wrong")]).await.error(), "invalid_otp");
    }
    let (counts, _, expires_at) = rows.shapes()["throttles"];
    assert_eq!((counts, expires_at.as_secs()), (1, world.time().as_secs() + 30 * 60));
}
