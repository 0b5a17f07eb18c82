//! [`HeaderStyle`]: which headers tell a client how it stands.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::decision::RateLimit;
use crate::number::number;

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
        if self.ietf_draft_10 {
            write_ietf(rate_limit, policy, headers);
        }
    }

    fn write_x_ratelimit(
        self,
        rate_limit: &RateLimit,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        let remaining = u64::from(rate_limit.remaining());
        if let Some(inner) = headers.insert(REMAINING, number(remaining))
            && says_more(&inner, remaining, status)
        {
            headers.insert(REMAINING, inner);
            return;
        }
        let limit = number(u64::from(rate_limit.limit()));
        headers.insert(LIMIT_SEED, limit.clone());
        headers.insert(LIMIT, limit);
        if let Some(reset) = rate_limit.reset_unix() {
            let value =
                if self.delta_seconds { ceil_seconds(rate_limit) } else { reset.as_secs_ceil() };
            headers.insert(RESET, number(value));
        }
    }
}

/// Says which shadow quota would have refused.
pub(super) fn mark_would_refuse(policy: &'static str, headers: &mut HeaderMap) {
    headers.insert(WOULD_REFUSE, HeaderValue::from_static(policy));
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
