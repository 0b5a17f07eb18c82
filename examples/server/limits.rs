//! The budgets next to the tenants' own: failures of an address, and reads of the event log.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header::RETRY_AFTER},
};
use tollgate::{
    ApiKeys, ClientIp, ConfigError, EventLog, Head, Limiter, Plans, ProblemJson, Quota, RateLimitLayer, TenantSource,
    limit::HeaderStyle,
    reject::{Rejection, Respond},
};

pub(crate) type Refusal = fn(&Rejection, Head<'_>) -> Response<Body>;

/// Refuses an address after sixty bad keys or tokens in a minute, before they are checked.
pub(crate) fn by_failures(client_ip: &ClientIp, log: &EventLog) -> Result<RateLimitLayer<Refusal>, ConfigError> {
    let failures = limiter("refusals", 60, log)?;
    let layer = RateLimitLayer::new(client_ip.clone(), failures)
        .charge_if(|status, _| matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED));
    Ok(quiet(layer))
}

/// Charges reads of the event log to the tenant of the key, or else to the address. A tenant that has spent its budget
/// of the API learns here when to continue, so reads have a budget of their own.
pub(crate) fn by_reader(
    keys: ApiKeys,
    client_ip: ClientIp,
    log: &EventLog,
) -> Result<RateLimitLayer<Refusal>, ConfigError> {
    let reads = limiter("event-reads", 120, log)?;
    let layer = RateLimitLayer::new(keys.or(client_ip), reads)
        .cost(|head| u32::from(matches!(head.uri().path(), "/events/log" | "/events/stream")));
    Ok(quiet(layer))
}

fn limiter(name: &'static str, per_minute: u32, log: &EventLog) -> Result<Limiter, ConfigError> {
    Limiter::builder(Plans::new(Quota::per_minute(per_minute)?.with_name(name)?)).events(log.clone()).build()
}

/// Headers and handlers show the budget of the tenant, not these.
fn quiet(layer: RateLimitLayer) -> RateLimitLayer<Refusal> {
    layer.headers(HeaderStyle::none()).without_extensions().respond_with(refusal as Refusal)
}

/// Responds with the time to wait, and without other headers of the budget.
fn refusal(rejection: &Rejection, head: Head<'_>) -> Response<Body> {
    let mut response: Response<Body> = ProblemJson.respond(rejection, head);
    if let Some(standing) = rejection.standing() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(standing.time_until_reset().as_secs() + 1));
    }
    response
}
