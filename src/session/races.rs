//! Interleaves overlapping calls step by step in random orders. A property that holds after
//! each step also holds after a crash at that point.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{
    cookies::{PresentedCookies, SessionCookie},
    identity::UserId,
    model::{amr, cookie_of, present, proved},
    opening::Renewal,
    rows::{LiveSession, SessionRow},
    session::{NewSession, Session},
    sessions::Sessions,
};
use crate::{
    gate::MaybeReady,
    store::{Entry, Key, Memory, Record, Store, StoreError, Version, WriteOutcome},
    tenant::Tenant,
    testing::{ManualClock, block_on},
    util::public_id::PublicId,
};

/// A store that lets other calls run before each of its steps.
#[derive(Clone, Default)]
struct Slow {
    memory: Arc<Memory>,
    yields: bool,
    /// The ids of all sessions that were ever written.
    seen: Arc<Mutex<Vec<PublicId>>>,
}

impl Slow {
    async fn others_first(yields: bool) {
        let mut polled = !yields;
        poll_fn(|_| match std::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    fn note(&self, key: &Key) {
        if key.table() == "sessions" {
            let sid = PublicId::from_bytes(key.id().try_into().unwrap());
            let mut seen = self.seen.lock().unwrap();
            if !seen.contains(&sid) {
                seen.push(sid);
            }
        }
    }
}

impl Store for Slow {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (memory, yields, key) = (Arc::clone(&self.memory), self.yields, key.clone());
        MaybeReady::Pending(async move {
            Self::others_first(yields).await;
            memory.get(&key).wait().await
        })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        Self::others_first(self.yields).await;
        self.note(key);
        self.memory.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        Self::others_first(self.yields).await;
        self.memory.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Self::others_first(self.yields).await;
        self.memory.take(key).await
    }
}

#[test]
fn every_use_counts_also_in_a_store_whose_rows_are_decoded_at_once() {
    let clock = ManualClock::new();
    let builder = Sessions::builder(Slow::default()).clock(clock.clone());
    let sessions = builder.idle(Duration::from_secs(120)).build().unwrap();
    let new = NewSession::new(Tenant::parse("acme").unwrap(), UserId::parse("ada").unwrap());
    let (cookie, _) = block_on(sessions.create(new)).unwrap();
    let cookie = cookie_of(&cookie);
    for _ in 0..3 {
        clock.advance(Duration::from_secs(90));
        assert!(present(&sessions, cookie).unwrap().is_some());
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Use(usize),
    Revoke(usize),
    RevokeSid(usize),
    RevokeOthers(usize),
    RevokeUser,
    EndUser,
    Rotate(usize),
    StepUp(usize),
    FullSignIn(usize),
    DropProofs(usize),
    Create,
    /// A sign-in that read the generation before all other calls.
    FinishSignIn,
}

fn call() -> impl Strategy<Value = Call> {
    let session = || 0..3_usize;
    prop_oneof![
        3 => session().prop_map(Call::Use),
        2 => session().prop_map(Call::Revoke),
        1 => session().prop_map(Call::RevokeSid),
        1 => session().prop_map(Call::RevokeOthers),
        2 => Just(Call::RevokeUser),
        2 => Just(Call::EndUser),
        2 => session().prop_map(Call::Rotate),
        1 => session().prop_map(Call::StepUp),
        2 => session().prop_map(Call::FullSignIn),
        1 => session().prop_map(Call::DropProofs),
        1 => Just(Call::Create),
        2 => Just(Call::FinishSignIn),
    ]
}

fn ada() -> (Tenant, UserId) {
    (Tenant::parse("acme").unwrap(), UserId::parse("ada").unwrap())
}

fn new_ada() -> NewSession {
    let (tenant, user) = ada();
    NewSession::new(tenant, user)
}

/// A sign-in of ada that began in generation 0.
fn proved_sign_in() -> NewSession {
    NewSession::authenticated(proved("acme", "ada", 0, &["password", "email"]))
}

/// Looks at all rows after each step.
struct Watch {
    plain: Sessions,
    seen: Arc<Mutex<Vec<PublicId>>>,
    /// The last state of each session; `None` after its end.
    last: HashMap<PublicId, Option<Arc<LiveSession>>>,
}

impl Watch {
    /// Checks that an ended session stays ended, that the user of a session stays the same,
    /// and that every live session is listed. Returns the live sessions.
    fn look(&mut self) -> Vec<Arc<LiveSession>> {
        let (tenant, user) = ada();
        let list = block_on(self.plain.lists().get(Some(&tenant), user.as_str().as_bytes()).wait()).unwrap();
        let mut living = Vec::new();
        for sid in self.seen.lock().unwrap().iter() {
            let row = block_on(self.plain.rows().get(None, sid.as_bytes()).wait()).unwrap();
            let now = match row.map(|stored| stored.value) {
                None => continue,
                Some(SessionRow::Ended(_)) => None,
                Some(SessionRow::Live(row)) => Some(row),
            };
            assert_eq!(block_on(self.plain.ended().contains(sid).wait()).unwrap(), now.is_none());
            if let Some(row) = &now {
                let listed = list.iter().flat_map(|list| list.value.iter()).find(|listed| listed.sid == *sid);
                let listed = listed.expect("a live session is not listed");
                assert!(listed.expires >= row.times.expires, "the list forgets a session before its end");
                if let Some(before) = self.last.get(sid) {
                    let before = before.as_ref().expect("c106 an ended session came back");
                    assert_eq!(before.user, row.user);
                    assert!(before.generation <= row.generation);
                    assert!(before.times.created <= row.times.created);
                }
                living.push(row.clone());
            }
            self.last.insert(*sid, now);
        }
        living
    }

    fn has_ended(&self, sid: &PublicId) -> bool {
        matches!(self.last.get(sid), Some(None))
    }
}

enum Done {
    Used(Option<Session>),
    RevokedAll,
    EndedUser,
    /// Whether the session got a new secret.
    NewSecret(bool),
    Else,
}

type Running = Pin<Box<dyn Future<Output = Done> + Send>>;

fn start(sessions: &Sessions, base: &[(SessionCookie, Session)], call: Call) -> Running {
    use Call::*;
    let sessions = sessions.clone();
    let (cookie, session) = match call {
        Use(at) | Revoke(at) | RevokeSid(at) | RevokeOthers(at) | Rotate(at) | StepUp(at) | FullSignIn(at)
        | DropProofs(at) => base[at].clone(),
        RevokeUser | EndUser | Create | FinishSignIn => base[0].clone(),
    };
    Box::pin(async move {
        match call {
            Use(_) => Done::Used(sessions.find(&PresentedCookies::One(cookie), None).wait().await.unwrap()),
            Revoke(_) => sessions.revoke(&session).await.map(|()| Done::Else).unwrap(),
            RevokeSid(_) => sessions.revoke_sid(&session.sid()).await.map(|_| Done::Else).unwrap(),
            RevokeOthers(_) => sessions.revoke_others(&session).await.map(|_| Done::Else).unwrap(),
            RevokeUser => {
                sessions.revoke_user(session.tenant(), session.user()).await.map(|_| Done::RevokedAll).unwrap()
            }
            EndUser => sessions.end_user(session.tenant(), session.user()).await.map(|_| Done::EndedUser).unwrap(),
            Rotate(_) => Done::NewSecret(sessions.rotate(&session).await.unwrap().is_some()),
            StepUp(_) => {
                Done::NewSecret(sessions.renew(&session, Renewal::StepUp(proved_sign_in())).await.unwrap().is_some())
            }
            FullSignIn(_) => Done::NewSecret(
                sessions.renew(&session, Renewal::FullSignIn(proved_sign_in())).await.unwrap().is_some(),
            ),
            DropProofs(_) => sessions.keep_proofs(&session, |_| None, amr).await.map(|_| Done::Else).unwrap(),
            // refused if all sessions were revoked in the meantime
            Create => sessions.create(new_ada()).await.map_or(Done::Else, |_| Done::Else),
            FinishSignIn => sessions.create_unless_ended(proved_sign_in()).await.map(|_| Done::Else).unwrap(),
        }
    })
}

proptest! {
    #![proptest_config(Config::with_cases(2_000))]
    #[test]
    fn c106_c109_c119_no_session_is_missed_or_revived_in_any_interleaving(
        calls in vec(call(), 1..5),
        schedule in vec(0..5_usize, 0..120),
    ) {
        let clock = ManualClock::new();
        let slow = Slow { yields: true, ..Slow::default() };
        let build = |store: Slow| Sessions::builder(store).clock(clock.clone()).build().unwrap();
        let (plain, sessions) = (build(Slow { yields: false, ..slow.clone() }), build(slow.clone()));
        let base = |_| {
            let (cookie, session) = block_on(plain.create(proved_sign_in())).unwrap();
            (cookie_of(&cookie), session)
        };
        let base: Vec<(SessionCookie, Session)> = (0..3).map(base).collect();
        // so that each use is recorded
        clock.advance(Duration::from_secs(61));
        let mut watch = Watch { plain, seen: Arc::clone(&slow.seen), last: HashMap::new() };
        watch.look();
        let creates = calls.iter().filter(|call| matches!(call, Call::Create | Call::FinishSignIn)).count();

        let mut running: Vec<Option<Running>> = calls.iter().map(|_| None).collect();
        let mut begun = vec![false; calls.len()];
        let mut refused_before = vec![false; calls.len()];
        let mut new_secrets = [0; 3];
        let (mut all_revoked, mut ended_users) = (false, 0);
        let finish = (0..4_000).map(|step| step % calls.len());
        for at in schedule.iter().copied().filter(|at| *at < calls.len()).chain(finish) {
            if !begun[at] {
                begun[at] = true;
                if let Call::Use(session) = calls[at] {
                    refused_before[at] = watch.has_ended(&base[session].1.sid()) || new_secrets[session] > 0;
                }
                running[at] = Some(start(&sessions, &base, calls[at]));
            }
            let Some(future) = &mut running[at] else { continue };
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let living = watch.look();
            if let Poll::Ready(done) = polled {
                running[at] = None;
                match (done, calls[at]) {
                    (Done::Used(found), _) => {
                        prop_assert!(found.is_none() || !refused_before[at], "used after its end or with an old secret");
                    }
                    (Done::RevokedAll, _) => all_revoked = true,
                    (Done::EndedUser, _) => (all_revoked, ended_users) = (true, ended_users + 1),
                    (Done::NewSecret(true), Call::Rotate(it) | Call::StepUp(it) | Call::FullSignIn(it)) => {
                        new_secrets[it] += 1;
                        prop_assert_eq!(new_secrets[it], 1, "two calls replaced one secret");
                    }
                    _ => {}
                }
            }
            if all_revoked {
                prop_assert!(living.len() <= creates, "{} live after all were revoked", living.len());
            }
        }
        prop_assert!(running.iter().all(Option::is_none), "a call goes on forever");
        let is_current = |row: &Arc<LiveSession>| row.generation >= ended_users;
        prop_assert!(watch.look().iter().all(is_current), "c119 a session of an ended generation lives");
    }
}

#[test]
fn c106_a_revoked_session_is_never_accepted_again_while_threads_use_it() {
    for _ in 0..50 {
        let clock = ManualClock::new();
        let sessions = Sessions::builder(Memory::new()).clock(clock.clone()).idle(Duration::from_secs(86_400));
        let sessions = sessions.absolute(Duration::from_secs(86_400)).build().unwrap();
        let (cookie, session) = block_on(sessions.create(new_ada())).unwrap();
        let cookie = cookie_of(&cookie);
        let revoked = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        // so that each use is recorded
                        clock.advance(Duration::from_secs(61));
                        let before = revoked.load(SeqCst);
                        let found = present(&sessions, cookie).unwrap();
                        assert!(!before || found.is_none(), "accepted after it was revoked");
                    }
                });
            }
            scope.spawn(|| {
                block_on(sessions.revoke(&session)).unwrap();
                revoked.store(true, SeqCst);
            });
        });
        assert!(present(&sessions, cookie).unwrap().is_none());
    }
}

#[test]
fn c109_beyond_100_sessions_the_oldest_is_revoked() {
    let clock = ManualClock::new();
    let sessions = Sessions::builder(Memory::new()).clock(clock.clone()).build().unwrap();
    let mut all = Vec::new();
    for _ in 0..103 {
        all.push(block_on(sessions.create(new_ada())).unwrap());
        clock.advance(Duration::from_secs(1));
    }
    let (tenant, user) = ada();
    let sids = |sessions: &[Session]| sessions.iter().map(Session::sid).collect::<Vec<_>>();
    let list = || sids(&block_on(sessions.list(&tenant, &user)).unwrap());
    let expected: Vec<_> = all[3..].iter().map(|(_, session)| session.sid()).collect();
    assert_eq!(list(), expected);
    for (at, (cookie, _)) in all.iter().enumerate() {
        assert_eq!(present(&sessions, cookie_of(cookie)).unwrap().is_some(), at >= 3, "{at}");
    }
    // a new secret and a step-up keep the place in the list, a full sign-in makes a session the newest
    let renewal = |renewal| block_on(sessions.renew(&all[3].1, renewal)).unwrap().unwrap();
    let _stepped_up = renewal(Renewal::StepUp(proved_sign_in()));
    assert_eq!(list(), expected);
    let (_, current) =
        block_on(sessions.rotate(&block_on(sessions.get(&all[3].1.sid())).unwrap().unwrap())).unwrap().unwrap();
    assert_eq!(list(), expected);
    let (_, newest) = block_on(sessions.renew(&current, Renewal::FullSignIn(proved_sign_in()))).unwrap().unwrap();
    assert_eq!(newest.sid(), all[3].1.sid());
    assert_eq!(list(), [&expected[1..], &expected[..1]].concat());
    // what expired is removed and takes no place
    clock.advance(Duration::from_secs(25 * 3600));
    let _created = block_on(sessions.create(new_ada())).unwrap();
    let list = block_on(sessions.lists().get(Some(&tenant), user.as_str().as_bytes()).wait()).unwrap().unwrap();
    assert_eq!(list.value.iter().count(), 1);
}
