//! An API without access to the store of its login service. It verifies access tokens with the keys that the issuer
//! publishes, and needs only the issuer's URL.
//!
//!     cargo run --example server                                    # the issuer, in another terminal
//!     cargo run --example api --features external-providers
//!     curl -i -H "authorization: Bearer $TOKEN" http://127.0.0.1:3000/orders
//!
//! Use a token that <http://localhost:8080/demo/> shows after a login, or the `$TOKEN` of the
//! commands that the server prints. No further setup is needed. To use another issuer, pass its URL as the second
//! argument, and the audience of its tokens as the third.

#![expect(clippy::print_stdout, reason = "prints its address")]

use std::{error::Error, net::SocketAddr};

use axum::{
    Json, Router,
    http::StatusCode,
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{
    AccessToken, BearerLayer, ClientIp, Limiter, Plans, ProblemJson, Quota, RateLimitLayer, Tenant, Verifier,
    bearer::AccessTokenTenant, limit::HeaderStyle,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (listen, issuer) = (next("127.0.0.1:3000"), next("http://localhost:8080"));
    // set this in your issuer with `Tokens::audience`, or per client with `Client::audience`
    let audience = next(&issuer);

    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    println!("accepts tokens of {issuer}");
    let app = app(&issuer, &audience)?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}

fn app(issuer: &str, audience: &str) -> Result<Router, Box<dyn Error>> {
    // clones of a verifier verify each token once
    let bearer = BearerLayer::new(Verifier::remote(issuer, audience)?).respond_with(ProblemJson);
    // the token's tenant can't be forged
    let limiter = Limiter::memory(Plans::new(Quota::const_per_minute::<600>()));
    let limit = RateLimitLayer::new(AccessTokenTenant, limiter).respond_with(ProblemJson);

    // floods of bad tokens are rejected here, before any signature is verified
    let refusals = Limiter::memory(Plans::new(Quota::const_per_minute::<60>()));
    let by_address = RateLimitLayer::new(ClientIp::peer(), refusals)
        .charge_if(|status, _| status == StatusCode::UNAUTHORIZED)
        .headers(HeaderStyle::none())
        .respond_with(ProblemJson);

    // one route needs an additional scope: 403 without it
    let write = bearer.clone().require_scope("orders:write")?;
    Ok(Router::new()
        .route("/orders", get(orders))
        .route("/orders/new", post(order).route_layer(write))
        // the layer added last runs first: address, token, budget of the tenant
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
