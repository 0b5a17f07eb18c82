//! Calls that overlap in every way, step by step. What holds after each step
//! holds after a crash there.

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

use super::model::present;
use crate::{
    gate::MaybeReady,
    session::{
        NewSession, Session, Sessions, UserId,
        presented::Presented,
        record::{Record, Row},
    },
    store::{Entry, Key, Memory, Record as Written, Store, StoreError, Version, WriteOutcome},
    tenant::Tenant,
    testing::{ManualClock, block_on},
    util::secret::Digest,
};

/// A store that lets others go first before each step.
#[derive(Clone, Default)]
struct Slow {
    memory: Arc<Memory>,
    yields: bool,
    /// Every session that was ever written.
    seen: Arc<Mutex<Vec<Digest>>>,
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
            let digest = Digest::from_bytes(key.id().try_into().unwrap());
            let mut seen = self.seen.lock().unwrap();
            if !seen.iter().any(|known| known.matches(&digest)) {
                seen.push(digest);
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

    async fn insert(&self, key: &Key, record: Written) -> Result<WriteOutcome, StoreError> {
        Self::others_first(self.yields).await;
        self.note(key);
        self.memory.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Written) -> Result<WriteOutcome, StoreError> {
        Self::others_first(self.yields).await;
        self.memory.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Self::others_first(self.yields).await;
        self.memory.take(key).await
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Use(usize),
    Revoke(usize),
    RevokeOthers(usize),
    RevokeUser,
    Rotate(usize),
    Create,
}

fn call() -> impl Strategy<Value = Call> {
    let session = || 0..3_usize;
    prop_oneof![
        3 => session().prop_map(Call::Use),
        2 => session().prop_map(Call::Revoke),
        1 => session().prop_map(Call::RevokeOthers),
        2 => Just(Call::RevokeUser),
        2 => session().prop_map(Call::Rotate),
        1 => Just(Call::Create),
    ]
}

fn ada() -> (Tenant, UserId) {
    (Tenant::parse("acme").unwrap(), UserId::parse("ada").unwrap())
}

fn new_ada() -> NewSession {
    let (tenant, user) = ada();
    NewSession::new(tenant, user)
}

/// What is watched beside the calls.
struct Watch {
    plain: Sessions,
    seen: Arc<Mutex<Vec<Digest>>>,
    /// What was last seen of each session; `None` once it has ended.
    last: HashMap<[u8; 32], Option<Record>>,
}

impl Watch {
    /// Looks at all rows: a session that has ended stays so, identity stays,
    /// and what lives is listed. Says how many live.
    fn look(&mut self) -> usize {
        let (tenant, user) = ada();
        let index = block_on(self.plain.users().get(Some(&tenant), user.as_str().as_bytes()).wait()).unwrap();
        let mut living = 0;
        for digest in self.seen.lock().unwrap().iter() {
            let row = block_on(self.plain.rows().get(None, digest.as_bytes()).wait()).unwrap();
            let now = match row.map(|stored| stored.value) {
                None => continue,
                Some(Row::Ended(_)) => None,
                Some(Row::Live(record)) => Some(record),
            };
            if let Some(record) = &now {
                living += 1;
                let listed = index.as_ref().is_some_and(|index| index.value.has(digest));
                assert!(listed, "a session lives that is not listed");
                if let Some(before) = self.last.get(digest.as_bytes()) {
                    let before = before.clone().expect("c106 an ended session came back");
                    let noted = Record { last_use: record.last_use, ..before };
                    assert_eq!(&noted, record, "the identity changed");
                }
            }
            self.last.insert(*digest.as_bytes(), now);
        }
        living
    }

    fn has_ended(&self, digest: &Digest) -> bool {
        matches!(self.last.get(digest.as_bytes()), Some(None))
    }
}

enum Done {
    Used(Option<Session>),
    RevokedAll,
    Else,
}

type Running = Pin<Box<dyn Future<Output = Done> + Send>>;

fn start(sessions: &Sessions, base: &[Session], call: Call) -> Running {
    let sessions = sessions.clone();
    let session = match call {
        Call::Use(at) | Call::Revoke(at) | Call::RevokeOthers(at) | Call::Rotate(at) => base[at].clone(),
        Call::RevokeUser | Call::Create => base[0].clone(),
    };
    Box::pin(async move {
        match call {
            Call::Use(_) => Done::Used(sessions.find(Presented::One(session.digest()), None).wait().await.unwrap()),
            Call::Revoke(_) => sessions.revoke(&session).await.map(|()| Done::Else).unwrap(),
            Call::RevokeOthers(_) => sessions.revoke_others(&session).await.map(|_| Done::Else).unwrap(),
            Call::RevokeUser => {
                sessions.revoke_user(session.tenant(), session.user()).await.map(|_| Done::RevokedAll).unwrap()
            }
            Call::Rotate(_) => sessions.rotate(&session).await.map(|_| Done::Else).unwrap(),
            // it may lose to a revocation of all
            Call::Create => sessions.create(new_ada()).await.map_or(Done::Else, |_| Done::Else),
        }
    })
}

proptest! {
    #![proptest_config(Config::with_cases(1_000))]
    #[test]
    fn c106_c109_whatever_overlaps_nothing_escapes_and_nothing_comes_back(
        calls in vec(call(), 1..5),
        schedule in vec(0..5_usize, 0..120),
    ) {
        let clock = ManualClock::new();
        let slow = Slow { yields: true, ..Slow::default() };
        let plain = Sessions::new(Slow { yields: false, ..slow.clone() }).clock(clock.clone());
        let sessions = Sessions::new(slow.clone()).clock(clock.clone());
        let base: Vec<Session> = (0..3).map(|_| block_on(plain.create(new_ada())).unwrap().1).collect();
        // so that each use is to be noted
        clock.advance(Duration::from_secs(61));
        let mut watch = Watch { plain, seen: Arc::clone(&slow.seen), last: HashMap::new() };
        watch.look();
        let creates = calls.iter().filter(|call| matches!(call, Call::Create)).count();

        let mut running: Vec<Option<Running>> = calls.iter().map(|_| None).collect();
        let mut begun = vec![false; calls.len()];
        let mut ended_before = vec![false; calls.len()];
        let mut all_revoked = false;
        let finish = (0..2_000).map(|step| step % calls.len());
        for at in schedule.iter().copied().filter(|at| *at < calls.len()).chain(finish) {
            if !begun[at] {
                begun[at] = true;
                if let Call::Use(session) = calls[at] {
                    ended_before[at] = watch.has_ended(&base[session].digest());
                }
                running[at] = Some(start(&sessions, &base, calls[at]));
            }
            let Some(future) = &mut running[at] else { continue };
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let living = watch.look();
            if let Poll::Ready(done) = polled {
                running[at] = None;
                match done {
                    Done::Used(found) => prop_assert!(found.is_none() || !ended_before[at], "used after its end"),
                    Done::RevokedAll => all_revoked = true,
                    Done::Else => {}
                }
            }
            if all_revoked {
                prop_assert!(living <= creates, "{} live after all were revoked", living);
            }
        }
        prop_assert!(running.iter().all(Option::is_none), "a call goes on forever");
    }
}

#[test]
fn c106_a_revoked_session_is_never_accepted_again_while_threads_use_it() {
    for _ in 0..50 {
        let clock = ManualClock::new();
        let sessions = Sessions::new(Memory::new()).clock(clock.clone());
        let (_, session) = block_on(sessions.create(new_ada())).unwrap();
        let revoked = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        // so that each use is noted
                        clock.advance(Duration::from_secs(1));
                        let before = revoked.load(SeqCst);
                        let found = present(&sessions, session.digest()).unwrap();
                        assert!(!before || found.is_none(), "accepted after it was revoked");
                    }
                });
            }
            scope.spawn(|| {
                block_on(sessions.revoke(&session)).unwrap();
                revoked.store(true, SeqCst);
            });
        });
        assert!(present(&sessions, session.digest()).unwrap().is_none());
    }
}

#[test]
fn c109_beyond_100_sessions_the_oldest_is_revoked() {
    let clock = ManualClock::new();
    let sessions = Sessions::new(Memory::new()).clock(clock.clone());
    let mut all = Vec::new();
    for _ in 0..103 {
        all.push(block_on(sessions.create(new_ada())).unwrap().1);
        clock.advance(Duration::from_secs(1));
    }
    let (tenant, user) = ada();
    let handles = |sessions: &[Session]| sessions.iter().map(Session::handle).collect::<Vec<_>>();
    assert_eq!(handles(&block_on(sessions.list(&tenant, &user)).unwrap()), handles(&all[3..]));
    for (at, session) in all.iter().enumerate() {
        assert_eq!(present(&sessions, session.digest()).unwrap().is_some(), at >= 3, "{at}");
    }
    // a new secret keeps its place
    let (_, renewed) = block_on(sessions.rotate(&all[3])).unwrap().unwrap();
    assert_eq!(block_on(sessions.list(&tenant, &user)).unwrap()[0].handle(), renewed.handle());
    // what expired is pruned and takes no place
    clock.advance(Duration::from_secs(25 * 3600));
    let _created = block_on(sessions.create(new_ada())).unwrap();
    let index = block_on(sessions.users().get(Some(&tenant), user.as_str().as_bytes()).wait()).unwrap().unwrap();
    assert_eq!(index.value.iter().count(), 1);
}
