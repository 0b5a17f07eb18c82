//! The headers that show clients their standing.

use std::{cell::RefCell, cmp::Reverse, sync::Arc, thread::LocalKey};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::RETRY_AFTER};

use crate::{
    http::number::number,
    tenant::{LimitKey, Standing},
    util::{
        clock::{UnixTime, ceil_seconds},
        secret::SecretDigest,
    },
};

const LIMIT_SHORT: HeaderName = HeaderName::from_static("x-ratelimit");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const WOULD_REFUSE: HeaderName = HeaderName::from_static("x-ratelimit-would-refuse");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The families of headers that responses carry.
///
/// By default responses carry `x-ratelimit`, `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`, the
/// last in Unix seconds rounded up. Refusals also carry `retry-after` if a retry helps, in every style but
/// [`none`](Self::none).
///
/// ```
/// use tollgate::limit::HeaderStyle;
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
    shadow: bool,
}

impl HeaderStyle {
    /// Creates the default style.
    pub const fn new() -> Self {
        Self { x_ratelimit: true, delta_seconds: false, ietf_draft_10: false, shadow: true }
    }

    /// Creates a style without any header, not even `retry-after`.
    pub const fn none() -> Self {
        Self { x_ratelimit: false, ..Self::new() }
    }

    /// Writes `x-ratelimit-reset` as seconds from now, rounded up, as Envoy and older
    /// IETF drafts do.
    pub const fn delta_seconds(mut self) -> Self {
        self.delta_seconds = true;
        self
    }

    /// Adds `RateLimit` and `RateLimit-Policy` as defined by draft-ietf-httpapi-ratelimit-headers-10. Their partition
    /// key `pk` is a hash of the limit key.
    pub const fn ietf_draft_10(mut self) -> Self {
        self.ietf_draft_10 = true;
        self
    }

    /// Leaves out `x-ratelimit-would-refuse`, so that callers do not learn about [shadow](super::Quota::shadow) quotas.
    pub const fn without_shadow(mut self) -> Self {
        self.shadow = false;
        self
    }

    /// Returns whether the style has no header at all.
    pub(super) const fn is_silent(self) -> bool {
        !self.x_ratelimit && !self.ietf_draft_10
    }

    /// Returns whether the headers need the policies of the tenant, as those of the IETF draft do.
    pub(super) const fn wants_policy(self) -> bool {
        self.ietf_draft_10
    }

    /// Writes the headers of the IETF draft, if the style has them. Both are lists, to which each limiter adds its own. What
    /// an upstream has written in the syntax of another draft is replaced, because it makes the list unreadable.
    pub(super) fn write_ietf(self, standing: &Standing, policy: Option<&IetfPolicy>, headers: &mut HeaderMap) {
        if !self.ietf_draft_10 {
            return;
        }
        let mut field = format!("\"{}\";r={}", standing.policy(), standing.remaining());
        // while calls are open, the time is an estimate
        if standing.reset() != Standing::NEVER && standing.is_exact() {
            field.push_str(&format!(";t={}", ceil_seconds(standing.time_until_reset())));
        }
        if let Some(policy) = policy {
            field.push_str(&policy.partition);
            let policies = policy.fields.split(", ").map(|policy_field| format!("{policy_field}{}", policy.partition));
            append_to_list(headers, RATELIMIT_POLICY, &policies.collect::<Vec<_>>().join(", "));
        }
        append_to_list(headers, RATELIMIT, &field);
    }

    /// Returns the headers of a refusal, with `retry-after` unless no retry helps.
    pub(super) fn refusal(self, standing: &Standing, policy: Option<&IetfPolicy>) -> HeaderMap {
        let retry_helps = standing.reset() != Standing::NEVER;
        // never 0, which would invite an immediate retry
        let retry_after = ceil_seconds(standing.time_until_reset()).max(1);
        let mut headers = match (self.values(standing), retry_helps) {
            (Some(values), true) => Template::filled(&REFUSED, values, retry_after),
            (Some(values), false) => Template::filled(&IMPOSSIBLE, values, 0),
            (None, true) if !self.is_silent() => HeaderMap::from_iter([(RETRY_AFTER, number(retry_after))]),
            (None, _) => HeaderMap::new(),
        };
        self.write_ietf(standing, policy, &mut headers);
        headers
    }

    /// Returns the values of the headers `x-ratelimit…`, unless the style has none.
    #[inline]
    pub(super) fn values(self, standing: &Standing) -> Option<Values> {
        let reset = match self.delta_seconds {
            true => ceil_seconds(standing.time_until_reset()),
            false => standing.reset_unix().map_or(u64::MAX, UnixTime::as_secs_ceil),
        };
        self.x_ratelimit.then(|| Values { limit: standing.limit(), remaining: standing.remaining(), reset })
    }

    /// Names the shadow quota that would have refused.
    pub(super) fn mark_would_refuse(self, policy: &'static str, headers: &mut HeaderMap) {
        if self.shadow && !self.is_silent() {
            headers.insert(WOULD_REFUSE, HeaderValue::from_static(policy));
        }
    }
}

/// The values of the fields of the IETF draft for a tenant.
pub(super) struct IetfPolicy {
    /// The policies of its plan.
    fields: Arc<str>,
    /// Their parameter `pk`.
    partition: String,
}

impl IetfPolicy {
    /// Returns the fields of a tenant whose plan has these policies.
    pub(super) fn of_key(key: &LimitKey, policies: Option<Arc<str>>) -> Option<Self> {
        let digest = SecretDigest::of_secret(key.as_bytes());
        let (short, _) = digest.as_bytes().split_first_chunk::<9>()?;
        Some(Self { fields: policies?, partition: format!(";pk=:{}:", STANDARD.encode(short)) })
    }
}

/// The values of the headers `x-ratelimit…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Values {
    limit: u32,
    remaining: u32,
    reset: u64,
}

impl Values {
    /// Writes the headers of an admitted request.
    #[inline]
    pub(super) fn write_limit_headers(self, status: StatusCode, headers: &mut HeaderMap) {
        if headers.is_empty() {
            *headers = Template::filled(&ADMITTED, self, 0);
        } else {
            self.insert(status, headers);
        }
    }

    /// Writes into a response that has headers. Those of an inner limiter stay if they are more informative, and in the same
    /// style: a client must not take seconds from now for a time.
    fn insert(self, status: StatusCode, headers: &mut HeaderMap) {
        let Self { limit, remaining, reset } = self;
        let (limit, remaining) = (u64::from(limit), u64::from(remaining));
        if let Some(inner) = headers.insert(REMAINING, number(remaining))
            && self.yields_to(&inner, status, headers)
        {
            headers.insert(REMAINING, inner);
            return;
        }
        let limit = number(limit);
        headers.insert(LIMIT_SHORT, limit.clone());
        headers.insert(LIMIT, limit);
        headers.insert(RESET, number(reset));
    }

    /// Returns whether an inner limiter has written its headers in this style, and knows more: it has refused, or less is left
    /// there, or the same is left but for longer.
    #[cold]
    fn yields_to(self, inner_remaining: &HeaderValue, status: StatusCode, headers: &HeaderMap) -> bool {
        let (left, back) = (read_header_number(Some(inner_remaining)), read_header_number(headers.get(RESET)));
        let is_refusal = status == StatusCode::TOO_MANY_REQUESTS;
        let has_same_reset = match back {
            Some(back) => is_time(back) == is_time(self.reset),
            // no retry helps
            None => is_refusal && !headers.contains_key(RESET),
        };
        let has_same_style =
            left.is_some() && has_same_reset && headers.contains_key(LIMIT_SHORT) && headers.contains_key(LIMIT);
        let ours = (Some(u64::from(self.remaining)), Reverse(Some(self.reset)));
        has_same_style && (is_refusal || (left, Reverse(back)) <= ours)
    }
}

/// The headers that this thread has written last. A copy, with the values that have changed replaced, costs less than
/// half of inserting each header, which hashes each name.
struct Template {
    map: HeaderMap,
    /// Whether the map is walked in the order in which it was filled. `http` does not promise it.
    is_ordered: bool,
    written: Values,
    retry_after: u64,
}

thread_local! {
    // the remaining units are first, because they change most often
    static ADMITTED: RefCell<Template> = RefCell::new(Template::from_header_names(&[REMAINING, LIMIT_SHORT, LIMIT, RESET]));
    static REFUSED: RefCell<Template> =
        RefCell::new(Template::from_header_names(&[REMAINING, LIMIT_SHORT, LIMIT, RESET, RETRY_AFTER]));
    static IMPOSSIBLE: RefCell<Template> = RefCell::new(Template::from_header_names(&[REMAINING, LIMIT_SHORT, LIMIT]));
}

impl Template {
    fn from_header_names(names: &[HeaderName]) -> Self {
        Self::on(names.iter().map(|name| (name.clone(), number(0))).collect(), names)
    }

    /// Creates the template on a map with these names, and checks whether its values come in their order.
    fn on(mut map: HeaderMap, names: &[HeaderName]) -> Self {
        for (place, value) in map.values_mut().zip(0..) {
            *place = number(value);
        }
        let is_ordered = names.iter().zip(0..).all(|(name, value)| map.get(name) == Some(&number(value)));
        for place in map.values_mut() {
            *place = number(0);
        }
        Self { map, is_ordered, written: Values { limit: 0, remaining: 0, reset: 0 }, retry_after: 0 }
    }

    #[inline]
    fn filled(template: &'static LocalKey<RefCell<Self>>, values: Values, retry_after: u64) -> HeaderMap {
        template.with_borrow_mut(|template| template.fill(values, retry_after).clone())
    }

    #[inline]
    fn fill(&mut self, values: Values, retry_after: u64) -> &HeaderMap {
        if !self.is_ordered {
            return self.fill_by_name(values, retry_after);
        }
        let Self { map, written, retry_after: written_retry_after, .. } = self;
        let Values { limit, remaining, reset } = values;
        if written.remaining != remaining
            && let Some(place) = map.values_mut().next()
        {
            *place = number(remaining.into());
        }
        if (written.limit, written.reset, *written_retry_after) != (limit, reset, retry_after) {
            let rest = [limit.into(), limit.into(), reset, retry_after];
            for (place, value) in map.values_mut().skip(1).zip(rest) {
                *place = number(value);
            }
            *written_retry_after = retry_after;
        }
        *written = values;
        map
    }

    #[cold]
    fn fill_by_name(&mut self, Values { limit, remaining, reset }: Values, retry_after: u64) -> &HeaderMap {
        let (limit, remaining) = (u64::from(limit), u64::from(remaining));
        let values = [(LIMIT_SHORT, limit), (LIMIT, limit), (REMAINING, remaining), (RESET, reset)];
        for (name, value) in values.into_iter().chain([(RETRY_AFTER, retry_after)]) {
            if let Some(place) = self.map.get_mut(name) {
                *place = number(value);
            }
        }
        &self.map
    }
}

/// Reads a number that another limiter has written.
fn read_header_number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.parse().ok()
}

/// Returns whether `x-ratelimit-reset` is a time, and not seconds from now. No limit comes back after 31 years.
fn is_time(reset: u64) -> bool {
    reset >= 1_000_000_000
}

/// Adds a member to a list whose members begin with a name in quotes. A list of other members is replaced.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, member: &str) {
    let Ok(member) = HeaderValue::try_from(member) else { return };
    if headers.get_all(&name).iter().any(|list| !list.as_bytes().starts_with(b"\"")) {
        headers.remove(&name);
    }
    headers.append(name, member);
}

crate::util::builder::default_by_new!(HeaderStyle);

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [HeaderName; 5] = [REMAINING, LIMIT_SHORT, LIMIT, RESET, RETRY_AFTER];

    fn filled(template: &mut Template) -> Vec<(String, String)> {
        let fill = |template: &mut Template, limit, remaining, reset, retry_after| {
            template.fill(Values { limit, remaining, reset }, retry_after).clone()
        };
        fill(template, 5, 0, 70, 9);
        fill(template, 5, 4, 70, 9);
        let map = fill(template, 600, 599, 60, 7);
        let text = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
        let mut all: Vec<_> = map.iter().map(text).collect();
        all.sort();
        all
    }

    #[test]
    fn b24_headers_are_written_by_name_where_a_map_is_walked_in_another_order() {
        let expected = [
            ("retry-after", "7"),
            ("x-ratelimit", "600"),
            ("x-ratelimit-limit", "600"),
            ("x-ratelimit-remaining", "599"),
            ("x-ratelimit-reset", "60"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let map = |order: [usize; 5]| order.map(|place| (NAMES[place].clone(), number(0))).into_iter().collect();
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 0, 2, 3, 4], [0, 1, 2, 4, 3]] {
            let mut template = Template::on(map(order), &NAMES);
            assert_eq!(template.is_ordered, order.is_sorted(), "{order:?}");
            assert_eq!(filled(&mut template), expected, "{order:?}");
        }
        assert_eq!(filled(&mut Template::from_header_names(&NAMES)), expected);
    }
}
