//! Rate limits per tenant on an axum router: two quotas at once, handlers that read the remaining
//! budget, and problem documents for rejections.
//!
//!     cargo run --example axum
//!
//!     curl -i http://127.0.0.1:3000/hello -H 'x-api-key: demo-acme-key'
//!     curl -i http://127.0.0.1:3000/hello -H 'x-api-key: guessed'          # 401
//!     curl -i http://127.0.0.1:3000/hello                                  # 401: no key
//!
//! globex may send 3 requests per second and 60 per minute. The fourth request in a second gets a
//! 429 that names the quota:
//!
//!     for i in 1 2 3 4; do curl -s http://127.0.0.1:3000/hello -H 'x-api-key: demo-globex-key'; echo; done

#![expect(clippy::print_stdout, reason = "prints its address")]

use std::error::Error;

use axum::{Json, Router, routing::get};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{ApiKeys, Limiter, Plan, Plans, ProblemJson, Quota, RateLimit, RateLimitLayer, Tenant};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app()?).await?;
    Ok(())
}

fn app() -> Result<Router, Box<dyn Error>> {
    // who: an API key identifies its tenant
    let keys = ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?.key("demo-globex-key", "globex")?;

    // how much: a default plan, and another one for globex. Keep a clone of `plans` to change them
    // at run time
    let plans = Plans::new(plan(50, 600)?);
    plans.set(Tenant::parse("globex")?, plan(3, 60)?);

    let limit = RateLimitLayer::new(keys, Limiter::memory(plans)).respond_with(ProblemJson).exempt_preflight();

    Ok(Router::new()
        .route("/hello", get(hello))
        .layer(limit)
        // routes added after the layer are not limited
        .route("/healthz", get(async || "ok")))
}

/// Both quotas at once: a request is charged to both, or to none if one of them rejects it.
fn plan(per_second: u32, per_minute: u32) -> Result<Plan, Box<dyn Error>> {
    Ok(Plan::new([
        Quota::per_second(per_second)?.with_name("per-second")?,
        Quota::per_minute(per_minute)?.with_name("per-minute")?,
    ])?)
}

/// Both are extractors of the feature `axum`. Use `Option<RateLimit>` if a tenant may have no
/// limit.
async fn hello(tenant: Tenant, limit: RateLimit) -> Json<Value> {
    Json(json!({
        "hello": tenant.as_str(),
        "tightest": limit.policy(),
        "remaining": limit.remaining(),
    }))
}
