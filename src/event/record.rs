use crate::{
    tenant::Tenant,
    util::{clock::UnixTime, handle::Handle},
};

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventKind {
    /// A request was refused, or would have been (see [`Mode`]), because the quota is spent.
    RateLimited,
    /// A request was refused because it costs more than the whole quota.
    QuotaImpossible,
    /// A request of a denied tenant was refused.
    TenantDenied,
    /// An operator voided what a tenant had spent.
    TenantReset,
    /// The limiter is full: new tenants share buckets from here on.
    OverflowBegan,
    /// The limiter has room again: new tenants have a budget of their own.
    OverflowEnded,
    /// Somebody signed in: a session began.
    SessionCreated,
    /// A session got a new secret, and the old one ended.
    SessionRenewed,
    /// A session was ended: by its user, by an operator, or because the user has too many.
    SessionRevoked,
    /// A cookie was presented whose session had ended before. Its owner's browser may have slept, or it was stolen.
    SessionUseAfterExpire,
    /// A cookie named a live session but carried another secret. It may be older than the last rotation, or a guess.
    SessionWrongSecret,
    /// A login began.
    LoginStarted,
    /// A step of a login was proved.
    LoginStepProved,
    /// All steps were proved, and the code was issued.
    LoginSucceeded,
    /// A step of a login was tried, and was wrong.
    LoginFailed,
    /// A login ended after too many failures.
    LoginFailedMost,
    /// A try was refused, for there were too many failures before.
    LoginLocked,
    /// What was right, or would have been sent, was not taken: an account or an address had more than its share. The
    /// caller does not see it.
    LoginCeiling,
    /// An authorization code was issued.
    CodeIssued,
    /// A one-time code was put in the queue of its sender.
    OtpSent,
    /// A one-time code could not be delivered.
    OtpUndelivered,
    /// A call came before its turn, or with other parameters than the login began with.
    SequenceFailed,
    /// A call came from a page that may not make it.
    ForeignOrigin,
    /// A code or a refresh token was exchanged for tokens.
    TokenIssued,
    /// A code or a refresh token came back that had been used before: two have it. What it gave has ended.
    TokenReused,
    /// Tokens were taken back, by their client or by a sign-out.
    TokenRevoked,
}

impl EventKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::RateLimited,
        Self::QuotaImpossible,
        Self::TenantDenied,
        Self::TenantReset,
        Self::OverflowBegan,
        Self::OverflowEnded,
        Self::SessionCreated,
        Self::SessionRenewed,
        Self::SessionRevoked,
        Self::SessionUseAfterExpire,
        Self::SessionWrongSecret,
        Self::LoginStarted,
        Self::LoginStepProved,
        Self::LoginSucceeded,
        Self::LoginFailed,
        Self::LoginFailedMost,
        Self::LoginLocked,
        Self::LoginCeiling,
        Self::CodeIssued,
        Self::OtpSent,
        Self::OtpUndelivered,
        Self::SequenceFailed,
        Self::ForeignOrigin,
        Self::TokenIssued,
        Self::TokenReused,
        Self::TokenRevoked,
    ];

    /// A stable name, as it stands in the log and in queries. Those of logins follow the logging vocabulary of OWASP.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::QuotaImpossible => "quota_impossible",
            Self::TenantDenied => "tenant_denied",
            Self::TenantReset => "tenant_reset",
            Self::OverflowBegan => "overflow_began",
            Self::OverflowEnded => "overflow_ended",
            Self::SessionCreated => "session_created",
            Self::SessionRenewed => "session_renewed",
            Self::SessionRevoked => "session_revoked",
            Self::SessionUseAfterExpire => "session_use_after_expire",
            Self::SessionWrongSecret => "session_wrong_secret",
            Self::LoginStarted => "authn_login_start",
            Self::LoginStepProved => "authn_login_step",
            Self::LoginSucceeded => "authn_login_success",
            Self::LoginFailed => "authn_login_fail",
            Self::LoginFailedMost => "authn_login_fail_max",
            Self::LoginLocked => "authn_login_lock",
            Self::LoginCeiling => "authn_login_ceiling",
            Self::CodeIssued => "authn_code_created",
            Self::OtpSent => "authn_otp_sent",
            Self::OtpUndelivered => "authn_otp_undelivered",
            Self::SequenceFailed => "sequence_fail",
            Self::ForeignOrigin => "malicious_csrf",
            Self::TokenIssued => "authn_token_created",
            Self::TokenReused => "authn_token_reuse",
            Self::TokenRevoked => "authn_token_revoked",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

/// Whether a quota refuses or only says that it would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// What it refuses is refused.
    Enforced,
    /// What it would refuse is admitted and logged.
    Shadow,
}

impl Mode {
    /// A stable name, as it stands in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Shadow => "shadow",
        }
    }
}

/// One entry of the event log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Its number in the log, from 1, in the order of recording; 0 until it is recorded.
    pub id: u64,
    /// When.
    pub at: UnixTime,
    /// What.
    pub kind: EventKind,
    /// Whose, where it concerns one tenant.
    pub tenant: Option<Tenant>,
    /// The session, where it concerns one; coalesced events of several show none.
    pub session: Option<Handle>,
    /// Whom it is about, as a keyed hash of what they typed; coalesced events of several show none.
    pub subject: Option<Handle>,
    /// The method of a step of a login, or the channel of a one-time code.
    pub method: Option<&'static str>,
    /// The policy, where one decided.
    pub policy: Option<&'static str>,
    /// Whether that policy is enforced.
    pub mode: Mode,
    /// The limit of the policy: `x-ratelimit`.
    pub limit: u32,
    /// Units still allowed: `x-ratelimit-remaining`.
    pub remaining: u32,
    /// When a retry is admitted: `x-ratelimit-reset`, in Unix seconds rounded up; `None` where no retry helps.
    pub reset: Option<UnixTime>,
    /// How many such things this entry stands for: floods are coalesced.
    pub count: u64,
}

impl Event {
    /// An event that concerns no policy.
    pub fn new(kind: EventKind, at: UnixTime) -> Self {
        Self {
            id: 0,
            at,
            kind,
            tenant: None,
            session: None,
            subject: None,
            method: None,
            policy: None,
            mode: Mode::Enforced,
            limit: 0,
            remaining: 0,
            reset: None,
            count: 1,
        }
    }

    /// Says whose it is.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Says which session it concerns.
    pub fn session(mut self, session: Handle) -> Self {
        self.session = Some(session);
        self
    }

    /// Says whom it is about, by a keyed hash.
    pub fn subject(mut self, subject: Handle) -> Self {
        self.subject = Some(subject);
        self
    }

    /// Says by which method.
    pub fn method(mut self, method: &'static str) -> Self {
        self.method = Some(method);
        self
    }
}
