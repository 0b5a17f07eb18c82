//! The routes, and the order of the layers in front of them.

use std::error::Error;

use axum::{
    Json, Router,
    body::Body,
    http::{HeaderValue, Response, StatusCode, header::RETRY_AFTER},
    middleware::from_fn_with_state,
    response::Redirect,
    routing::get,
};
use serde_json::{Value, json};
use tollgate::{
    AccessToken, BearerLayer, EventLog, EventService, Head, HeaderStyle, Limiter, ProblemJson, Quota, Quotas,
    RateLimit, RateLimitLayer, Rejection, Respond, SessionLayer, Tenant, TenantSource, bearer::AccessTokenTenant,
    event::TenantsAndOperator, store::AnyStore,
};

use crate::{
    account,
    auth::{self, Shared},
    facts::Facts,
    localhost,
    outbox::Outbox,
    pages,
};

/// The response to an address that was refused too often: the only header of its budget is when to come back.
fn refusal(rejection: &Rejection, head: Head<'_>) -> Response<Body> {
    let mut response: Response<Body> = ProblemJson.respond(rejection, head);
    if let Some(standing) = rejection.standing() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(standing.wait().as_secs() + 1));
    }
    response
}

type Built = Result<Router, Box<dyn Error>>;

pub(crate) async fn router(origin: &str, facts: Facts, store: &AnyStore, log: &EventLog) -> Built {
    let (issuer, keys, is_demo) = (facts.issuer.clone(), facts.keys.clone(), facts.is_demo);
    let issuer = issuer.as_deref().unwrap_or(origin);
    let site = auth::site(issuer);
    // one budget for each tenant, over the API and its logins
    let limiter = Limiter::builder(facts.quotas.clone()).events(log.clone()).build()?;
    let (settings, client_ip, operator_key) =
        (facts.tokens.clone(), facts.client_ip.clone(), facts.operator_key.clone());

    let shared = Shared { issuer, store, limiter: &limiter, log };
    let outbox = Outbox::new();
    let auth = auth::service(&shared, facts, &outbox).await?;

    // the tenant comes from the access token or, without one, from the API key
    let verifier = settings.verifier(&auth, &format!("{site}/api"), store)?;
    let bearer = BearerLayer::new(verifier).respond_with(ProblemJson);
    let by_either = RateLimitLayer::new(AccessTokenTenant.or(keys.clone()), limiter.clone())
        .respond_with(ProblemJson)
        .exempt_preflight();
    let by_token = RateLimitLayer::new(AccessTokenTenant, limiter.clone()).respond_with(ProblemJson);

    // after sixty bad keys or tokens in a minute, an address is refused before they are checked
    let refusals =
        Limiter::builder(Quotas::new(Quota::per_minute(60)?.with_name("refusals")?)).events(log.clone()).build()?;
    let by_address = RateLimitLayer::new(client_ip.clone(), refusals)
        .charge_if(|status, _| matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED))
        // headers and handlers show the budget of the tenant, not this one
        .headers(HeaderStyle::none())
        .without_extensions()
        .respond_with(refusal);

    // the layer that is added last is asked first: the address, the token, then whose budget is spent
    let me = Router::new().route("/me", get(me)).route_layer(by_token).route_layer(bearer.clone());
    // unknown paths are limited, too: `nest` would leave out `/api/`
    let hello = Router::new().route("/hello", get(hello)).fallback(not_found);
    let api = hello.layer(by_either).layer(bearer.optional()).merge(me).layer(by_address.clone());

    // a tenant reads its own events with its key, an operator all
    let access = TenantsAndOperator::new(keys.clone());
    let access = match &operator_key {
        Some(key) => access.operator_key(key)?,
        None => access,
    };
    let events = EventService::builder(log.clone(), access).base_path("/events")?.build();
    // reads have a budget of their own: a tenant that has spent the other one learns here when to go on
    let reads =
        Limiter::builder(Quotas::new(Quota::per_minute(120)?.with_name("event-reads")?)).events(log.clone()).build()?;
    let by_reader = RateLimitLayer::new(keys.or(client_ip), reads)
        .cost(|head| u32::from(matches!(head.uri().path(), "/events/log" | "/events/stream")))
        .headers(HeaderStyle::none())
        .without_extensions()
        .respond_with(refusal);
    let events = Router::new()
        .route_service("/events", events.clone())
        .route_service("/events/{*rest}", events.clone())
        .route_service("/events/", events)
        .layer(by_reader)
        .layer(by_address);

    // a login begins a session; the layer lets only requests with a session through
    let sessions = auth.sessions().clone();
    let signed_in = SessionLayer::new(sessions.clone()).required().login_url("/demo/")?.trusted_origin(site)?;

    let app = Router::new()
        .nest_service("/api", api)
        .merge(events)
        .route("/healthz", get(async || "ok\n"))
        // `/authorize`, `/token`, `/.well-known/…` and the others; what is unknown it answers with 404
        .fallback_service(auth.clone());
    let app = match is_demo {
        true => app
            .merge(account::router(auth.clone()).layer(signed_in))
            .merge(pages::router(issuer, outbox))
            .route("/", get(async || Redirect::to("/demo/"))),
        false => app,
    };
    if site != origin || !origin.starts_with("http://localhost:") {
        return Ok(app);
    }
    Ok(app.layer(from_fn_with_state(origin.to_owned(), localhost::redirect)))
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
