//! Calls that overlap, and calls that are cut off at each store operation.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{
    credential::{Credential, CredentialId, Strength},
    row::Credentials,
    table::{Added, CredentialTable, Removed},
};
use crate::{
    auth::factors::{
        enrolment::new_credential::NewCredential,
        passkey::row::{MOST_PASSKEYS, Passkey},
        sso::row::{MOST_LINKS, MOST_UNLINKED, SsoLink},
    },
    gate::MaybeReady,
    session::UserId,
    store::{AnyStore, Entry, Key, Memory, Record, Store, StoreError, StoreErrorKind, Version, WriteOutcome},
    tenant::Tenant,
    testing::{ManualClock, block_on},
    util::{clock::Clock, public_id::PublicId},
};

/// A store that lets other calls run before each operation, and fails permanently after a number of writes. The last one
/// may have happened.
#[derive(Clone)]
struct Shaky {
    memory: Arc<Memory>,
    left: Arc<AtomicUsize>,
    last_happens: bool,
}

impl Shaky {
    fn new(last_happens: bool) -> Self {
        Self { memory: Arc::new(Memory::new()), left: Arc::new(AtomicUsize::new(usize::MAX)), last_happens }
    }

    fn table(&self) -> CredentialTable {
        CredentialTable::new(&AnyStore::from(self.clone()), &clock())
    }

    async fn others_first() {
        let mut polled = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    async fn run_shaky_write<T>(&self, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        Self::others_first().await;
        let (happens, answered) = match self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
            Ok(1) => (self.last_happens, false),
            Ok(_) => (true, true),
            Err(_) => (false, false),
        };
        let answer = if happens { Some(write.await) } else { None };
        answer.filter(|_| answered).unwrap_or_else(|| Err(StoreErrorKind::Unavailable.into()))
    }
}

impl Store for Shaky {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (shaky, key) = (self.clone(), key.clone());
        MaybeReady::Pending(async move {
            Self::others_first().await;
            match shaky.left.load(SeqCst) {
                0 => Err(StoreErrorKind::Unavailable.into()),
                _ => shaky.memory.get(&key).wait().await,
            }
        })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.run_shaky_write(self.memory.insert(key, record)).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.run_shaky_write(self.memory.swap(key, expected, record)).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.run_shaky_write(self.memory.take(key)).await
    }
}

/// A credential: a passkey or a link, with a number.
type Id = (bool, usize);

#[derive(Clone, Copy, Debug)]
enum Call {
    Add(usize, Id),
    Remove(usize, Id),
    Forget(usize),
}

const USERS: usize = 3;
const IDS: usize = 2;

fn call() -> impl Strategy<Value = Call> {
    let id = || (any::<bool>(), 0..IDS);
    prop_oneof![
        5 => (0..USERS, id()).prop_map(|(user, id)| Call::Add(user, id)),
        2 => (0..USERS, id()).prop_map(|(user, id)| Call::Remove(user, id)),
        1 => (0..USERS).prop_map(Call::Forget),
    ]
}

fn ids() -> impl Iterator<Item = Id> {
    [true, false].into_iter().flat_map(|is_passkey| (0..IDS).map(move |number| (is_passkey, number)))
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::new())
}

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn user(number: usize) -> UserId {
    UserId::parse(format!("u-{number}")).unwrap()
}

fn key_id(number: usize) -> Vec<u8> {
    vec![number as u8; 16]
}

fn passkey(number: usize) -> Passkey {
    Passkey {
        id: key_id(number),
        public_key: vec![1, 2, 3],
        sign_count: 0,
        backup_eligible: true,
        backed_up: true,
        name: "phone".to_owned(),
        created_at: 1,
        last_used_at: None,
        strength: Strength::FULL.clone(),
    }
}

fn link(number: usize) -> SsoLink {
    SsoLink {
        enrolment: PublicId::from_bytes([7; 16]),
        issuer: "https://idp.example".to_owned(),
        subject: number.to_string(),
        provider: "idp".to_owned(),
        name: "ada@idp.example".to_owned(),
        created_at: 1,
        strength: Strength::FULL.clone(),
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Added(Added),
    Removed(Removed),
    Forgotten,
}

async fn run(table: &CredentialTable, call: Call) -> Result<Answer, StoreError> {
    let acme = acme();
    Ok(match call {
        Call::Add(who, (true, number)) => {
            Answer::Added(passkey(number).store(table, (&acme, &user(who)), |_| true).await?)
        }
        Call::Add(who, (false, number)) => {
            Answer::Added(table.add_link((&acme, &user(who)), &link(number), true).await?)
        }
        Call::Remove(who, (true, number)) => {
            Answer::Removed(table.remove_passkey((&acme, &user(who)), &key_id(number), |_, _| true).await?)
        }
        Call::Remove(who, (false, number)) => {
            Answer::Removed(table.remove_link((&acme, &user(who)), &link(number), |_, _| true).await?)
        }
        Call::Forget(who) => {
            table.forget(&acme, &user(who)).await?;
            Answer::Forgotten
        }
    })
}

fn credential((is_passkey, number): Id) -> Box<dyn Credential> {
    if is_passkey { Box::new(passkey(number)) } else { Box::new(link(number)) }
}

/// Returns the user that a credential leads to.
fn owner(table: &CredentialTable, id: Id) -> Option<UserId> {
    block_on(table.by_id(&acme(), credential(id).id().unwrap())).unwrap().map(|(user, _)| user)
}

/// Returns whether there is an index row for a credential.
fn is_indexed(store: &Shaky, id: Id) -> bool {
    block_on(store.table().find(&acme(), credential(id).id().unwrap())).unwrap().is_some()
}

/// Returns the users whose rows hold a credential.
fn holders(table: &CredentialTable, id: Id) -> Vec<UserId> {
    let id = credential(id);
    let holds = |row: Credentials| row.holds(id.id().unwrap());
    (0..USERS).map(user).filter(|who| block_on(table.get(&acme(), who)).unwrap().is_some_and(holds)).collect()
}

/// Applies a call to the model: the user of each credential.
fn expect(model: &mut BTreeMap<Id, usize>, call: Call) -> Answer {
    match call {
        Call::Add(who, id) => Answer::Added(match model.get(&id) {
            Some(_) => Added::Taken,
            None => {
                model.insert(id, who);
                Added::Done
            }
        }),
        Call::Remove(who, id) => {
            let is_theirs = model.get(&id) == Some(&who);
            model.retain(|held, _| !(is_theirs && *held == id));
            Answer::Removed(if is_theirs { Removed::Done } else { Removed::Unknown })
        }
        Call::Forget(who) => {
            model.retain(|_, owner| *owner != who);
            Answer::Forgotten
        }
    }
}

proptest! {
    #![proptest_config(Config::with_cases(300))]
    #[test]
    fn a_call_that_is_cut_off_anywhere_loses_nothing_and_its_repetition_completes_it(
        calls in vec(call(), 0..8),
        last in call(),
        last_happens: bool,
    ) {
        for writes in 1.. {
            let store = Shaky::new(last_happens);
            let table = store.table();
            let mut model = BTreeMap::new();
            for call in &calls {
                prop_assert_eq!(block_on(run(&table, *call)).unwrap(), expect(&mut model, *call), "{:?}", call);
            }
            let before = model.clone();
            store.left.store(writes, SeqCst);
            let answer = block_on(run(&table, last));
            let interrupted = store.left.load(SeqCst) == 0;
            store.left.store(usize::MAX, SeqCst);
            let expected = expect(&mut model, last);
            for id in ids() {
                let (was, is) = (before.get(&id).copied().map(user), model.get(&id).copied().map(user));
                let found = owner(&table, id);
                prop_assert!(found == was || found == is, "{:?}: {:?}, not {:?} or {:?}", id, found, was, is);
                prop_assert!(holders(&table, id).len() <= 1, "{:?} has two users", id);
            }
            if let Ok(answer) = answer {
                prop_assert_eq!(answer, expected);
            } else {
                block_on(run(&table, last)).unwrap();
            }
            for id in ids() {
                let is: Vec<UserId> = model.get(&id).copied().map(user).into_iter().collect();
                prop_assert_eq!(&holders(&table, id), &is);
                prop_assert_eq!(owner(&table, id).into_iter().collect::<Vec<_>>(), is.clone());
                prop_assert_eq!(is_indexed(&store, id), !is.is_empty(), "{:?} has an index row without a user", id);
                // a credential without a user can be given to anyone
                let given = block_on(run(&table, Call::Add(99, id))).unwrap();
                prop_assert_eq!(given == Answer::Added(Added::Done), is.is_empty());
            }
            if !interrupted {
                break;
            }
        }
    }
}

proptest! {
    #![proptest_config(Config::with_cases(3_000))]
    #[test]
    fn overlapping_calls_never_give_a_credential_to_two_users_nor_lose_it(
        calls in vec(call(), 2..5),
        first in vec(call(), 0..3),
        stale in any::<bool>(),
        schedule in vec(0..5_usize, 0..60),
    ) {
        let store = Shaky::new(true);
        let table = store.table();
        for call in &first {
            block_on(run(&table, *call)).unwrap();
        }
        if stale {
            // an interrupted call left index rows behind
            for number in 0..IDS {
                block_on(table.claim((&acme(), &user(0)), CredentialId::Passkey(&key_id(number)))).unwrap();
            }
        }
        type Running = Pin<Box<dyn Future<Output = Result<Answer, StoreError>> + Send>>;
        let start = |call: &Call| -> Option<Running> {
            let (table, call) = (table.clone(), *call);
            Some(Box::pin(async move { run(&table, call).await }))
        };
        let mut running: Vec<Option<Running>> = calls.iter().map(start).collect();
        let mut added: Vec<(usize, Id)> = Vec::new();
        let finish = (0..4_000).map(|step| step % calls.len());
        for at in schedule.iter().copied().filter(|at| *at < calls.len()).chain(finish) {
            let Some(future) = &mut running[at] else { continue };
            if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                running[at] = None;
                if let (Call::Add(who, id), Answer::Added(Added::Done)) = (calls[at], answer.unwrap()) {
                    let is_removed = |call: &Call| match call {
                        Call::Add(..) => false,
                        Call::Remove(other, removed) => *other == who && *removed == id,
                        Call::Forget(other) => *other == who,
                    };
                    if !calls.iter().any(is_removed) {
                        added.push((who, id));
                    }
                }
            }
            for (who, id) in &added {
                prop_assert_eq!(owner(&table, *id), Some(user(*who)), "{:?} after {:?}", id, calls[at]);
            }
        }
        prop_assert!(running.iter().all(Option::is_none), "a call never ends");
        for id in ids() {
            let holders = holders(&table, id);
            prop_assert!(holders.len() <= 1, "{:?} has the users {:?}", id, holders);
            prop_assert_eq!(owner(&table, id), holders.first().cloned(), "{:?}", id);
        }
    }
}

#[test]
fn a_user_has_a_limited_number_of_credentials_and_one_handle() {
    let store = Shaky::new(true);
    let table = store.table();
    let (acme, ada) = (acme(), user(0));
    assert_eq!(block_on(table.get(&acme, &ada)).unwrap(), None);
    assert_eq!(block_on(table.update(&acme, &ada, |row| row.passkeys.len())).unwrap(), 0);
    assert_eq!(block_on(table.get(&acme, &ada)).unwrap(), None, "nothing changed, so nothing is written");
    let handle = block_on(table.handle(&acme, &ada)).unwrap();
    for number in 0..MOST_PASSKEYS.max(MOST_LINKS) + 1 {
        let keys = block_on(passkey(number).store(&table, (&acme, &ada), |_| true)).unwrap();
        assert_eq!(keys, if number < MOST_PASSKEYS { Added::Done } else { Added::Refused });
        let links = block_on(table.add_link((&acme, &ada), &link(number), false)).unwrap();
        assert_eq!(links, if number < MOST_LINKS { Added::Done } else { Added::Refused });
    }
    // a refused link has no user and leaves nothing behind
    assert!(!is_indexed(&store, (false, MOST_LINKS)) && is_indexed(&store, (false, 0)));
    assert_eq!(block_on(table.add_link((&acme, &user(1)), &link(MOST_LINKS), false)).unwrap(), Added::Done);
    assert_eq!(block_on(table.add_link((&acme, &ada), &link(0), false)).unwrap(), Added::Taken);
    assert_eq!(block_on(table.handle(&acme, &ada)).unwrap(), handle);
    assert_ne!(block_on(table.handle(&acme, &user(1))).unwrap(), handle);
    let elsewhere = Tenant::parse("globex").unwrap();
    assert_eq!(block_on(table.by_id(&elsewhere, CredentialId::Passkey(&key_id(0)))).unwrap(), None);
    block_on(table.forget(&acme, &ada)).unwrap();
    assert_eq!(block_on(table.get(&acme, &ada)).unwrap(), None);
    assert_ne!(block_on(table.handle(&acme, &ada)).unwrap(), handle);
}

#[test]
fn connections_issuers_and_subjects_are_kept_apart() {
    let table = Shaky::new(true).table();
    let ids = [("p", "https://a", "bc"), ("p", "https://ab", "c"), ("q", "https://a", "bc")];
    for (number, (provider, issuer, subject)) in ids.into_iter().enumerate() {
        let [provider, issuer, subject] = [provider, issuer, subject].map(str::to_owned);
        let link = SsoLink { provider, issuer, subject, ..link(0) };
        assert_eq!(block_on(table.add_link((&acme(), &user(number)), &link, false)).unwrap(), Added::Done);
    }
    for (number, id) in ids.into_iter().enumerate() {
        let found = block_on(table.by_link(&acme(), id)).unwrap();
        assert_eq!(found.map(|(user, _)| user), Some(user(number)), "{id:?}");
    }
    for id in [
        ("", "https://a", "bc"),
        ("p", "https://x", "bc"),
        ("p", "https://ab", "bc"),
        ("p", "https://a", "c"),
        ("q", "https://ab", "c"),
        ("p", "", "https://abc"),
    ] {
        assert!(block_on(table.by_link(&acme(), id)).unwrap().is_none(), "{id:?}");
    }
    // unlinking takes exactly one
    let of_q =
        SsoLink { provider: "q".to_owned(), issuer: "https://a".to_owned(), subject: "bc".to_owned(), ..link(0) };
    for (number, expected) in [(0, Removed::Unknown), (2, Removed::Done), (2, Removed::Unknown)] {
        assert_eq!(block_on(table.remove_link((&acme(), &user(number)), &of_q, |_, _| true)).unwrap(), expected);
    }
    for (number, id) in ids.into_iter().enumerate() {
        assert_eq!(block_on(table.by_link(&acme(), id)).unwrap().is_some(), number < 2, "{id:?}");
    }
}

#[test]
fn c084_a_hook_can_link_nothing_that_the_user_has_unlinked_however_much_that_was() {
    let table = Shaky::new(true).table();
    let (acme, ada) = (acme(), user(0));
    let owner = (&acme, &ada);
    let add = |number, is_by_user| block_on(table.add_link(owner, &link(number), is_by_user)).unwrap();
    let remove = |number| block_on(table.remove_link(owner, &link(number), |_, _| true)).unwrap();
    assert_eq!((add(0, false), remove(0), remove(0)), (Added::Done, Removed::Done, Removed::Unknown));
    assert_eq!((add(0, false), add(1, false)), (Added::Refused, Added::Done));
    assert_eq!((add(0, true), block_on(table.discard_link(owner, &link(0))).unwrap()), (Added::Done, Removed::Done));
    assert_eq!(add(0, false), Added::Done, "what was discarded was never unlinked");
    let kept = MOST_UNLINKED - 1;
    for number in 0..2 * kept {
        assert_eq!((add(number + 2, true), remove(number + 2)), (Added::Done, Removed::Done));
        // a link that was never there is refused only if it could be one of those that were not remembered
        let expected = if number < kept { Added::Done } else { Added::Refused };
        assert_eq!(add(1_000, false), expected, "{number}");
        if expected == Added::Done {
            assert_eq!(block_on(table.discard_link(owner, &link(1_000))).unwrap(), Removed::Done);
        }
    }
    assert!(serde_json::to_vec(&block_on(table.get(&acme, &ada)).unwrap().unwrap()).unwrap().len() < 4_096);
    assert_eq!(add(2, true), Added::Done);
    for number in [3, kept + 10, 1_000] {
        assert_eq!(add(number, false), Added::Refused, "{number}");
    }
}
