//! Events, and their JSON form.

use std::{fmt, str::FromStr};

use crate::{
    tenant::LimitKey,
    util::{clock::UnixTime, error::ConfigError, handle::Handle, json_object::JsonObject},
};

/// The kind of an [`Event`]. Logs and queries show the name at the beginning of each description. Names of login events
/// follow the OWASP logging vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventKind {
    /// `rate_limited`: a request was rejected because its quota is used up, or would have been (see [`Mode`]).
    RateLimited,
    /// `quota_impossible`: a request was rejected because it costs more than the quota allows.
    QuotaImpossible,
    /// `tenant_denied`: a request of a denied tenant was rejected.
    TenantDenied,
    /// `tenant_reset`: an operator reset the usage of a tenant.
    TenantReset,
    /// `overflow_began`: the limiter is full. New tenants share buckets from now on.
    OverflowBegan,
    /// `overflow_ended`: the limiter has room again. New tenants get their own budget.
    OverflowEnded,
    /// `plan_lookup_fail`: the plan of a tenant could not be looked up.
    PlanLookupFailed,
    /// `limiter_fallback_began`: the server of a shared limiter does not answer. Its fallback decides from now on. The
    /// reason is `no_answer`, `no_connection`, `loading`, `read_only`, `out_of_memory`, `access_denied`, or `error` for any
    /// other one.
    LimiterFallbackBegan,
    /// `limiter_fallback_ended`: the server of a shared limiter answers again.
    LimiterFallbackEnded,
    /// `store_fail`: a store could not be read or written, or the accounts could not. Requests that need it get a 503
    /// meanwhile.
    StoreFailed,
    /// `client_address_unknown`: the login service does not know the addresses of clients any more. Until it does
    /// again, nothing limits a single address.
    ClientAddressUnknown,
    /// `client_address_known`: the login service knows the addresses of clients again.
    ClientAddressKnown,
    /// `session_created`: a user signed in and a session was created.
    SessionCreated,
    /// `session_renewed`: a session received a new secret, and the old one became invalid.
    SessionRenewed,
    /// `session_revoked`: a session was ended by its user, by an operator, or because the user had too many.
    SessionRevoked,
    /// `session_use_after_expire`: a cookie of a session that had already ended was presented. The browser may have
    /// been asleep, or the cookie was stolen.
    SessionUseAfterExpire,
    /// `session_wrong_secret`: a cookie named a live session but carried another secret. It may be older than the last
    /// rotation, or a guess.
    SessionWrongSecret,
    /// `authn_sso_linked`: an account was linked to a user of another identity provider.
    SsoLinked,
    /// `authn_login_start`: a login started.
    LoginStarted,
    /// `authn_login_step`: a login step was completed successfully.
    LoginStepProved,
    /// `authn_login_success`: all steps of a login were completed, and an authorization code was issued.
    LoginSucceeded,
    /// `authn_login_fail`: a login step failed. The reason of a sign-in at another identity provider is `no_address`,
    /// `address_not_verified`, `account_exists`, `no_account`, `not_linked`, `other_account`, `too_weak`, `not_fresh` or
    /// `wrong_answer`.
    LoginFailed,
    /// `authn_login_fail_max`: a login was ended after too many failures.
    LoginFailedMost,
    /// `authn_login_lock`: an attempt was rejected because of too many earlier failures.
    LoginLocked,
    /// `authn_login_ceiling`: a correct attempt was rejected, or a message was not sent, because an account or address
    /// exceeded its limit. The caller cannot see this.
    LoginCeiling,
    /// `authn_passkey_cloned`: a valid signature of a passkey was refused, or reported, because its counter had not
    /// increased. The authenticator may have been cloned.
    PasskeyCloned,
    /// `authn_code_created`: an authorization code was issued.
    CodeIssued,
    /// `authn_otp_sent`: a one-time code was queued for delivery.
    OtpSent,
    /// `authn_otp_undelivered`: a one-time code could not be delivered.
    OtpUndelivered,
    /// `authn_notice_sent`: a user was told about a change of their sign-in methods.
    NoticeSent,
    /// `authn_notice_undelivered`: a user could not be told about a change of their sign-in methods.
    NoticeUndelivered,
    /// `authn_credential_added`: a user added a passkey, an authenticator app, recovery codes or a linked account, or
    /// replaced one.
    CredentialAdded,
    /// `authn_credential_removed`: a user removed one of these.
    CredentialRemoved,
    /// `authn_credential_renamed`: a user renamed a passkey.
    CredentialRenamed,
    /// `everything_ended`: an operator ended all sessions, logins and tokens.
    EverythingEnded,
    /// `authn_credential_vouched`: the application vouched for a credential of a user.
    CredentialVouched,
    /// `authn_user_forgotten`: the application deleted all credentials of a user, and ended everything that the user
    /// had begun.
    UserForgotten,
    /// `sequence_fail`: a request came out of order, or with other parameters than the login started with.
    SequenceFailed,
    /// `malicious_csrf`: a request came from a page of a foreign origin, or would have changed something with a session
    /// cookie and did not name its origin.
    ForeignOrigin,
    /// `credential_unknown`: a request with an unknown API key, or another unknown credential, was rejected. A request
    /// for the event log without a valid key counts too.
    CredentialUnknown,
    /// `tenant_missing`: a request was rejected because it has no API key or names no usable tenant.
    TenantMissing,
    /// `session_refused`: a request was rejected or redirected to the login page, because it has no valid session.
    SessionRefused,
    /// `pkce_refused`: a request was rejected because of its PKCE challenge.
    PkceRefused,
    /// `authn_token_created`: an authorization code or a refresh token was exchanged for tokens.
    TokenIssued,
    /// `authn_token_reuse`: an authorization code or a refresh token was used a second time, so two parties have it.
    /// Everything issued from it was revoked.
    TokenReused,
    /// `authn_token_revoked`: tokens were revoked by their client or by a logout.
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
        Self::PlanLookupFailed,
        Self::LimiterFallbackBegan,
        Self::LimiterFallbackEnded,
        Self::StoreFailed,
        Self::ClientAddressUnknown,
        Self::ClientAddressKnown,
        Self::SessionCreated,
        Self::SessionRenewed,
        Self::SessionRevoked,
        Self::SessionUseAfterExpire,
        Self::SessionWrongSecret,
        Self::SsoLinked,
        Self::LoginStarted,
        Self::LoginStepProved,
        Self::LoginSucceeded,
        Self::LoginFailed,
        Self::LoginFailedMost,
        Self::LoginLocked,
        Self::LoginCeiling,
        Self::PasskeyCloned,
        Self::CodeIssued,
        Self::OtpSent,
        Self::OtpUndelivered,
        Self::NoticeSent,
        Self::NoticeUndelivered,
        Self::CredentialAdded,
        Self::CredentialRemoved,
        Self::CredentialRenamed,
        Self::EverythingEnded,
        Self::CredentialVouched,
        Self::UserForgotten,
        Self::SequenceFailed,
        Self::ForeignOrigin,
        Self::CredentialUnknown,
        Self::TenantMissing,
        Self::SessionRefused,
        Self::PkceRefused,
        Self::TokenIssued,
        Self::TokenReused,
        Self::TokenRevoked,
    ];

    /// Returns a stable name, which is used in the log and in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::QuotaImpossible => "quota_impossible",
            Self::TenantDenied => "tenant_denied",
            Self::TenantReset => "tenant_reset",
            Self::OverflowBegan => "overflow_began",
            Self::OverflowEnded => "overflow_ended",
            Self::PlanLookupFailed => "plan_lookup_fail",
            Self::LimiterFallbackBegan => "limiter_fallback_began",
            Self::LimiterFallbackEnded => "limiter_fallback_ended",
            Self::StoreFailed => "store_fail",
            Self::ClientAddressUnknown => "client_address_unknown",
            Self::ClientAddressKnown => "client_address_known",
            Self::SessionCreated => "session_created",
            Self::SessionRenewed => "session_renewed",
            Self::SessionRevoked => "session_revoked",
            Self::SessionUseAfterExpire => "session_use_after_expire",
            Self::SessionWrongSecret => "session_wrong_secret",
            Self::SsoLinked => "authn_sso_linked",
            Self::LoginStarted => "authn_login_start",
            Self::LoginStepProved => "authn_login_step",
            Self::LoginSucceeded => "authn_login_success",
            Self::LoginFailed => "authn_login_fail",
            Self::LoginFailedMost => "authn_login_fail_max",
            Self::LoginLocked => "authn_login_lock",
            Self::LoginCeiling => "authn_login_ceiling",
            Self::PasskeyCloned => "authn_passkey_cloned",
            Self::CodeIssued => "authn_code_created",
            Self::OtpSent => "authn_otp_sent",
            Self::OtpUndelivered => "authn_otp_undelivered",
            Self::NoticeSent => "authn_notice_sent",
            Self::NoticeUndelivered => "authn_notice_undelivered",
            Self::CredentialAdded => "authn_credential_added",
            Self::CredentialRemoved => "authn_credential_removed",
            Self::CredentialRenamed => "authn_credential_renamed",
            Self::EverythingEnded => "everything_ended",
            Self::CredentialVouched => "authn_credential_vouched",
            Self::UserForgotten => "authn_user_forgotten",
            Self::SequenceFailed => "sequence_fail",
            Self::ForeignOrigin => "malicious_csrf",
            Self::CredentialUnknown => "credential_unknown",
            Self::TenantMissing => "tenant_missing",
            Self::SessionRefused => "session_refused",
            Self::PkceRefused => "pkce_refused",
            Self::TokenIssued => "authn_token_created",
            Self::TokenReused => "authn_token_reuse",
            Self::TokenRevoked => "authn_token_revoked",
        }
    }

    /// Returns whether only users who have proved who they are can cause it. Their tenants are not made up, so the log shows
    /// the first of each second even in a flood.
    pub(super) const fn is_of_users(self) -> bool {
        matches!(
            self,
            Self::SsoLinked
                | Self::PasskeyCloned
                | Self::CodeIssued
                | Self::CredentialAdded
                | Self::CredentialRemoved
                | Self::CredentialRenamed
        )
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        Self::from_name(name).ok_or_else(|| ConfigError::new("event kind", name, "is not the name of a kind"))
    }
}

/// Whether a quota is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Requests beyond the quota are rejected.
    Enforced,
    /// Requests beyond the quota are logged, but admitted.
    Shadow,
}

impl Mode {
    /// Returns a stable name, which is used in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Shadow => "shadow",
        }
    }
}

/// An entry of the event log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The number of the event in the log, counted from 1. Zero until it is recorded.
    pub id: u64,
    /// When the event happened.
    pub at: UnixTime,
    /// The kind of event.
    pub kind: EventKind,
    /// The tenant, if the event concerns exactly one. For events of a limit it is the key of the limit: it may be an address,
    /// or a name that the caller has chosen.
    pub tenant: Option<LimitKey>,
    /// The session, if the event concerns exactly one.
    pub session: Option<Handle>,
    /// A keyed hash of the identifier that was submitted, if the event concerns exactly one.
    pub subject: Option<Handle>,
    /// The login method, or the channel of a one-time code.
    pub method: Option<&'static str>,
    /// Why it happened, as a fixed word such as `no_answer`, if the event has a reason.
    pub reason: Option<&'static str>,
    /// The rate-limit policy that decided, if any.
    pub policy: Option<&'static str>,
    /// Whether the policy is enforced.
    pub mode: Mode,
    /// The limit of the policy: `x-ratelimit`.
    pub limit: u32,
    /// The units that remain: `x-ratelimit-remaining`.
    pub remaining: u32,
    /// When a retry would be admitted: `x-ratelimit-reset`, in Unix seconds, rounded up. `None` if
    /// no retry can succeed.
    pub reset: Option<UnixTime>,
    /// The number of occurrences that this entry represents. Floods are coalesced.
    pub count: u64,
}

impl Event {
    /// Creates an event without a policy.
    pub fn new(kind: EventKind, at: UnixTime) -> Self {
        Self {
            id: 0,
            at,
            kind,
            tenant: None,
            session: None,
            subject: None,
            method: None,
            reason: None,
            policy: None,
            mode: Mode::Enforced,
            limit: 0,
            remaining: 0,
            reset: None,
            count: 1,
        }
    }

    /// Sets the tenant.
    pub fn tenant(mut self, tenant: LimitKey) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Sets the session.
    pub fn session(mut self, session: Handle) -> Self {
        self.session = Some(session);
        self
    }

    /// Sets the keyed hash of the submitted identifier.
    pub fn subject(mut self, subject: Handle) -> Self {
        self.subject = Some(subject);
        self
    }

    /// Sets the login method or the channel.
    pub fn method(mut self, method: &'static str) -> Self {
        self.method = Some(method);
        self
    }

    /// Sets the reason, a fixed word.
    pub fn reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }
}

impl Event {
    /// Returns the event as a JSON object on one line.
    ///
    /// It always has `id`, `at` (Unix milliseconds), `kind`, `mode` and `count`. Events of a
    /// tenant, session, subject or method add `tenant`, `session`, `subject` or `method`, and those with a reason
    /// add `reason`. Decisions of a policy add `policy`, `x-ratelimit`, `x-ratelimit-remaining` and `x-ratelimit-reset`
    /// (Unix seconds).
    pub fn to_json(&self) -> String {
        let policy = self.policy;
        JsonObject::new()
            .number("id", self.id)
            .number("at", self.at.as_millis())
            .text("kind", self.kind.as_str())
            .text_if_any("tenant", self.tenant.as_ref().map(LimitKey::as_str))
            .text_if_any("session", self.session.map(|session| session.to_string()).as_deref())
            .text_if_any("subject", self.subject.map(|subject| subject.to_string()).as_deref())
            .text_if_any("method", self.method)
            .text_if_any("reason", self.reason)
            .text_if_any("policy", policy)
            .text("mode", self.mode.as_str())
            .number_if_any("x-ratelimit", policy.map(|_| self.limit.into()))
            .number_if_any("x-ratelimit-remaining", policy.map(|_| self.remaining.into()))
            .number_if_any("x-ratelimit-reset", policy.and(self.reset).map(UnixTime::as_secs_ceil))
            .number("count", self.count)
            .end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_a_policy_have_limit_fields() {
        let mut event = Event::new(EventKind::RateLimited, UnixTime::from_nanos(1_500_000_000_123_456_789))
            .tenant("acme".parse().unwrap());
        (event.id, event.policy, event.limit) = (7, Some("per-minute"), 600);
        event.reset = Some(UnixTime::from_nanos(1_500_000_060_000_000_001));
        assert_eq!(
            event.to_json(),
            concat!(
                r#"{"id":7,"at":1500000000123,"kind":"rate_limited","tenant":"acme","policy":"per-minute","#,
                r#""mode":"enforced","x-ratelimit":600,"x-ratelimit-remaining":0,"x-ratelimit-reset":1500000061,"count":1}"#
            )
        );
        let event = Event::new(EventKind::OverflowBegan, UnixTime::from_secs(1));
        assert_eq!(event.to_json(), r#"{"id":0,"at":1000,"kind":"overflow_began","mode":"enforced","count":1}"#);
    }

    #[test]
    fn the_docs_of_each_kind_begin_with_its_name() {
        for kind in EventKind::ALL {
            let documented = include_str!("record.rs").contains(&format!("    /// `{kind}`: "));
            assert!(documented, "{kind}");
        }
    }
}
