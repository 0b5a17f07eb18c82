//! [`HeaderStyle`]: which headers tell a client how it stands.

use std::{cmp::Reverse, iter::zip, sync::LazyLock};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::RETRY_AFTER};

use super::decision::Facts;
use crate::util::{
    clock::{UnixTime, ceil_seconds},
    number::number,
};

const LIMIT_SEED: HeaderName = HeaderName::from_static("x-ratelimit");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const WOULD_REFUSE: HeaderName = HeaderName::from_static("x-ratelimit-would-refuse");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Which families of headers a response carries.
///
/// The default is `x-ratelimit`, `x-ratelimit-limit`, `x-ratelimit-remaining`
/// and `x-ratelimit-reset`, the last in Unix seconds rounded up. A refusal has
/// `retry-after` in every style.
///
/// ```
/// use tollgate::HeaderStyle;
///
/// let both = HeaderStyle::new().ietf_draft_10();
/// let only_ietf = HeaderStyle::none().ietf_draft_10();
/// let relative = HeaderStyle::new().delta_seconds();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct HeaderStyle {
    x_ratelimit: bool,
    delta_seconds: bool,
    ietf_draft_10: bool,
}

impl HeaderStyle {
    /// The default.
    pub const fn new() -> Self {
        Self { x_ratelimit: true, delta_seconds: false, ietf_draft_10: false }
    }

    /// No family at all.
    pub const fn none() -> Self {
        Self { x_ratelimit: false, delta_seconds: false, ietf_draft_10: false }
    }

    /// Gives `x-ratelimit-reset` as seconds from now, rounded up, as Envoy and older IETF drafts do.
    pub const fn delta_seconds(mut self) -> Self {
        self.delta_seconds = true;
        self
    }

    /// Adds `RateLimit` and `RateLimit-Policy` as draft-ietf-httpapi-ratelimit-headers-10 has them.
    pub const fn ietf_draft_10(mut self) -> Self {
        self.ietf_draft_10 = true;
        self
    }

    /// Whether the fields of the IETF draft are written, which need the policies of the tenant.
    pub(super) const fn wants_policy(self) -> bool {
        self.ietf_draft_10
    }

    /// Writes the families into the response of an admitted request.
    pub(super) fn write(
        self,
        facts: &Facts,
        policy: Option<&HeaderValue>,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        if self.x_ratelimit {
            if headers.is_empty() {
                *headers = Template::admitted().filled(|field| self.value(field, facts));
            } else {
                self.insert(facts, status, headers);
            }
        }
        self.write_ietf(facts, policy, headers);
    }

    /// The headers of a refusal, `retry-after` among them unless no retry helps.
    pub(super) fn refusal(self, facts: &Facts, policy: Option<&HeaderValue>) -> HeaderMap {
        let retry_helps = facts.reset_unix().is_some();
        let mut headers = match (self.x_ratelimit, retry_helps) {
            (true, true) => Template::refused().filled(|field| self.value(field, facts)),
            (true, false) => Template::impossible().filled(|field| self.value(field, facts)),
            (false, true) => HeaderMap::from_iter([(RETRY_AFTER, self.value(Field::RetryAfter, facts))]),
            (false, false) => HeaderMap::new(),
        };
        self.write_ietf(facts, policy, &mut headers);
        headers
    }

    /// Into an answer that has headers: those of a limiter further in stay where they tell the client more.
    fn insert(self, facts: &Facts, status: StatusCode, headers: &mut HeaderMap) {
        let reset = self.value(Field::Reset, facts);
        if let Some(inner) = headers.insert(REMAINING, number(u64::from(facts.remaining))) {
            let (left, back) = (read(Some(&inner)), read(headers.get(RESET)));
            let ours = (Some(u64::from(facts.remaining)), Reverse(read(Some(&reset))));
            // it refused, or less is left there, or as much and for longer
            if status == StatusCode::TOO_MANY_REQUESTS || left.is_some() && (left, Reverse(back)) <= ours {
                headers.insert(REMAINING, inner);
                return;
            }
        }
        headers.insert(LIMIT_SEED, self.value(Field::Limit, facts));
        headers.insert(LIMIT, self.value(Field::Limit, facts));
        headers.insert(RESET, reset);
    }

    fn value(self, field: Field, facts: &Facts) -> HeaderValue {
        number(match field {
            Field::Limit => u64::from(facts.limit),
            Field::Remaining => u64::from(facts.remaining),
            Field::Reset if self.delta_seconds => ceil_seconds(facts.wait()),
            Field::Reset => facts.reset_unix().map_or(u64::MAX, UnixTime::as_secs_ceil),
            // never 0, which would invite a retry at once
            Field::RetryAfter => ceil_seconds(facts.wait()).max(1),
        })
    }

    /// Both fields are lists, to which each limiter adds its own.
    fn write_ietf(self, facts: &Facts, policy: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if !self.ietf_draft_10 {
            return;
        }
        let mut field = format!("\"{}\";r={}", facts.policy, facts.remaining);
        if facts.reset_unix().is_some() {
            field.push_str(&format!(";t={}", ceil_seconds(facts.wait())));
        }
        if let Ok(field) = HeaderValue::try_from(field) {
            headers.append(RATELIMIT, field);
        }
        if let Some(policy) = policy {
            headers.append(RATELIMIT_POLICY, policy.clone());
        }
    }
}

/// What a header says.
#[derive(Clone, Copy)]
enum Field {
    Limit,
    Remaining,
    Reset,
    RetryAfter,
}

/// The names in a map. A copy of it, with the values put in, costs half of so many inserts, which hash each name.
struct Template {
    map: HeaderMap,
    /// What stands where, in the order in which the map is walked.
    fields: Vec<Field>,
}

impl Template {
    fn admitted() -> &'static Self {
        static TEMPLATE: LazyLock<Template> = LazyLock::new(|| Template::of(&[LIMIT_SEED, LIMIT, REMAINING, RESET]));
        &TEMPLATE
    }

    fn refused() -> &'static Self {
        static TEMPLATE: LazyLock<Template> =
            LazyLock::new(|| Template::of(&[LIMIT_SEED, LIMIT, REMAINING, RESET, RETRY_AFTER]));
        &TEMPLATE
    }

    fn impossible() -> &'static Self {
        static TEMPLATE: LazyLock<Template> = LazyLock::new(|| Template::of(&[LIMIT_SEED, LIMIT, REMAINING]));
        &TEMPLATE
    }

    fn of(names: &[HeaderName]) -> Self {
        let map: HeaderMap = names.iter().map(|name| (name.clone(), HeaderValue::from_static("0"))).collect();
        let field = |name: &HeaderName| match name {
            name if *name == REMAINING => Field::Remaining,
            name if *name == RESET => Field::Reset,
            name if *name == RETRY_AFTER => Field::RetryAfter,
            _ => Field::Limit,
        };
        let fields = map.keys().map(field).collect();
        Self { map, fields }
    }

    fn filled(&self, value: impl Fn(Field) -> HeaderValue) -> HeaderMap {
        let mut map = self.map.clone();
        for (place, field) in zip(map.values_mut(), &self.fields) {
            *place = value(*field);
        }
        map
    }
}

/// Says which shadow quota would have refused.
pub(super) fn mark_would_refuse(policy: &'static str, headers: &mut HeaderMap) {
    headers.insert(WOULD_REFUSE, HeaderValue::from_static(policy));
}

/// A number that another limiter has written.
fn read(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.parse().ok()
}

impl Default for HeaderStyle {
    fn default() -> Self {
        Self::new()
    }
}
