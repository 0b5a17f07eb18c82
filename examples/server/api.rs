//! The routes, and which layer stands before which.

use std::error::Error;

use axum::{Json, Router, http::StatusCode, response::Redirect, routing::get};
use serde_json::{Value, json};
use tollgate::{
    EventLog, EventService, Limiter, ProblemJson, RateLimit, RateLimitLayer, SessionLayer, Sessions, Tenant,
    event::TenantsAndOperator, store::AnyStore,
};

use crate::{account, auth, demo, outbox::Outbox, pages};

pub(crate) async fn router(origin: &str, store: &AnyStore, log: &EventLog) -> Result<Router, Box<dyn Error>> {
    let keys = demo::keys()?;
    // one budget for each tenant, over the API and its logins
    let limiter = Limiter::memory(demo::quotas()?).events(log.clone())?;
    let limit = RateLimitLayer::new(keys.clone(), limiter.clone()).respond_with(ProblemJson).exempt_preflight();

    // the whole API stands behind the limit, paths that nobody serves too: `nest` would leave out `/api/`
    let api = Router::new().route("/hello", get(hello)).fallback(not_found).layer(limit);

    // a login begins a session, and the layer lets only those who have one through
    let (sessions, outbox) = (Sessions::new(store.clone()).insecure_loopback().events(log.clone()), Outbox::new());
    let auth = auth::service(origin, store, &sessions, &limiter, log, &outbox).await?;
    let signed_in = SessionLayer::new(sessions.clone()).required().login_url("/demo/")?.trusted_origin(origin)?;

    // a tenant reads its own events with its key, an operator all
    let access = TenantsAndOperator::new(keys).operator_key(demo::OPERATOR_KEY)?;
    let events = EventService::new(log.clone(), access).base_path("/events")?;

    Ok(Router::new()
        .nest_service("/api", api)
        .route_service("/authorize", auth.clone())
        .route_service("/authentication/{*rest}", auth.clone())
        .route_service("/openapi.json", auth)
        .merge(account::router(sessions).layer(signed_in))
        .merge(pages::router(origin, outbox))
        .route_service("/events", events.clone())
        .route_service("/events/{*rest}", events.clone())
        .route_service("/events/", events)
        .route("/", get(async || Redirect::to("/demo/")))
        .route("/healthz", get(async || "ok\n")))
}

async fn hello(tenant: Tenant, limit: RateLimit) -> Json<Value> {
    Json(json!({ "hello": tenant.as_str(), "remaining": limit.remaining() }))
}

async fn not_found() -> StatusCode {
    StatusCode::NOT_FOUND
}
