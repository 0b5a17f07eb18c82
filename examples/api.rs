//! An API far from its login service: it checks access tokens by the keys that the issuer publishes, and shares nothing
//! with it but its address.
//!
//!     cargo run --example server                                    # the issuer, in another terminal
//!     cargo run --example api --features jwks
//!     curl -i -H "authorization: Bearer $TOKEN" http://127.0.0.1:3000/orders
//!
//! The token is one that <http://127.0.0.1:8080/demo/> shows after a login, or `$TOKEN` of the commands that the server
//! prints: nothing else has to be set up. Another issuer is the second argument, this service's name in its tokens the
//! third.

#![expect(clippy::print_stdout, reason = "it tells where it listens")]

use std::{error::Error, net::SocketAddr};

use axum::{
    Json, Router,
    extract::ConnectInfo,
    http::StatusCode,
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{
    AccessToken, BearerLayer, ClientIp, HeaderStyle, Limiter, ProblemJson, Quota, Quotas, RateLimitLayer, Tenant,
    Verifier, bearer::AccessTokenTenant,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (listen, issuer) = (next("127.0.0.1:3000"), next("http://127.0.0.1:8080"));
    // an issuer of your own names it in `Tokens::audience`, or for one client in `Client::audience`
    let audience = next(&issuer);

    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}, for tokens of {issuer}", listener.local_addr()?);
    let app = app(&issuer, &audience)?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}

fn app(issuer: &str, audience: &str) -> Result<Router, Box<dyn Error>> {
    // clones of one verifier look at a token once
    let bearer = BearerLayer::new(Verifier::remote(issuer, audience)?).respond_with(ProblemJson);
    // a token says of which tenant it is, and nobody can forge that
    let limiter = Limiter::memory(Quotas::new(Quota::per_minute(600)?));
    let limit = RateLimitLayer::new(AccessTokenTenant, limiter).respond_with(ProblemJson);

    // a flood of bad tokens ends here, before a signature is looked at
    let address =
        ClientIp::peer().peer_by(|head| head.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0));
    let refusals = Limiter::memory(Quotas::new(Quota::per_minute(60)?));
    let by_address = RateLimitLayer::new(address, refusals)
        .charge_if(|status, _| status == StatusCode::UNAUTHORIZED)
        .headers(HeaderStyle::none())
        .respond_with(ProblemJson);

    // one route needs a scope beside: 403 without
    let write = bearer.clone().require_scope("orders:write")?;
    Ok(Router::new()
        .route("/orders", get(orders))
        .route("/orders/new", post(order).route_layer(write))
        // the layer that is added last is asked first: the address, the token, and the budget of its tenant
        .route_layer(limit)
        .route_layer(bearer)
        .route_layer(by_address)
        .route("/healthz", get(async || "ok\n")))
}

async fn orders(token: AccessToken) -> Json<Value> {
    let tenant = token.tenant().map(Tenant::as_str);
    Json(json!({ "of": token.subject(), "tenant": tenant, "may_order": token.has_scope("orders:write"), "orders": [] }))
}

async fn order(token: AccessToken) -> Json<Value> {
    Json(json!({ "ordered_by": token.subject() }))
}
