//! Queries for events, and the pages that they return.

use super::{kind::EventKind, record::Event};
use crate::{
    tenant::LimitKey,
    util::{
        builder::setters,
        error::ConfigError,
        form::{Form, FormError},
        json_object::JsonObject,
        scan::parse_digits,
    },
};

/// Selects the events to read. Selects all events by default.
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
    pub(super) tenant: Option<LimitKey>,
    pub(super) kind: Option<EventKind>,
    pub(super) limit: usize,
}

impl Query {
    /// The maximum number of events on a page.
    pub const MAX_LIMIT: usize = 1_000;
    const DEFAULT_LIMIT: usize = 100;

    /// Creates a query for all events, 100 per page.
    pub fn new() -> Self {
        Self { since: None, tenant: None, kind: None, limit: Self::DEFAULT_LIMIT }
    }

    /// Parses the query string of a URL: `since`, `tenant`, `kind` and `limit`, each at most once.
    /// Ignores other parameters.
    ///
    /// # Errors
    ///
    /// Returns an error if a parameter is malformed or repeated.
    pub fn parse(query: &str) -> Result<Self, QueryError> {
        let form = Form::parse(query.as_bytes())?;
        let number = |name| match form.only(name)? {
            Some(text) => parse_digits(text).map(Some).ok_or(QueryError(())),
            None => Ok(None),
        };
        let limit = number("limit")?;
        let limit = limit.map_or(Ok(Self::DEFAULT_LIMIT), usize::try_from).map_err(|_| QueryError(()))?;
        let query = Self {
            since: number("since")?,
            tenant: form.only("tenant")?.map(LimitKey::parse_reserved).transpose().map_err(|_| QueryError(()))?,
            kind: form.only("kind")?.map(|name| EventKind::from_name(name).ok_or(QueryError(()))).transpose()?,
            limit: Self::DEFAULT_LIMIT,
        };
        query.limit(limit).map_err(|_| QueryError(()))
    }

    setters! {
        /// Selects events after the one with this number. Pass [`Page::next`] of the previous page.
        ///
        /// A number that the log has not reached yet must be from before a restart. Reading then starts
        /// with the oldest event.
        pub fn since(id: u64) { since: Some(id) }

        /// Selects events of this tenant, or of another key, such as an address.
        pub fn tenant(tenant: LimitKey) { tenant: Some(tenant) }

        /// Selects events of this kind.
        pub fn kind(kind: EventKind) { kind: Some(kind) }
    }

    /// Sets the maximum number of events on a page. Defaults to 100.
    ///
    /// # Errors
    ///
    /// Returns an error unless `limit` is between 1 and 1,000.
    pub fn limit(mut self, limit: usize) -> Result<Self, ConfigError> {
        ConfigError::check_range("event query limit", limit, 1..=Self::MAX_LIMIT, "must be from 1 to 1000")?;
        self.limit = limit;
        Ok(self)
    }

    pub(super) fn matches(&self, event: &Event) -> bool {
        self.kind.is_none_or(|kind| event.kind == kind)
            && self.tenant.as_ref().is_none_or(|tenant| event.tenant.as_ref() == Some(tenant))
    }
}

crate::util::builder::default_by_new!(Query);

/// An invalid query. The error has no details, because it must not echo the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryError(pub(super) ());

crate::util::fmt::text_error!(QueryError, "invalid event log query");

impl From<FormError> for QueryError {
    fn from(_: FormError) -> Self {
        Self(())
    }
}

/// A page of events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The matching events.
    pub events: Vec<Event>,
    /// The `since` of the next query. It also skips events that did not match.
    pub next: u64,
    /// The number of events after `since`, of any tenant and kind, that were overwritten before
    /// they were read.
    pub lost: u64,
}

impl Page {
    /// Returns the JSON body of a response.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let events: Vec<String> = self.events.iter().map(Event::to_json).collect();
        let page = JsonObject::new().json("events", &format!("[{}]", events.join(",")));
        page.number("next", self.next).number("lost", self.lost).end().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::util::form::encode_form_value;

    fn text_of(query: &Query) -> String {
        let tenant = query.tenant.as_ref().map(|tenant| format!("&tenant={}", encode_form_value(tenant.as_str())));
        let since = query.since.map(|since| format!("&since={since}"));
        let kind = query.kind.map(|kind| format!("&kind={kind}"));
        [Some(format!("limit={}", query.limit)), since, tenant, kind].into_iter().flatten().collect()
    }

    #[test]
    fn invalid_queries_are_rejected() {
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
    fn unknown_and_empty_parameters_are_ignored() {
        assert_eq!(Query::parse(""), Ok(Query::new()));
        assert_eq!(Query::parse("&&api_key=a+b&x=1&x=2&since=7&"), Ok(Query::new().since(7)));
    }

    #[test]
    fn reserved_tenant_names_can_be_queried() {
        for name in ["~anonymous", "ip:192.0.2.1", "ip:2001:db8:1:2::/56", "~bucket-7", "a+b", "a%b"] {
            let tenant = Query::parse(&format!("tenant={}", encode_form_value(name))).unwrap().tenant.unwrap();
            assert_eq!(tenant.as_str(), name);
        }
    }

    proptest! {
        #[test]
        fn the_parser_never_panics(text in "\\PC{0,200}") {
            let _ = Query::parse(&text);
        }

        #[test]
        fn a_parsed_query_round_trips(text in "((since|tenant|kind|limit|x)=([0-9]{1,4}|[!-~]{1,12}|rate_limited|overflow_began|~anonymous|ip:::/64)&){0,4}") {
            if let Ok(query) = Query::parse(&text) {
                prop_assert_eq!(Query::parse(&text_of(&query)), Ok(query));
            }
        }

        #[test]
        fn every_query_round_trips(since in any::<Option<u64>>(), name in "[!#-;=?-\\[\\]-}]{1,128}", limit in 1_usize..=1000) {
            let mut query = Query::new().kind(EventKind::TenantReset).limit(limit).unwrap();
            query.since = since;
            query.tenant = LimitKey::parse(name).ok();
            prop_assert_eq!(Query::parse(&text_of(&query)), Ok(query));
        }
    }
}
