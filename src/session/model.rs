//! Random lives of sessions, compared with a plain list.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::{
    cookies::{PresentedCookies, SessionCookie},
    identity::{Authentication, Proof, UserId},
    opening::Renewal,
    session::{NewSession, Session},
    sessions::Sessions,
};
use crate::{
    http::cookie::SetCookie,
    store::{Memory, StoreError},
    tenant::Tenant,
    testing::{ManualClock, block_on},
    util::{
        clock::{Clock, UnixTime},
        public_id::PublicId,
        secret::Secret,
    },
};

/// Reads the session cookie that a response sets.
pub(super) fn cookie_of(cookie: &SetCookie) -> SessionCookie {
    let header = cookie.header_value();
    let (_, value) = header.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
    SessionCookie::parse(value.as_bytes()).unwrap()
}

/// Looks up the session of a request with this cookie.
pub(super) fn present(sessions: &Sessions, cookie: SessionCookie) -> Result<Option<Session>, StoreError> {
    block_on(sessions.find(&PresentedCookies::One(cookie), None).wait())
}

/// The authentication of a sign-in with these methods.
pub(super) fn proved(tenant: &str, user: &str, generation: u64, methods: &[&str]) -> Authentication {
    let proof = |method: &&str| Proof { method: Box::from(*method), at: 1, mark: None, elsewhere: None };
    Authentication {
        tenant: Tenant::parse(tenant).unwrap(),
        user: UserId::parse(user).unwrap(),
        generation,
        proofs: methods.iter().map(proof).collect(),
        acr: Some("mfa".into()),
    }
}

/// The amr that `keep_proofs` computes in tests. One proof is enough.
pub(super) fn amr(proofs: &[Proof]) -> Option<Vec<Box<str>>> {
    (!proofs.is_empty()).then(|| proofs.iter().map(|proof| proof.method.clone()).collect())
}

/// Keeps the proofs by this method.
pub(super) fn by(method: &str) -> impl Fn(&Proof) -> Option<Proof> {
    move |proof| (&*proof.method == method).then(|| proof.clone())
}

#[derive(Clone, Debug)]
enum Operation {
    Create { user: usize, proofs: bool, remember: bool },
    CreateStale { user: usize },
    Use { session: usize },
    UseOldSecret { session: usize },
    UseUnknown,
    Revoke { session: usize },
    RevokeSid { session: usize },
    RevokeOthers { session: usize },
    RevokeUser { user: usize },
    EndUser { user: usize },
    Rotate { session: usize, outdated: bool },
    Renew { session: usize, outdated: bool, full: bool, remember: bool },
    KeepProofs { session: usize, method: &'static str },
    List { user: usize },
    Advance { seconds: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let (session, user, flag) = (|| 0..1000_usize, || 0..3_usize, any::<bool>);
    let outdated = || prop::bool::weighted(0.2);
    prop_oneof![
        6 => (user(), flag(), flag()).prop_map(|(user, proofs, remember)| Create { user, proofs, remember }),
        1 => user().prop_map(|user| CreateStale { user }),
        8 => session().prop_map(|session| Use { session }),
        2 => session().prop_map(|session| UseOldSecret { session }),
        1 => Just(UseUnknown),
        2 => session().prop_map(|session| Revoke { session }),
        1 => session().prop_map(|session| RevokeSid { session }),
        1 => session().prop_map(|session| RevokeOthers { session }),
        1 => user().prop_map(|user| RevokeUser { user }),
        1 => user().prop_map(|user| EndUser { user }),
        2 => (session(), outdated()).prop_map(|(session, outdated)| Rotate { session, outdated }),
        3 => (session(), outdated(), flag(), flag())
            .prop_map(|(session, outdated, full, remember)| Renew { session, outdated, full, remember }),
        2 => (session(), prop::sample::select(vec!["password", "email", "none"]))
            .prop_map(|(session, method)| KeepProofs { session, method }),
        3 => user().prop_map(|user| List { user }),
        8 => prop_oneof![0..130_u64, 1..4_000_u64].prop_map(|seconds| Advance { seconds }),
    ]
}

const IDLE: u64 = 3_600;
const ABSOLUTE: u64 = 3 * 3_600;
const REMEMBERED: u64 = 9 * 3_600;

/// The expected state of one session.
struct Known {
    sid: PublicId,
    user: usize,
    /// The latest snapshot and its cookie.
    session: Session,
    cookie: SessionCookie,
    /// Snapshots and cookies with secrets that were replaced.
    outdated: Vec<(Session, SessionCookie)>,
    created: UnixTime,
    expires: UnixTime,
    last_use: UnixTime,
    remembered: bool,
    methods: Vec<&'static str>,
    alive: bool,
}

impl Known {
    fn lives(&self, now: UnixTime) -> bool {
        let idle_end = self.last_use + Duration::from_secs(IDLE);
        self.alive && now < self.expires && (self.remembered || now < idle_end)
    }

    fn assert_is(&self, session: &Session) {
        let (tenant, user) = (&self.session.tenant(), self.session.user());
        assert_eq!((session.sid(), &session.tenant(), session.user()), (self.sid, tenant, user));
        assert_eq!((session.created(), session.expires()), (self.created, self.expires));
        assert!(session.authentication().methods().eq(self.methods.iter().copied()));
        assert!(session.amr().eq(self.methods.iter().copied()));
        assert_eq!(session.is_remembered(), self.remembered);
    }

    fn replace_secret(&mut self, cookie: &SetCookie, session: Session, now: UnixTime) {
        let cookie = std::mem::replace(&mut self.cookie, cookie_of(cookie));
        assert!(self.cookie.sid == self.sid && !self.cookie.secret.matches(&cookie.secret));
        let before = std::mem::replace(&mut self.session, session);
        self.outdated.push((before, cookie));
        self.last_use = now;
    }
}

/// Two users of one tenant, and one of them at another tenant.
const USERS: [(&str, &str); 3] = [("acme", "ada"), ("globex", "ada"), ("acme", "grace")];

fn user(number: usize) -> (Tenant, UserId) {
    let (tenant, user) = USERS[number];
    (Tenant::parse(tenant).unwrap(), UserId::parse(user).unwrap())
}

struct Model {
    clock: ManualClock,
    sessions: Sessions,
    known: Vec<Known>,
    generations: [u64; 3],
}

impl Model {
    fn now(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }

    fn new_session(&self, number: usize, methods: &[&'static str], remember: bool) -> NewSession {
        let new = match methods {
            [] => NewSession::new(user(number).0, user(number).1),
            _ => {
                let (tenant, name) = USERS[number];
                NewSession::authenticated(proved(tenant, name, self.generations[number], methods))
            }
        };
        let new = new.amr(methods.iter().copied()).unwrap();
        if remember { new.remember(Duration::from_secs(REMEMBERED)).unwrap() } else { new }
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
        use Operation::*;
        let now = self.now();
        let at = match *operation {
            Use { session }
            | UseOldSecret { session }
            | Revoke { session }
            | RevokeSid { session }
            | RevokeOthers { session }
            | Rotate { session, .. }
            | Renew { session, .. }
            | KeepProofs { session, .. } => match session.checked_rem(self.known.len()) {
                Some(at) => at,
                None => return,
            },
            _ => 0,
        };
        match *operation {
            Create { user, proofs, remember } => self.create(user, proofs, remember),
            CreateStale { user } => {
                let Some(before) = self.generations[user].checked_sub(1) else { return };
                let (tenant, name) = USERS[user];
                let new = NewSession::authenticated(proved(tenant, name, before, &["password"]));
                assert!(block_on(self.sessions.create_unless_ended(new)).unwrap().is_none(), "c119");
            }
            Use { .. } => {
                let known = &mut self.known[at];
                let found = present(&self.sessions, known.cookie).unwrap();
                assert_eq!(found.is_some(), known.lives(now), "c105 {:?} at {now:?}", known.session);
                if let Some(found) = found {
                    known.assert_is(&found);
                    if now.as_nanos() - known.last_use.as_nanos() >= 60_000_000_000 {
                        known.last_use = now;
                    }
                    assert_eq!(found.last_use(), known.last_use);
                }
            }
            UseOldSecret { .. } => {
                for (_, cookie) in &self.known[at].outdated {
                    assert!(present(&self.sessions, *cookie).unwrap().is_none(), "c118");
                }
            }
            UseUnknown => {
                let cookie = SessionCookie { sid: PublicId::random(), secret: Secret::generate().digest() };
                assert!(present(&self.sessions, cookie).unwrap().is_none());
            }
            Revoke { .. } => {
                block_on(self.sessions.revoke(&self.known[at].session)).unwrap();
                self.known[at].alive = false;
            }
            RevokeSid { .. } => {
                let ended = block_on(self.sessions.revoke_sid(&self.known[at].sid)).unwrap();
                assert_eq!(ended, self.known[at].lives(now));
                self.known[at].alive = false;
            }
            RevokeOthers { .. } => {
                let (kept, number) = (self.known[at].session.clone(), self.known[at].user);
                let ended = block_on(self.sessions.revoke_others(&kept)).unwrap();
                assert_eq!(ended, self.end(|known| known.user == number && known.sid != kept.sid()));
            }
            RevokeUser { user: number } => {
                let (tenant, user) = user(number);
                let ended = block_on(self.sessions.revoke_user(&tenant, &user)).unwrap();
                assert_eq!(ended, self.end(|known| known.user == number));
            }
            EndUser { user: number } => {
                let (tenant, user) = user(number);
                let ended = block_on(self.sessions.end_user(&tenant, &user)).unwrap();
                assert_eq!(ended, self.end(|known| known.user == number));
                self.generations[number] += 1;
            }
            Rotate { outdated, .. } => {
                let Some((session, expected)) = self.snapshot(at, outdated) else { return };
                let rotated = block_on(self.sessions.rotate(&session)).unwrap();
                assert_eq!(rotated.is_some(), expected);
                if let Some((cookie, session)) = rotated {
                    self.known[at].assert_is(&session);
                    self.known[at].replace_secret(&cookie, session, now);
                }
            }
            Renew { outdated, full, remember, .. } => self.renew(at, outdated, full, remember),
            KeepProofs { method, .. } => self.keep_proofs(at, method),
            List { user: number } => {
                let (tenant, user) = user(number);
                let listed = block_on(self.sessions.list(&tenant, &user)).unwrap();
                let sids: Vec<_> = listed.iter().map(Session::sid).collect();
                let mut living: Vec<_> =
                    self.known.iter().filter(|known| known.user == number && known.lives(now)).collect();
                // oldest sign-in first
                living.sort_by_key(|known| known.created);
                assert_eq!(sids.len(), living.len(), "c109");
                for known in living {
                    let session = listed.iter().find(|session| session.sid() == known.sid).expect("c109 it is listed");
                    known.assert_is(session);
                    known.assert_is(&block_on(self.sessions.get(&known.sid)).unwrap().unwrap());
                }
                assert!(listed.is_sorted_by_key(Session::created));
            }
            Advance { seconds } => self.clock.advance(Duration::from_secs(seconds)),
        }
    }

    fn create(&mut self, user: usize, proofs: bool, remember: bool) {
        let now = self.now();
        let methods = if proofs { vec!["password", "email"] } else { Vec::new() };
        let (set, session) = block_on(self.sessions.create(self.new_session(user, &methods, remember))).unwrap();
        let lifetime = if remember { REMEMBERED } else { ABSOLUTE };
        let text = set.header_value().to_str().unwrap().to_owned();
        assert_eq!(text.contains(&format!("; Max-Age={REMEMBERED}")), remember, "{text}");
        let known = Known {
            sid: session.sid(),
            user,
            cookie: cookie_of(&set),
            outdated: Vec::new(),
            created: now,
            expires: now + Duration::from_secs(lifetime),
            last_use: now,
            remembered: remember,
            methods,
            alive: true,
            session,
        };
        known.assert_is(&known.session);
        self.known.push(known);
    }

    /// A snapshot of a session, and whether a change of its secret must succeed.
    fn snapshot(&self, at: usize, outdated: bool) -> Option<(Session, bool)> {
        let known = &self.known[at];
        match outdated {
            true => known.outdated.last().map(|(session, _)| (session.clone(), false)),
            false => Some((known.session.clone(), known.lives(self.now()))),
        }
    }

    fn renew(&mut self, at: usize, outdated: bool, full: bool, remember: bool) {
        let now = self.now();
        let Some((session, expected)) = self.snapshot(at, outdated) else { return };
        let new = self.new_session(self.known[at].user, &["email"], remember);
        let renewal = if full { Renewal::FullSignIn(new) } else { Renewal::StepUp(new) };
        let renewed = block_on(self.sessions.renew(&session, renewal)).unwrap();
        assert_eq!(renewed.is_some(), expected);
        let Some((cookie, session)) = renewed else { return };
        let known = &mut self.known[at];
        known.methods = vec!["email"];
        if full {
            let lifetime = if remember { REMEMBERED } else { ABSOLUTE };
            (known.created, known.expires, known.remembered) = (now, now + Duration::from_secs(lifetime), remember);
        } else if remember {
            known.expires = known.expires.min(now + Duration::from_secs(REMEMBERED));
        }
        known.assert_is(&session);
        known.replace_secret(&cookie, session, now);
    }

    fn keep_proofs(&mut self, at: usize, method: &str) {
        let now = self.now();
        let known = &mut self.known[at];
        let (lived, had_proofs) = (known.lives(now), !known.methods.is_empty());
        let kept = block_on(self.sessions.keep_proofs(&known.session, by(method), amr)).unwrap();
        // a snapshot in which all proofs count is not read again
        let is_untouched = known.session.authentication().methods().all(|own| own == method);
        if is_untouched {
            assert!(kept.is_some());
            return;
        }
        known.methods.retain(|own| *own == method);
        assert_eq!(kept.is_some(), lived && !known.methods.is_empty());
        known.alive &= !(lived && had_proofs && known.methods.is_empty());
        if let Some(kept) = kept {
            assert_eq!(kept.acr(), None);
            known.assert_is(&kept);
            known.session = kept;
        }
    }
}

proptest! {
    #[test]
    fn c105_c106_c109_c118_c119_random_calls_agree_with_a_plain_list_of_sessions(operations in vec(operation(), 1..80)) {
        let clock = ManualClock::new();
        let sessions = Sessions::builder(Memory::new()).clock(clock.clone()).absolute(Duration::from_secs(ABSOLUTE));
        let sessions = sessions.build().unwrap();
        let mut model = Model { clock, sessions, known: Vec::new(), generations: [0; 3] };
        for operation in &operations {
            model.run(operation);
        }
    }
}
