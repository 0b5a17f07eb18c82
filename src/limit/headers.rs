//! [`HeaderStyle`]: which headers tell a client how it stands.

use std::{iter::zip, sync::OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::decision::RateLimit;
use crate::{clock::UnixTime, number::number};

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

    /// Writes the families into a response with this status.
    pub(super) fn write(
        self,
        rate_limit: &RateLimit,
        policy: Option<&HeaderValue>,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        if self.x_ratelimit {
            self.write_x_ratelimit(rate_limit, status, headers);
        }
        if let Some(policy) = rate_limit.would_refuse() {
            headers.insert(WOULD_REFUSE, HeaderValue::from_static(policy));
        }
        if self.ietf_draft_10 {
            write_ietf(rate_limit, policy, headers);
        }
    }

    fn write_x_ratelimit(self, rate_limit: &RateLimit, status: StatusCode, headers: &mut HeaderMap) {
        if headers.is_empty() && rate_limit.reset_unix().is_some() {
            *headers = Template::get().filled(|field| self.value(field, rate_limit));
            return;
        }
        let remaining = u64::from(rate_limit.remaining());
        if let Some(inner) = headers.insert(REMAINING, number(remaining))
            && says_more(&inner, remaining, status)
        {
            headers.insert(REMAINING, inner);
            return;
        }
        headers.insert(LIMIT_SEED, self.value(Field::Limit, rate_limit));
        headers.insert(LIMIT, self.value(Field::Limit, rate_limit));
        if rate_limit.reset_unix().is_some() {
            headers.insert(RESET, self.value(Field::Reset, rate_limit));
        }
    }

    fn value(self, field: Field, rate_limit: &RateLimit) -> HeaderValue {
        match field {
            Field::Limit => number(u64::from(rate_limit.limit())),
            Field::Remaining => number(u64::from(rate_limit.remaining())),
            Field::Reset if self.delta_seconds => number(ceil_seconds(rate_limit)),
            Field::Reset => number(rate_limit.reset_unix().map_or(u64::MAX, UnixTime::as_secs_ceil)),
        }
    }
}

/// What one of the four headers says.
#[derive(Clone, Copy)]
enum Field {
    Limit,
    Remaining,
    Reset,
}

/// The four names in a map. A copy of it, with the values put in, costs half of four inserts, which hash each name.
struct Template {
    map: HeaderMap,
    /// What stands where, in the order in which the map is walked.
    fields: Vec<Field>,
}

impl Template {
    fn get() -> &'static Self {
        static TEMPLATE: OnceLock<Template> = OnceLock::new();
        TEMPLATE.get_or_init(|| {
            let names = [LIMIT_SEED, LIMIT, REMAINING, RESET];
            let map: HeaderMap = names.into_iter().map(|name| (name, HeaderValue::from_static("0"))).collect();
            let fields = map.keys().map(|name| match name {
                name if *name == REMAINING => Field::Remaining,
                name if *name == RESET => Field::Reset,
                _ => Field::Limit,
            });
            let fields = fields.collect();
            Template { map, fields }
        })
    }

    fn filled(&self, value: impl Fn(Field) -> HeaderValue) -> HeaderMap {
        let mut map = self.map.clone();
        for (place, field) in zip(map.values_mut(), &self.fields) {
            *place = value(*field);
        }
        map
    }
}

/// Whether what a limiter further in has written tells the client more: that
/// one refused, or it has less left.
fn says_more(inner_remaining: &HeaderValue, remaining: u64, status: StatusCode) -> bool {
    let inner = || inner_remaining.to_str().ok()?.parse::<u64>().ok();
    status == StatusCode::TOO_MANY_REQUESTS || inner().is_some_and(|inner| inner <= remaining)
}

fn ceil_seconds(rate_limit: &RateLimit) -> u64 {
    u64::try_from(rate_limit.wait().as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}

/// Both fields are lists, to which each limiter adds its own.
fn write_ietf(rate_limit: &RateLimit, policy: Option<&HeaderValue>, headers: &mut HeaderMap) {
    let mut field = format!("\"{}\";r={}", rate_limit.policy(), rate_limit.remaining());
    if rate_limit.reset_unix().is_some() {
        field.push_str(&format!(";t={}", ceil_seconds(rate_limit)));
    }
    if let Ok(field) = HeaderValue::try_from(field) {
        headers.append(RATELIMIT, field);
    }
    if let Some(policy) = policy {
        headers.append(RATELIMIT_POLICY, policy.clone());
    }
}

impl Default for HeaderStyle {
    fn default() -> Self {
        Self::new()
    }
}
