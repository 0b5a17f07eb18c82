//! A login as it is stored, from its start to its end.

use std::time::Duration;

use super::{
    limits::{COMPLETION_WINDOW, IDLE_TIMEOUT, LoginLimits},
    one_time_code::OpenCode,
    parameters::{Binding, Wanted},
    subject::{BoundUser, LoginId, Subject},
};
use crate::{
    policy::{LoginPlan, Method, MethodSet},
    session::{Authentication, Proof},
    tenant::Tenant,
    user::Identifier,
    util::{
        clock::{UnixTime, saturating_nanos},
        fmt::named_enum,
        public_id::PublicId,
        secret::{Secret, SecretDigest},
    },
};

/// How long an ended login is remembered, so that its calls get `session_expired` instead of `invalid_session`.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// The maximum number of one-time codes sent in one login.
pub(super) const MAX_SENDS: u8 = 5;
/// The number of failures that end a login.
pub(super) const MAX_FAILURES: u8 = 15;
/// An attempt that takes longer than this no longer counts as in progress.
const ATTEMPT_TIME: Duration = Duration::from_secs(30);

/// The signed-in session of the same browser that a login continues, and the steps that it takes over.
#[derive(Clone, Debug)]
pub(crate) struct CarriedProofs {
    pub(crate) session: PublicId,
    pub(crate) user: BoundUser,
    /// Ordered by time. No two proofs have the same method. Empty if none is strong and young enough.
    pub(crate) proofs: Vec<Proof>,
}

#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) id: LoginId,
    pub(crate) tenant: Tenant,
    pub(crate) binding: Binding,
    /// Optional parameters of the client, which the request for the code does not have to repeat.
    pub(crate) wanted: Wanted,
    /// The name that was given at the start. It counts for throttles and events only: accounts are found by id.
    pub(crate) identifier: Option<Identifier>,
    pub(crate) subject: Subject,
    pub(crate) plan: LoginPlan,
    /// The proved steps, oldest first.
    pub(crate) proofs: Vec<Proof>,
    /// How many of them came from a session.
    pub(crate) carried: usize,
    /// The signed-in session that the login continues. The login counts as long as that session lives.
    pub(crate) session: Option<PublicId>,
    pub(crate) phase: LoginPhase,
    pub(crate) open: Option<Challenge>,
    /// The age in seconds that the request allows for the newest proof. Zero asks for a new one.
    pub(crate) max_age: Option<u64>,
    /// The challenge that a passkey can sign.
    pub(crate) passkey: Option<OpenChallenge>,
    pub(crate) failures: u8,
    pub(crate) sends: u8,
    pub(crate) began: u64,
    pub(crate) touched: u64,
    /// How long the login lasts in all, as set when it began, in nanoseconds.
    pub(super) lifetime: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginPhase {
    /// A challenge is open, or nothing happened yet.
    Pending,
    /// A step was proved. More may remain.
    Success,
    /// All steps were proved and confirmed at this time.
    Completed(u64),
    /// Too many failures.
    Failed,
    /// The user or a proof no longer counts.
    Ended,
    /// The login was spent: this session begins or is updated.
    Consumed(PublicId),
}

/// The one challenge that a login waits for, besides that for a passkey.
#[derive(Clone, Debug)]
pub(crate) enum Challenge {
    Code(OpenCode),
    Redirect(OpenRedirect),
}

/// A challenge that can be answered once: by a passkey, or at another identity provider. The login keeps only a digest.
#[derive(Clone, Debug)]
pub(crate) struct OpenChallenge {
    pub(super) digest: SecretDigest,
    pub(super) expires_at: u64,
}

impl OpenChallenge {
    pub(crate) fn new(digest: SecretDigest, expires_at: UnixTime) -> Self {
        Self { digest, expires_at: expires_at.as_nanos() }
    }

    /// Returns whether this is the digest of the challenge.
    pub(crate) fn is(&self, digest: &SecretDigest) -> bool {
        self.digest.matches(digest)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is(&other.digest)
    }

    pub(crate) fn has_expired(&self, now: UnixTime) -> bool {
        now.as_nanos() >= self.expires_at
    }

    pub(crate) fn expires_at(&self) -> UnixTime {
        UnixTime::from_nanos(self.expires_at)
    }
}

/// The challenge of a login whose user is at another identity provider.
#[derive(Clone, Debug)]
pub(crate) struct OpenRedirect {
    pub(crate) provider: String,
    /// The secret in `state`.
    pub(crate) state: OpenChallenge,
    /// The query of the login page, to which the user returns.
    pub(crate) query: String,
}

impl OpenRedirect {
    /// Returns whether this provider may redeem the challenge with this secret.
    pub(crate) fn is_for(&self, provider: &str, state: &SecretDigest, now: UnixTime) -> bool {
        self.was_for(provider, state) && !self.state.has_expired(now)
    }

    /// Returns whether this provider could redeem the challenge with this secret, perhaps too late.
    pub(crate) fn was_for(&self, provider: &str, state: &SecretDigest) -> bool {
        self.state.is(state) && self.provider == provider
    }
}

impl Challenge {
    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Code(code) => code.method,
            Self::Redirect(_) => Method::Sso,
        }
    }

    /// Returns the code that was sent, if one is open.
    pub(crate) fn code(&self) -> Option<&OpenCode> {
        match self {
            Self::Code(code) => Some(code),
            Self::Redirect(_) => None,
        }
    }
}

impl Login {
    pub(crate) fn begin_login(
        secret: &Secret,
        tenant: Tenant,
        (binding, wanted): (Binding, Wanted),
        plan: LoginPlan,
        (limits, now): (&LoginLimits, UnixTime),
    ) -> Self {
        Self {
            id: PublicId::of_digest(&secret.digest()),
            tenant,
            binding,
            wanted,
            identifier: None,
            subject: Subject::Unbound,
            plan,
            proofs: Vec::new(),
            carried: 0,
            session: None,
            phase: LoginPhase::Pending,
            open: None,
            max_age: None,
            passkey: None,
            failures: 0,
            sends: 0,
            began: now.as_nanos(),
            touched: now.as_nanos(),
            lifetime: saturating_nanos(limits.absolute_timeout),
        }
    }

    /// Binds a new login to the user behind a name.
    pub(crate) fn identified(self, identifier: Identifier, subject: Subject) -> Self {
        Self { identifier: Some(identifier), subject, ..self }
    }

    /// Returns whether a new login can continue from this session.
    pub(crate) fn may_carry(&self, carried: &CarriedProofs) -> bool {
        self.subject.accepts(&carried.user.id)
    }

    /// Adds the proofs of a session to a new login and binds it to the session's user.
    pub(crate) fn carrying(mut self, carried: CarriedProofs) -> Self {
        self.carried = carried.proofs.len();
        self.session = Some(carried.session);
        self.subject = Subject::User(carried.user);
        self.proofs = carried.proofs;
        if self.carried > 0 {
            self.phase = LoginPhase::Success;
        }
        self
    }

    /// Returns whether all proofs come from a session.
    pub(crate) fn is_all_carried(&self) -> bool {
        self.carried == self.proofs.len()
    }

    /// Returns the proofs that come from a session.
    pub(crate) fn carried_proofs(&self) -> &[Proof] {
        self.proofs.get(..self.carried).unwrap_or_default()
    }

    /// Returns the user and the proofs, or `None` before the first proof.
    pub(crate) fn authentication(&self, acr: Option<&str>) -> Option<Authentication> {
        let user = self.subject.user().filter(|_| !self.proofs.is_empty())?;
        Some(Authentication {
            tenant: self.tenant.clone(),
            user: user.id.clone(),
            generation: user.generation,
            proofs: self.proofs.clone(),
            acr: acr.map(Into::into),
        })
    }

    pub(crate) fn required(&self) -> usize {
        self.plan.steps()
    }

    pub(crate) fn completed(&self) -> usize {
        self.proofs.len()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.required().saturating_sub(self.completed())
    }

    pub(crate) fn proved(&self) -> MethodSet {
        MethodSet::of_proofs(&self.proofs)
    }

    /// Returns when the login ends if nothing happens.
    pub(crate) fn ends_at(&self) -> UnixTime {
        let at = UnixTime::from_nanos;
        let next = match self.phase {
            LoginPhase::Completed(since) => at(since) + COMPLETION_WINDOW,
            LoginPhase::Consumed(_) | LoginPhase::Ended => at(self.touched),
            LoginPhase::Pending | LoginPhase::Success | LoginPhase::Failed => at(self.touched) + IDLE_TIMEOUT,
        };
        next.min(at(self.began.saturating_add(self.lifetime)))
    }

    pub(crate) fn has_ended(&self, now: UnixTime) -> bool {
        matches!(self.phase, LoginPhase::Consumed(_) | LoginPhase::Ended) || now >= self.ends_at()
    }

    /// Returns when the row can be deleted.
    pub(crate) fn forgotten_at(&self) -> UnixTime {
        self.ends_at() + REMEMBERED
    }

    /// Returns whether the login failed. Attempts whose outcome was never stored count as failures after a while.
    pub(crate) fn has_failed(&self, now: UnixTime) -> bool {
        let unsettled = self.failures >= MAX_FAILURES && self.remaining() > 0;
        self.phase == LoginPhase::Failed || unsettled && now >= UnixTime::from_nanos(self.touched) + ATTEMPT_TIME
    }

    /// Returns the session that this login was spent for.
    pub(crate) fn spent_for(&self) -> Option<PublicId> {
        match self.phase {
            LoginPhase::Consumed(session) => Some(session),
            _ => None,
        }
    }

    /// Returns whether the last change of this login came first.
    pub(crate) fn was_touched_before(&self, other: &Self) -> bool {
        (self.touched, self.id.as_bytes()) < (other.touched, other.id.as_bytes())
    }

    pub(crate) fn is_completed(&self, now: UnixTime) -> bool {
        matches!(self.phase, LoginPhase::Completed(_)) && !self.has_ended(now)
    }

    /// Returns whether each proof is younger than `age` or was made in this login. A login belongs to one request, so its own
    /// proofs are a fresh authentication even if `age` is very short: unless another provider took its user from a session
    /// of its own. One of unknown age counts next to another proof.
    pub(crate) fn was_proved_within(&self, age: Duration, now: UnixTime) -> bool {
        let is_young = |proof: &Proof| proof.authenticated_at() + age >= now;
        let began = UnixTime::from_nanos(self.began);
        // the provider was asked for at most this age, and its answer checked
        let was_asked = self.max_age.is_some_and(|asked| Duration::from_secs(asked) <= age);
        let is_fresh = |proof: &Proof| is_young(proof) || proof.authenticated_at() >= began;
        self.carried_proofs().iter().all(is_young)
            && (was_asked
                || self.proofs.iter().any(is_fresh)
                    && self.proofs.iter().all(|proof| is_fresh(proof) || proof.has_unknown_age()))
    }

    pub(crate) fn to_login_view(&self, now: UnixTime) -> LoginView {
        let status = match self.phase {
            _ if self.has_ended(now) => LoginStatus::Expired,
            _ if self.has_failed(now) => LoginStatus::Failed,
            LoginPhase::Pending => LoginStatus::Pending,
            LoginPhase::Success => LoginStatus::Success,
            LoginPhase::Completed(_) => LoginStatus::Completed,
            LoginPhase::Failed => LoginStatus::Failed,
            LoginPhase::Ended | LoginPhase::Consumed(_) => LoginStatus::Expired,
        };
        LoginView { id: self.id, status, completed: self.completed(), remaining: self.remaining() }
    }
}

/// The part of a login that every response shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoginView {
    pub(crate) id: LoginId,
    pub(crate) status: LoginStatus,
    pub(crate) completed: usize,
    pub(crate) remaining: usize,
}

impl LoginView {
    pub(crate) fn next(&self) -> Option<usize> {
        (self.remaining > 0).then_some(self.completed + 1)
    }
}

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum LoginStatus {
        Pending = "pending",
        Success = "success",
        Completed = "completed",
        Failed = "failed",
        Expired = "expired",
    }

    pub(crate) fn as_str;
}
