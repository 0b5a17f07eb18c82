//! Random lives of sessions against a plain list.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use crate::{
    session::{NewSession, Session, Sessions, UserId, presented::Presented},
    store::{Memory, StoreError},
    tenant::Tenant,
    testing::{ManualClock, block_on},
    util::{
        clock::{Clock, UnixTime},
        handle::Handle,
        secret::{Digest, Secret},
    },
};

/// A request that presents this secret.
pub(super) fn present(sessions: &Sessions, digest: Digest) -> Result<Option<Session>, StoreError> {
    block_on(sessions.find(Presented::One(digest), None).wait())
}

#[derive(Clone, Debug)]
enum Operation {
    Create { user: usize },
    Use { session: usize },
    UseUnknown,
    Revoke { session: usize },
    RevokeOne { session: usize },
    RevokeOthers { session: usize },
    RevokeUser { user: usize },
    Rotate { session: usize },
    List { user: usize },
    Advance { seconds: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let any = 0..1000_usize;
    prop_oneof![
        4 => (0..3_usize).prop_map(|user| Operation::Create { user }),
        8 => any.clone().prop_map(|session| Operation::Use { session }),
        1 => Just(Operation::UseUnknown),
        2 => any.clone().prop_map(|session| Operation::Revoke { session }),
        1 => any.clone().prop_map(|session| Operation::RevokeOne { session }),
        1 => any.clone().prop_map(|session| Operation::RevokeOthers { session }),
        1 => (0..3_usize).prop_map(|user| Operation::RevokeUser { user }),
        2 => any.prop_map(|session| Operation::Rotate { session }),
        3 => (0..3_usize).prop_map(|user| Operation::List { user }),
        8 => prop_oneof![0..130_u64, 1..4_000_u64].prop_map(|seconds| Operation::Advance { seconds }),
    ]
}

const IDLE: u64 = 3_600;
const ABSOLUTE: u64 = 3 * 3_600;

struct Known {
    digest: Digest,
    session: Session,
    user: usize,
    noted: UnixTime,
    alive: bool,
}

impl Known {
    fn lives(&self, now: UnixTime) -> bool {
        let idle_end = self.noted + Duration::from_secs(IDLE);
        self.alive && now < idle_end && now < self.session.created() + Duration::from_secs(ABSOLUTE)
    }
}

/// All of a session that must never change.
fn identity(session: &Session) -> impl PartialEq + std::fmt::Debug + use<> {
    let amr: Vec<String> = session.amr().map(str::to_owned).collect();
    let acr = session.acr().map(str::to_owned);
    let times = (session.auth_time(), session.created(), session.expires());
    (session.tenant().to_string(), session.user().clone(), acr, amr, times)
}

/// One user of one tenant, the same user of another, another user of the first.
fn user(number: usize) -> (Tenant, UserId) {
    let (tenant, user) = [("acme", "ada"), ("globex", "ada"), ("acme", "grace")][number];
    (Tenant::parse(tenant).unwrap(), UserId::parse(user).unwrap())
}

struct Model {
    clock: ManualClock,
    sessions: Sessions,
    known: Vec<Known>,
}

impl Model {
    fn now(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }

    fn learn(&mut self, session: Session, user: usize) {
        let now = self.now();
        self.known.push(Known { digest: session.digest(), session, user, noted: now, alive: true });
    }

    fn living(&self, user: usize) -> Vec<Handle> {
        let now = self.now();
        let living = self.known.iter().filter(|known| known.user == user && known.lives(now));
        living.map(|known| known.session.handle()).collect()
    }

    fn pick(&self, session: usize) -> Option<usize> {
        session.checked_rem(self.known.len())
    }

    fn end(&mut self, which: impl Fn(&Known) -> bool) -> usize {
        let now = self.now();
        let mut ended = 0;
        for known in self.known.iter_mut().filter(|known| which(known)) {
            ended += usize::from(known.lives(now));
            known.alive = false;
        }
        ended
    }

    fn run(&mut self, operation: &Operation) {
        let now = self.now();
        match *operation {
            Operation::Create { user: number } => {
                let (tenant, user) = user(number);
                let new = NewSession::new(tenant, user).acr("mfa").unwrap().amr(["pwd", "otp"]).unwrap();
                let (cookie, session) = block_on(self.sessions.create(new)).unwrap();
                let set = cookie.header_value();
                let secret = set.to_str().unwrap().strip_prefix("__Host-session=").unwrap().split(';').next();
                assert!(Secret::parse(secret.unwrap()).unwrap().digest().matches(&session.digest()));
                self.learn(session, number);
            }
            Operation::Use { session } => {
                let Some(at) = self.pick(session) else { return };
                let known = &mut self.known[at];
                let found = present(&self.sessions, known.digest).unwrap();
                assert_eq!(found.is_some(), known.lives(now), "c105 {:?} at {now:?}", known.session);
                if let Some(found) = found {
                    assert_eq!(identity(&found), identity(&known.session));
                    if now.as_nanos() - known.noted.as_nanos() >= 60_000_000_000 {
                        known.noted = now;
                    }
                    assert_eq!(found.last_use(), known.noted);
                }
            }
            Operation::UseUnknown => {
                assert!(present(&self.sessions, Secret::generate().digest()).unwrap().is_none());
            }
            Operation::Revoke { session } => {
                let Some(at) = self.pick(session) else { return };
                block_on(self.sessions.revoke(&self.known[at].session)).unwrap();
                self.known[at].alive = false;
            }
            Operation::RevokeOne { session } => {
                let Some(at) = self.pick(session) else { return };
                let known = &self.known[at];
                let ((tenant, user), handle) = (user(known.user), known.session.handle());
                let ended = block_on(self.sessions.revoke_one(&tenant, &user, &handle)).unwrap();
                assert_eq!(ended, known.lives(now));
                self.known[at].alive = false;
            }
            Operation::RevokeOthers { session } => {
                let Some(at) = self.pick(session) else { return };
                let kept = self.known[at].session.clone();
                let ended = block_on(self.sessions.revoke_others(&kept)).unwrap();
                let number = self.known[at].user;
                let others = |known: &Known| known.user == number && !known.digest.matches(&kept.digest());
                assert_eq!(ended, self.end(others));
            }
            Operation::RevokeUser { user: number } => {
                let (tenant, user) = user(number);
                let ended = block_on(self.sessions.revoke_user(&tenant, &user)).unwrap();
                assert_eq!(ended, self.end(|known| known.user == number));
            }
            Operation::Rotate { session } => {
                let Some(at) = self.pick(session) else { return };
                let old = self.known[at].session.clone();
                let rotated = block_on(self.sessions.rotate(&old)).unwrap();
                assert_eq!(rotated.is_some(), self.known[at].lives(now));
                self.known[at].alive = false;
                if let Some((_, new)) = rotated {
                    assert!(!new.digest().matches(&old.digest()));
                    assert_eq!(identity(&new), identity(&old));
                    self.learn(new, self.known[at].user);
                }
            }
            Operation::List { user: number } => {
                let (tenant, user) = user(number);
                let listed = block_on(self.sessions.list(&tenant, &user)).unwrap();
                let mut listed: Vec<_> = listed.iter().map(|session| session.handle().to_string()).collect();
                let mut living: Vec<_> = self.living(number).iter().map(Handle::to_string).collect();
                listed.sort_unstable();
                living.sort_unstable();
                assert_eq!(listed, living, "c109");
            }
            Operation::Advance { seconds } => self.clock.advance(Duration::from_secs(seconds)),
        }
    }
}

proptest! {
    #[test]
    fn c105_c106_c109_random_lives_of_sessions_agree_with_a_list(operations in vec(operation(), 1..80)) {
        let clock = ManualClock::new();
        let sessions = Sessions::new(Memory::new()).clock(clock.clone());
        let sessions = sessions.absolute(Duration::from_secs(ABSOLUTE)).unwrap();
        let mut model = Model { clock, sessions, known: Vec::new() };
        for operation in &operations {
            model.run(operation);
        }
    }
}
