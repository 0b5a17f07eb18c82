//! An event as JSON: the same in a file, in an answer and in a stream.

use serde::Serialize;

use super::Event;
use crate::{tenant::Tenant, util::clock::UnixTime};

#[derive(Serialize)]
struct Line<'a> {
    id: u64,
    at: u64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'static str>,
    mode: &'static str,
    #[serde(rename = "x-ratelimit", skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(rename = "x-ratelimit-remaining", skip_serializing_if = "Option::is_none")]
    remaining: Option<u32>,
    #[serde(rename = "x-ratelimit-reset", skip_serializing_if = "Option::is_none")]
    reset: Option<u64>,
    count: u64,
}

impl Event {
    /// The event as a JSON object, on one line: `id`, `at` (Unix
    /// milliseconds), `kind`, `mode`, `count`; `tenant`, `session`, `subject` and `method` where it concerns one;
    /// and where a policy decided, `policy`, `x-ratelimit`,
    /// `x-ratelimit-remaining` and `x-ratelimit-reset` (Unix seconds).
    pub fn to_json(&self) -> String {
        // never the default: there is nothing in a `Line` that can't be written
        serde_json::to_string(&line(self)).unwrap_or_default()
    }
}

/// A page as it is answered.
pub(super) fn page(page: &super::Page) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        events: Vec<Line<'a>>,
        next: u64,
        lost: u64,
    }
    let events = page.events.iter().map(line).collect();
    serde_json::to_vec(&Answer { events, next: page.next, lost: page.lost }).unwrap_or_default()
}

fn line(event: &Event) -> Line<'_> {
    let policy = event.policy;
    Line {
        id: event.id,
        at: event.at.as_millis(),
        kind: event.kind.as_str(),
        tenant: event.tenant.as_ref().map(Tenant::as_str),
        session: event.session.map(|session| session.to_string()),
        subject: event.subject.map(|subject| subject.to_string()),
        method: event.method,
        policy,
        mode: event.mode.as_str(),
        limit: policy.map(|_| event.limit),
        remaining: policy.map(|_| event.remaining),
        reset: policy.and(event.reset).map(UnixTime::as_secs_ceil),
        count: event.count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    #[test]
    fn a_refusal_shows_its_limit_and_a_reset_does_not() {
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
