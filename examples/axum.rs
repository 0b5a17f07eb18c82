//! A budget for each tenant on an axum router: two quotas at once, handlers that read how the tenant stands, and
//! refusals as problem documents.
//!
//!     cargo run --example axum
//!
//!     curl -i http://127.0.0.1:3000/hello -H 'x-api-key: demo-acme-key'
//!     curl -i http://127.0.0.1:3000/hello -H 'x-api-key: guessed'          # 401
//!     curl -i http://127.0.0.1:3000/hello                                  # 400: whose request is it?
//!
//! globex may send 3 requests a second, and 60 a minute. The fourth at once is a 429 that names the quota:
//!
//!     for i in 1 2 3 4; do curl -s http://127.0.0.1:3000/hello -H 'x-api-key: demo-globex-key'; echo; done

#![expect(clippy::print_stdout, reason = "it tells where it listens")]

use std::error::Error;

use axum::{Json, Router, routing::get};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{ApiKeys, Limiter, Plan, ProblemJson, Quota, Quotas, RateLimit, RateLimitLayer, Tenant};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app()?).await?;
    Ok(())
}

fn app() -> Result<Router, Box<dyn Error>> {
    // who: a key names its tenant
    let keys = ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?.key("demo-globex-key", "globex")?;

    // how much: a plan for all, another for globex; keep a clone of `quotas` to change them while the server runs
    let quotas = Quotas::new(plan(50, 600)?);
    quotas.set(Tenant::parse("globex")?, plan(3, 60)?);

    let limit = RateLimitLayer::new(keys, Limiter::memory(quotas)).respond_with(ProblemJson).exempt_preflight();

    Ok(Router::new()
        .route("/hello", get(hello))
        .layer(limit)
        // what is added after the layer stands outside of it
        .route("/healthz", get(async || "ok")))
}

/// Both quotas at once: a request is charged to both or, where one refuses, to none.
fn plan(per_second: u32, per_minute: u32) -> Result<Plan, Box<dyn Error>> {
    Ok(Plan::new([
        Quota::per_second(per_second)?.with_name("per-second")?,
        Quota::per_minute(per_minute)?.with_name("per-minute")?,
    ])?)
}

/// Both are extractors with the feature `axum`; ask for an `Option<RateLimit>` where a tenant may have no limit.
async fn hello(tenant: Tenant, limit: RateLimit) -> Json<Value> {
    Json(json!({
        "hello": tenant.as_str(),
        "tightest": limit.policy(),
        "remaining": limit.remaining(),
    }))
}
