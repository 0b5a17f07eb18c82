//! The routes, and which layer stands before which.

use std::error::Error;

use axum::{Json, Router, http::StatusCode, response::Redirect, routing::get};
use serde_json::{Value, json};
use tollgate::{
    AccessToken, BearerLayer, EventLog, EventService, Limiter, ProblemJson, RateLimit, RateLimitLayer, SessionLayer,
    Sessions, Tenant, TenantSource, Tokens, bearer::AccessTokenTenant, event::TenantsAndOperator, store::AnyStore,
};

use crate::{account, auth, demo, outbox::Outbox, pages};

pub(crate) async fn router(origin: &str, store: &AnyStore, log: &EventLog) -> Result<Router, Box<dyn Error>> {
    let keys = demo::keys()?;
    // one budget for each tenant, over the API and its logins
    let limiter = Limiter::memory(demo::quotas()?).events(log.clone())?;
    // the keys are read or made here, not at the first request
    let tokens = Tokens::new(origin, store.clone())?;
    tokens.prepare().await?;

    // whose request it is, its access token says, or its key where it has none
    let bearer = BearerLayer::new(tokens.verifier()).respond_with(ProblemJson);
    let by_either = RateLimitLayer::new(AccessTokenTenant.or(keys.clone()), limiter.clone())
        .respond_with(ProblemJson)
        .exempt_preflight();
    let by_token = RateLimitLayer::new(AccessTokenTenant, limiter.clone()).respond_with(ProblemJson);

    // the layer that is added last is asked first
    let me = Router::new().route("/me", get(me)).route_layer(by_token).route_layer(bearer.clone());
    // the whole API stands behind a limit, paths that nobody serves too: `nest` would leave out `/api/`
    let hello = Router::new().route("/hello", get(hello)).fallback(not_found);
    let api = hello.layer(by_either).layer(bearer.optional()).merge(me);

    // a login begins a session, and the layer lets only those who have one through
    let (sessions, outbox) = (Sessions::new(store.clone()).insecure_loopback().events(log.clone()), Outbox::new());
    let auth = auth::service(origin, store, &sessions, &limiter, log, &outbox).await?.tokens(tokens)?;
    let signed_in = SessionLayer::new(sessions.clone()).required().login_url("/demo/")?.trusted_origin(origin)?;

    // a tenant reads its own events with its key, an operator all
    let access = TenantsAndOperator::new(keys).operator_key(demo::OPERATOR_KEY)?;
    let events = EventService::new(log.clone(), access).base_path("/events")?;

    Ok(Router::new()
        .nest_service("/api", api)
        .merge(account::router(sessions).layer(signed_in))
        .merge(pages::router(origin, outbox))
        .route_service("/events", events.clone())
        .route_service("/events/{*rest}", events.clone())
        .route_service("/events/", events)
        .route("/", get(async || Redirect::to("/demo/")))
        .route("/healthz", get(async || "ok\n"))
        // `/authorize`, `/token`, `/.well-known/…` and the others; what is unknown it answers with 404
        .fallback_service(auth))
}

async fn hello(tenant: Tenant, limit: RateLimit) -> Json<Value> {
    Json(json!({ "hello": tenant.as_str(), "remaining": limit.remaining() }))
}

async fn me(token: AccessToken) -> Json<Value> {
    Json(json!({
        "tenant": token.tenant().map(Tenant::as_str),
        "subject": token.subject(),
        "client": token.client_id(),
        "scopes": token.scopes().collect::<Vec<_>>(),
    }))
}

async fn not_found() -> StatusCode {
    StatusCode::NOT_FOUND
}
