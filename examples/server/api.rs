//! The routes, and which layer stands before which.

use std::error::Error;

use axum::{Json, Router, http::StatusCode, routing::get};
use serde_json::{Value, json};
use tollgate::{
    EventLog, EventService, Limiter, ProblemJson, RateLimit, RateLimitLayer, Tenant, event::TenantsAndOperator,
};

use crate::demo;

pub(crate) fn router(log: &EventLog) -> Result<Router, Box<dyn Error>> {
    let keys = demo::keys()?;
    let limiter = Limiter::memory(demo::quotas()?).events(log.clone())?;
    let limit = RateLimitLayer::new(keys.clone(), limiter).respond_with(ProblemJson).exempt_preflight();

    // the whole API stands behind the limit, paths that nobody serves too: `nest` would leave out `/api/`
    let api = Router::new().route("/hello", get(hello)).fallback(not_found).layer(limit);

    // a tenant reads its own events with its key, an operator all
    let access = TenantsAndOperator::new(keys).operator_key(demo::OPERATOR_KEY)?;
    let events = EventService::new(log.clone(), access).base_path("/events")?;

    Ok(Router::new()
        .nest_service("/api", api)
        .route_service("/events", events.clone())
        .route_service("/events/{*rest}", events.clone())
        .route_service("/events/", events)
        .route("/healthz", get(async || "ok\n")))
}

async fn hello(tenant: Tenant, limit: RateLimit) -> Json<Value> {
    Json(json!({ "hello": tenant.as_str(), "remaining": limit.remaining() }))
}

async fn not_found() -> StatusCode {
    StatusCode::NOT_FOUND
}
