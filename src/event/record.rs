//! Events, and their JSON form.

use super::kind::EventKind;
use crate::{
    tenant::LimitKey,
    util::{builder::setters, clock::UnixTime, fmt::named_enum, json_object::JsonObject, public_id::PublicId},
};

named_enum! {
    /// Whether a quota is enforced.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Mode {
        /// Requests beyond the quota are rejected.
        Enforced = "enforced",
        /// Requests beyond the quota are logged, but admitted.
        Shadow = "shadow",
    }

    /// Returns a stable name, which is used in the log.
    pub fn as_str;
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
    pub session: Option<PublicId>,
    /// A keyed hash of the identifier that was submitted, if the event concerns exactly one.
    pub subject: Option<PublicId>,
    /// The method of authentication, or the channel of a message.
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

    setters! {
        /// Sets the tenant.
        pub fn tenant(tenant: LimitKey) { tenant: Some(tenant) }

        /// Sets the session.
        pub fn session(session: PublicId) { session: Some(session) }

        /// Sets the keyed hash of the submitted identifier.
        pub fn subject(subject: PublicId) { subject: Some(subject) }

        /// Sets the method or the channel.
        pub fn method(method: &'static str) { method: Some(method) }

        /// Sets the reason, a fixed word.
        pub fn reason(reason: &'static str) { reason: Some(reason) }
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
}
