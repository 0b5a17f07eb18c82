use crate::{
    tenant::Tenant,
    util::{clock::UnixTime, handle::Handle},
};

/// The kind of an event.
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
    /// A cookie was used after the end of its session. The browser may have slept, or the cookie was stolen.
    SessionUseAfterExpire,
    /// A cookie named a live session but carried another secret. It may be older than the last rotation, or a guess.
    SessionWrongSecret,
    /// A login began.
    LoginStarted,
    /// A step of a login was proved.
    LoginStepProved,
    /// All steps were proved, and the code was issued.
    LoginSucceeded,
    /// An attempt at a step of a login failed.
    LoginFailed,
    /// A login ended after too many failures.
    LoginFailedMost,
    /// An attempt was refused because of too many failures before.
    LoginLocked,
    /// A right answer was not accepted, or a message was not sent, because an account or an address had reached its
    /// ceiling. The caller cannot see this.
    LoginCeiling,
    /// An authorization code was issued.
    CodeIssued,
    /// A one-time code was put in the queue of its sender.
    OtpSent,
    /// A one-time code could not be delivered.
    OtpUndelivered,
    /// A call came out of order, or with other parameters than those of the login.
    SequenceFailed,
    /// A call came from a page that may not make it.
    ForeignOrigin,
    /// A code or a refresh token was exchanged for tokens.
    TokenIssued,
    /// A code or a refresh token was used a second time, so two parties have it. Its tokens were revoked.
    TokenReused,
    /// Tokens were revoked by their client or by a sign-out.
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

    /// Returns the stable name used in the log and in queries. Names of login events follow the OWASP logging vocabulary.
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

    /// Finds a kind by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

/// Whether a quota is enforced or only observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Requests beyond the quota are refused.
    Enforced,
    /// Requests beyond the quota are admitted and logged.
    Shadow,
}

impl Mode {
    /// Returns the stable name used in the log.
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
    /// The number in the log, from 1 in the order of recording. 0 until the event is recorded.
    pub id: u64,
    /// The time of the event.
    pub at: UnixTime,
    /// The kind of the event.
    pub kind: EventKind,
    /// The tenant, if the event concerns one.
    pub tenant: Option<Tenant>,
    /// The session, if the event concerns one. Empty for coalesced events of several.
    pub session: Option<Handle>,
    /// A keyed hash of the identifier that was typed. Empty for coalesced events of several.
    pub subject: Option<Handle>,
    /// The method of a step of a login, or the channel of a one-time code.
    pub method: Option<&'static str>,
    /// The policy, if one decided.
    pub policy: Option<&'static str>,
    /// Whether that policy is enforced.
    pub mode: Mode,
    /// The limit of the policy: `x-ratelimit`.
    pub limit: u32,
    /// Units still allowed: `x-ratelimit-remaining`.
    pub remaining: u32,
    /// When a retry is admitted: `x-ratelimit-reset`, in Unix seconds rounded up. `None` if no retry can succeed.
    pub reset: Option<UnixTime>,
    /// The number of events in this entry, because floods are coalesced.
    pub count: u64,
}

impl Event {
    /// Creates an event that concerns no policy.
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

    /// Sets the tenant.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Sets the session.
    pub fn session(mut self, session: Handle) -> Self {
        self.session = Some(session);
        self
    }

    /// Sets the subject, a keyed hash.
    pub fn subject(mut self, subject: Handle) -> Self {
        self.subject = Some(subject);
        self
    }

    /// Sets the method.
    pub fn method(mut self, method: &'static str) -> Self {
        self.method = Some(method);
        self
    }
}
