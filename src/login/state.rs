//! [`Login`]: one login as it is stored, between its start and its end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    keyed::Keyed,
    parameters::{Binding, Wanted},
};
use crate::{
    policy::{LoginPlan, Method, MethodSet},
    session::UserId,
    tenant::Tenant,
    user::Identifier,
    util::{
        clock::UnixTime,
        handle::Handle,
        secret::{Digest, Secret},
    },
};

/// A login that nobody works on ends after this long.
const IDLE: Duration = Duration::from_secs(10 * 60);
/// And in any case this long after its start.
const ABSOLUTE: Duration = Duration::from_secs(30 * 60);
/// How long after the first `complete` the code can be had.
const COMPLETED: Duration = Duration::from_secs(5 * 60);
/// How long a login that has ended is remembered, so that it can be told from one that never was.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// How long a code that was sent can be given back.
pub(crate) const CODE_LIVES: Duration = Duration::from_secs(5 * 60);
/// How often a code can be tried.
const TRIES: u8 = 5;
/// How many codes one login may have sent.
pub(crate) const SENDS: u8 = 5;
/// How many failures end a login.
pub(crate) const FAILURES: u8 = 15;

/// After so long no try is under way any more.
const SETTLED: Duration = Duration::from_secs(30);

/// The public name of a login: it is shown and sent about freely, and without the secret in the cookie it opens nothing.
pub(crate) type LoginId = Handle;

/// What a login begins with: steps that are done already, for they were proved in a signed-in session of its browser.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) session: Handle,
    pub(crate) user: UserId,
    /// In the order of their times, each of another kind.
    pub(crate) proved: Vec<(Method, u64)>,
    pub(crate) marks: Vec<[u8; 32]>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Login {
    #[serde(with = "crate::util::text")]
    pub(crate) id: LoginId,
    #[serde(with = "crate::util::text")]
    pub(crate) tenant: Tenant,
    pub(crate) binding: Binding,
    /// What the request for the code need not say again.
    #[serde(default)]
    pub(crate) wanted: Wanted,
    /// Who it was begun for, by the name that was given; whether there is such a user is not known to it.
    pub(crate) identifier: Identifier,
    pub(crate) plan: LoginPlan,
    /// What was proved, in order, and when.
    pub(crate) proved: Vec<(Method, u64)>,
    /// How many of them it began with, and the session that must live as long as they are to count.
    #[serde(default)]
    pub(crate) carried: usize,
    #[serde(default, with = "crate::util::text::option")]
    pub(crate) session: Option<Handle>,
    /// Who proved it: fixed by the first success.
    #[serde(with = "crate::util::text::option")]
    pub(crate) user: Option<UserId>,
    /// Keyed hashes of what the password was checked against, and of what took its place at once.
    pub(crate) marks: Vec<[u8; 32]>,
    pub(crate) phase: Phase,
    pub(crate) open: Option<Challenge>,
    pub(crate) failures: u8,
    pub(crate) sends: u8,
    pub(crate) began: u64,
    pub(crate) touched: u64,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Something is waited for.
    Pending,
    /// The last step was proved; more may remain.
    Success,
    /// All steps are proved and confirmed, since then.
    Completed(u64),
    /// Too many failures.
    Failed,
    /// The code of this digest was issued for it.
    Consumed([u8; 32]),
}

/// What is waited for, one at a time. Passkeys and other providers will have theirs here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Challenge {
    Code(OpenCode),
}

impl Challenge {
    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Code(code) => code.method,
        }
    }
}

/// A one-time code that was, or seems to have been, sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenCode {
    pub(crate) method: Method,
    /// Keyed hash of the address that was asked for.
    pub(crate) address: [u8; 32],
    code: [u8; 32],
    /// Whose verified address it is; nobody's code can't come back right.
    #[serde(with = "crate::util::text::option")]
    pub(crate) owner: Option<UserId>,
    tries: u8,
    expires_at: u64,
}

impl Login {
    pub(crate) fn begin(
        secret: &Secret,
        tenant: Tenant,
        binding: Binding,
        identifier: Identifier,
        plan: LoginPlan,
        now: UnixTime,
    ) -> Self {
        Self {
            id: Handle::of(&secret.digest()),
            tenant,
            binding,
            wanted: Wanted::default(),
            identifier,
            plan,
            proved: Vec::new(),
            carried: 0,
            session: None,
            user: None,
            marks: Vec::new(),
            phase: Phase::Pending,
            open: None,
            failures: 0,
            sends: 0,
            began: now.as_nanos(),
            touched: now.as_nanos(),
        }
    }

    pub(crate) fn wanting(self, wanted: Wanted) -> Self {
        Self { wanted, ..self }
    }

    /// The same, with steps that are done already.
    pub(crate) fn carrying(mut self, carried: Carried) -> Self {
        self.carried = carried.proved.len();
        self.session = Some(carried.session);
        self.user = Some(carried.user);
        self.marks = carried.marks;
        self.proved = carried.proved;
        self.phase = Phase::Success;
        self
    }

    /// Whether it rests on a session alone.
    pub(crate) fn is_all_carried(&self) -> bool {
        self.carried == self.proved.len()
    }

    pub(crate) fn required(&self) -> usize {
        self.plan.steps()
    }

    pub(crate) fn completed(&self) -> usize {
        self.proved.len()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.required().saturating_sub(self.completed())
    }

    pub(crate) fn proved(&self) -> MethodSet {
        self.proved.iter().map(|(method, _)| *method).collect()
    }

    /// When it ends, if nobody does anything about it.
    pub(crate) fn ends_at(&self) -> UnixTime {
        let began = UnixTime::from_nanos(self.began);
        let next = match self.phase {
            Phase::Completed(since) => UnixTime::from_nanos(since) + COMPLETED,
            Phase::Consumed(_) => UnixTime::from_nanos(self.touched),
            Phase::Pending | Phase::Success | Phase::Failed => UnixTime::from_nanos(self.touched) + IDLE,
        };
        next.min(began + ABSOLUTE)
    }

    pub(crate) fn has_ended(&self, now: UnixTime) -> bool {
        matches!(self.phase, Phase::Consumed(_)) || now >= self.ends_at()
    }

    /// When it may be forgotten.
    pub(crate) fn forgotten_at(&self) -> UnixTime {
        self.ends_at() + REMEMBERED
    }

    /// Whether too many tries were wrong; or may have been, for whoever made the last ones never learned how they ended.
    pub(crate) fn has_failed(&self, now: UnixTime) -> bool {
        let unsettled = self.failures >= FAILURES && self.remaining() > 0;
        self.phase == Phase::Failed || unsettled && now >= UnixTime::from_nanos(self.touched) + SETTLED
    }

    pub(crate) fn is_completed(&self, now: UnixTime) -> bool {
        matches!(self.phase, Phase::Completed(_)) && !self.has_ended(now)
    }

    /// Whether all that it was proved by is no older than this, or was proved in it: it was begun for one request, so that
    /// is an authentication anew, however short the time was that the request gave.
    pub(crate) fn was_proved_within(&self, age: Duration, now: UnixTime) -> bool {
        self.proved.iter().take(self.carried).all(|(_, at)| UnixTime::from_nanos(*at) + age >= now)
    }

    /// What is shown of it.
    pub(crate) fn view(&self, now: UnixTime) -> View {
        let status = match self.phase {
            Phase::Consumed(_) => Status::Expired,
            _ if self.has_ended(now) => Status::Expired,
            _ if self.has_failed(now) => Status::Failed,
            Phase::Pending => Status::Pending,
            Phase::Success => Status::Success,
            Phase::Completed(_) => Status::Completed,
            Phase::Failed => Status::Failed,
        };
        View { id: self.id, status, completed: self.completed(), remaining: self.remaining() }
    }
}

impl OpenCode {
    pub(crate) fn new(
        method: Method,
        address: &Digest,
        owner: Option<UserId>,
        login: &LoginId,
        code: &str,
        keyed: &Keyed,
        now: UnixTime,
    ) -> Self {
        let address = *address.as_bytes();
        let expires_at = (now + CODE_LIVES).as_nanos();
        let code = *hash_of(login, method, &address, code, keyed).as_bytes();
        Self { method, address, code, owner, tries: 0, expires_at }
    }

    /// Whether this is that very code, sent at that very time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.code == other.code && self.expires_at == other.expires_at
    }

    /// What is left of it after a try that was wrong: nothing after the last.
    pub(crate) fn tried(&self) -> Option<Self> {
        let tries = self.tries.saturating_add(1);
        (tries < TRIES).then(|| Self { tries, ..self.clone() })
    }

    /// Whether this is the code, in a time that does not depend on where the two differ.
    pub(crate) fn is(&self, guess: &str, login: &LoginId, keyed: &Keyed, now: UnixTime) -> bool {
        let guessed = hash_of(login, self.method, &self.address, guess, keyed);
        guessed.matches(&Digest::from_bytes(self.code)) & (now.as_nanos() < self.expires_at)
    }
}

/// A code counts in one login, by one method and for one address.
fn hash_of(login: &LoginId, method: Method, address: &[u8; 32], code: &str, keyed: &Keyed) -> Digest {
    keyed.hash("one-time code", [login.to_string().as_bytes(), method.as_str().as_bytes(), address, code.as_bytes()])
}

/// What every answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) id: LoginId,
    pub(crate) status: Status,
    pub(crate) completed: usize,
    pub(crate) remaining: usize,
}

impl View {
    pub(crate) fn next(&self) -> Option<usize> {
        (self.remaining > 0).then_some(self.completed + 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Pending,
    Success,
    Completed,
    Failed,
    Expired,
}

impl Status {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }
}
