//! The routes, and the order of their layers.

use std::{error::Error, sync::Arc};

use axum::{Json, Router, http::StatusCode, response::Redirect, routing::get};
use serde_json::{Value, json};
use tollgate::{
    AccessToken, BearerLayer, EventLog, EventService, ProblemJson, RateLimit, RateLimitLayer, Tenant, TenantSource,
    bearer::AccessTokenTenant,
};

use crate::{
    account,
    auth::{self, Shared},
    facts::Facts,
    limits,
    login_settings::LoginSettings,
    outbox::Outbox,
    pages,
    readers::Readers,
    ready,
    state::State,
};

/// The server, without its connections.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) routes: Router,
    /// The origin at which browsers must open pages, if it has a name.
    pub(crate) own_origin: Option<Arc<str>>,
}

pub(crate) async fn app(
    origin: &str,
    facts: Facts,
    login: LoginSettings,
    state: &State,
    ends_sessions: bool,
    log: &EventLog,
) -> Result<App, Box<dyn Error>> {
    let (issuer, keys, is_demo) = (facts.issuer.clone(), facts.keys.clone(), facts.is_demo);
    let home_url = facts.home_url.clone();
    let issuer = issuer.as_deref().unwrap_or(origin);
    let site = auth::site(issuer);
    // each tenant has one budget, which the API and its logins share
    let limiter = state.limiter(&facts, log).await?;
    let store = &state.store;
    let (settings, client_ip, operator_key) =
        (facts.tokens.clone(), facts.client_ip.clone(), facts.operator_key.clone());

    let shared = Shared { issuer, store, users: &state.users, ends_sessions, limiter: &limiter, log };
    let has_account_pages = login.account_pages.is_some();
    let outbox = Outbox::new();
    let auth = auth::service(&shared, facts, login, &outbox).await?;

    // the tenant comes from the access token, or else from the API key
    let verifier = settings.verifier(&auth, &format!("{site}/api"), store)?;
    let bearer = BearerLayer::new(verifier).respond_with(ProblemJson);
    let by_either = RateLimitLayer::new(AccessTokenTenant.or(keys.clone()), limiter.clone())
        .respond_with(ProblemJson)
        .exempt_preflight();
    let by_token = RateLimitLayer::new(AccessTokenTenant, limiter.clone()).respond_with(ProblemJson);

    let by_failures = limits::by_failures(&client_ip, log)?;

    // the layer added last runs first: the address, the token, then the budget of the tenant
    let me = Router::new().route("/me", get(me)).route_layer(by_token).route_layer(bearer.clone());
    // unknown paths are limited, too: `nest` would leave out `/api/`
    let hello = Router::new().route("/hello", get(hello)).fallback(not_found);
    let api = hello.layer(by_either).layer(bearer.optional()).merge(me).layer(by_failures.clone());

    // a tenant reads its own events with its API key, an operator reads all
    let readers = Readers::new(keys.clone(), operator_key.as_deref(), is_demo)?;
    let events = EventService::builder(log.clone(), readers).base_path("/events")?.limiter(limiter.clone());
    let events = home_url.iter().try_fold(events, |events, home| events.home_url(home))?.build();
    let events = Router::new()
        .route_service("/events", events.clone())
        .route_service("/events/{*rest}", events.clone())
        .route_service("/events/", events)
        .layer(limits::by_reader(keys, client_ip, log)?)
        .layer(by_failures);

    let routes = Router::new()
        .nest_service("/api", api)
        .merge(events)
        .merge(ready::router(auth.clone()))
        // `/authorize`, `/token`, `/.well-known/…` and so on; unknown paths get a 404
        .fallback_service(auth.clone());
    let routes = match is_demo {
        true => routes
            .merge(account::router(auth.clone(), state.users.clone()))
            .merge(pages::router(issuer, outbox))
            .route("/", get(async || Redirect::to("/demo/")))
            .method_not_allowed_fallback(pages::method_not_allowed),
        false if has_account_pages => {
            routes.merge(account::starts(issuer.strip_prefix(site).unwrap_or_default().trim_end_matches('/')))
        }
        false => routes,
    };
    let has_own_name = site == origin && origin.starts_with("http://localhost:");
    Ok(App { routes, own_origin: has_own_name.then(|| origin.into()) })
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
