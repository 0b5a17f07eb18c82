//! Budgets of tenants, as JSON.

use super::query::QueryError;
use crate::{
    tenant::{LimitKey, Standing, Tenant},
    util::{clock::UnixTime, form::Form, json_object::JsonObject},
};

/// The most tenants in one response.
const MOST_TENANTS: usize = 50;

/// A limiter whose budgets are shown.
pub(crate) trait Budgets: Send + Sync + 'static {
    /// Returns how many requests of all tenants were admitted.
    fn admitted(&self) -> u64;

    /// Returns tenants that have a plan of their own, at most this many.
    fn named(&self, most: usize) -> Vec<LimitKey>;

    /// Returns the budget of a tenant, if it has one.
    fn budget(&self, key: &LimitKey) -> Option<Budget>;
}

/// The remaining budget of a tenant.
pub(crate) struct Budget {
    pub(crate) standing: Standing,
    /// How many requests were admitted since the first look at this tenant.
    pub(crate) admitted: u64,
}

/// Parses the tenants in a query.
pub(super) fn parse_tenants(query: &str) -> Result<Vec<LimitKey>, QueryError> {
    let form = Form::parse(query.as_bytes())?;
    form.values("tenant").map(LimitKey::parse_reserved).collect::<Result<_, _>>().map_err(|_| QueryError(()))
}

/// Returns the budget of this tenant alone.
pub(super) fn budget_of_tenant(budgets: &dyn Budgets, own: &Tenant, now: UnixTime) -> Vec<u8> {
    budgets_json(JsonObject::new(), budgets, &[LimitKey::clone(own)], now)
}

/// Returns the budgets of the tenants in the query and of those with a plan of their own, and the requests of all tenants.
pub(super) fn budgets_of_all(budgets: &dyn Budgets, mut keys: Vec<LimitKey>, now: UnixTime) -> Vec<u8> {
    // those in the query come first
    let mut named = budgets.named(MOST_TENANTS);
    named.retain(|key| !keys.contains(key));
    keys.append(&mut named);
    keys.truncate(MOST_TENANTS);
    keys.sort_unstable();
    keys.dedup();
    budgets_json(JsonObject::new().number("admitted", budgets.admitted()), budgets, &keys, now)
}

fn budgets_json(head: JsonObject, budgets: &dyn Budgets, keys: &[LimitKey], now: UnixTime) -> Vec<u8> {
    let tenants = keys.iter().filter_map(|key| Some(budget_json(key, &budgets.budget(key)?)));
    let tenants: Vec<String> = tenants.collect();
    head.number("at", now.as_millis()).json("tenants", &format!("[{}]", tenants.join(","))).end().into_bytes()
}

fn budget_json(key: &LimitKey, Budget { standing, admitted }: &Budget) -> String {
    JsonObject::new()
        .text("tenant", key.as_str())
        .text("policy", standing.policy())
        .number("x-ratelimit", standing.limit().into())
        .number("x-ratelimit-remaining", standing.remaining().into())
        .number_if_any("x-ratelimit-reset", standing.reset_unix().map(UnixTime::as_secs_ceil))
        .number("admitted", *admitted)
        .end()
}
