//! Which events a reader wants.

use std::fmt;

use super::{Event, EventKind};
use crate::{
    tenant::Tenant,
    util::{
        error::ConfigError,
        form::{Form, FormError, encode},
    },
};

/// Which events to read: all of them, unless it says otherwise.
///
/// ```
/// use tollgate::event::{EventKind, Query};
///
/// let query = Query::parse("since=41&tenant=acme&kind=rate_limited")?;
/// assert_eq!(query, Query::new().since(41).tenant("acme".parse()?).kind(EventKind::RateLimited));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Query {
    pub(super) since: Option<u64>,
    pub(super) tenant: Option<Tenant>,
    pub(super) kind: Option<EventKind>,
    pub(super) limit: usize,
}

impl Query {
    /// The most events of one page.
    pub const MAX_LIMIT: usize = 1_000;
    const DEFAULT_LIMIT: usize = 100;

    /// All events, 100 to a page.
    pub fn new() -> Self {
        Self { since: None, tenant: None, kind: None, limit: Self::DEFAULT_LIMIT }
    }

    /// Reads the query of a URL, as [`EventService`](super::EventService)
    /// does: `since`, `tenant`, `kind` and `limit`, each at most once. Other
    /// parameters are not looked at.
    pub fn parse(query: &str) -> Result<Self, QueryError> {
        let form = Form::parse(query.as_bytes())?;
        let limit = form.only("limit")?.map(number).transpose()?;
        let limit = limit.map_or(Ok(Self::DEFAULT_LIMIT), usize::try_from).map_err(|_| QueryError(()))?;
        let query = Self {
            since: form.only("since")?.map(number).transpose()?,
            tenant: form.only("tenant")?.map(Tenant::parse_reserved).transpose().map_err(|_| QueryError(()))?,
            kind: form.only("kind")?.map(|name| EventKind::from_name(name).ok_or(QueryError(()))).transpose()?,
            limit: Self::DEFAULT_LIMIT,
        };
        query.limit(limit).map_err(|_| QueryError(()))
    }

    /// Only what follows the event of this number: the `next` of the page
    /// before. A number that the log has not given yet is another log's, from
    /// before a restart; then reading starts with the oldest.
    pub fn since(mut self, id: u64) -> Self {
        self.since = Some(id);
        self
    }

    /// Only events of this tenant.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Only events of this kind.
    pub fn kind(mut self, kind: EventKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// At most so many events on a page, from 1 to 1,000; 100 by default.
    pub fn limit(mut self, limit: usize) -> Result<Self, ConfigError> {
        if limit == 0 || limit > Self::MAX_LIMIT {
            return Err(ConfigError::new("event query limit", limit, "must be from 1 to 1000"));
        }
        self.limit = limit;
        Ok(self)
    }

    pub(super) fn matches(&self, event: &Event) -> bool {
        self.kind.is_none_or(|kind| event.kind == kind)
            && self.tenant.as_ref().is_none_or(|tenant| event.tenant.as_ref() == Some(tenant))
    }
}

impl Default for Query {
    fn default() -> Self {
        Self::new()
    }
}

/// As it stands in a URL; [`Query::parse`] reads it back.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit={}", self.limit)?;
        if let Some(since) = self.since {
            write!(f, "&since={since}")?;
        }
        if let Some(tenant) = &self.tenant {
            write!(f, "&tenant={}", encode(tenant.as_str()))?;
        }
        if let Some(kind) = self.kind {
            write!(f, "&kind={}", kind.as_str())?;
        }
        Ok(())
    }
}

/// A query that can't be read. It says no more, for nothing of a request is echoed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryError(());

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the query of the event log can't be read")
    }
}

impl std::error::Error for QueryError {}

impl From<FormError> for QueryError {
    fn from(_: FormError) -> Self {
        Self(())
    }
}

/// Digits only: what `parse` takes beside them, such as `+`, is no number here.
pub(super) fn number(text: &str) -> Result<u64, QueryError> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().map_err(|_| QueryError(())),
        false => Err(QueryError(())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bad_queries_are_refused() {
        for query in [
            "since=",
            "since=x",
            "since=+1",
            "since=-1",
            "since=1.5",
            "since=18446744073709551616",
            "since=1&since=1",
            "limit=0",
            "limit=1001",
            "limit=",
            "limit",
            "kind=",
            "kind=nonsense",
            "kind=RATE_LIMITED",
            "tenant=",
            "tenant=a%20b",
            "tenant=%",
            "tenant=%zz",
            "tenant=%ff",
            "tenant=a&tenant=b",
            "tenant=a,b",
            "x=%zz",
            "tenant=a&%74enant=b",
        ] {
            assert_eq!(Query::parse(query), Err(QueryError(())), "{query}");
        }
    }

    #[test]
    fn other_parameters_and_empty_ones_are_not_looked_at() {
        assert_eq!(Query::parse(""), Ok(Query::new()));
        assert_eq!(Query::parse("&&api_key=a+b&x=1&x=2&since=7&"), Ok(Query::new().since(7)));
    }

    #[test]
    fn tenants_of_our_own_can_be_asked_for() {
        for name in ["~anonymous", "ip:192.0.2.1", "ip:2001:db8:1:2::/56", "~bucket-7", "a+b", "a%b"] {
            let tenant = Query::parse(&format!("tenant={}", encode(name))).unwrap().tenant.unwrap();
            assert_eq!(tenant.as_str(), name);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
            let _ = Query::parse(&text);
        }

        #[test]
        fn what_is_read_is_written_and_read_again(text in "((since|tenant|kind|limit|x)=([0-9]{1,4}|[!-~]{1,12}|rate_limited|overflow_began|~anonymous|ip:::/64)&){0,4}") {
            if let Ok(query) = Query::parse(&text) {
                prop_assert_eq!(Query::parse(&query.to_string()), Ok(query));
            }
        }

        #[test]
        fn every_query_comes_back(since in any::<Option<u64>>(), name in "[!#-;=?-\\[\\]-}]{1,128}", limit in 1_usize..=1000) {
            let mut query = Query::new().kind(EventKind::TenantReset).limit(limit).unwrap();
            query.since = since;
            query.tenant = Tenant::parse(name).ok();
            prop_assert_eq!(Query::parse(&query.to_string()), Ok(query));
        }
    }
}
