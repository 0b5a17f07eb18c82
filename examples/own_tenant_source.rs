//! A custom tenant source. The token of your application identifies the tenant and its plan.
//!
//!     cargo run --example own_tenant_source
//!
//!     curl -i http://127.0.0.1:3000/ -H 'authorization: Bearer acme.free.demo'     # 5 in any minute
//!     curl -i http://127.0.0.1:3000/ -H 'authorization: Bearer acme.gold.demo'     # upgraded: 50, minus what is spent
//!     curl -i http://127.0.0.1:3000/ -H 'authorization: Bearer acme.gold.forged'   # 401

#![expect(clippy::print_stdout, reason = "prints its address")]

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, PoisonError, RwLock},
};

use axum::{Router, routing::get};
use http::header::AUTHORIZATION;
use tokio::net::TcpListener;
use tollgate::{
    ConfigError, Head, LimitKey, Limiter, Plan, Plans, ProblemJson, Quota, RateLimit, RateLimitLayer, Tenant,
    TenantSource,
    tenant::{TenantError, TenantName},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    Free,
    Gold,
}

/// The plan of each customer according to its newest token. Only valid tokens create entries.
#[derive(Clone)]
struct Customers {
    tiers: Arc<RwLock<HashMap<LimitKey, Tier>>>,
    unknown: TenantError,
    missing: TenantError,
}

impl Customers {
    fn new() -> Result<Self, ConfigError> {
        Ok(Self {
            tiers: Arc::default(),
            unknown: TenantError::unknown("the token is invalid").challenge("Bearer error=\"invalid_token\"")?,
            missing: TenantError::missing("the token is missing").challenge("Bearer")?,
        })
    }

    fn tier(&self, key: &LimitKey) -> Option<Tier> {
        self.tiers.read().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    fn remember(&self, tenant: &Tenant, tier: Tier) {
        if self.tier(tenant) != Some(tier) {
            self.tiers.write().unwrap_or_else(PoisonError::into_inner).insert(tenant.clone().into(), tier);
        }
    }
}

impl TenantSource for Customers {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        // no token means no tenant, so a chain would try its next source
        let Some(value) = head.headers().get(AUTHORIZATION) else { return Ok(None) };
        let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        let (name, tier) = token.and_then(verified).ok_or_else(|| self.unknown.clone())?;
        // validate the name before it can become a budget
        let tenant = Tenant::parse(name)?;
        self.remember(&tenant, tier);
        // a `Tenant` is proved: callers can't forge the token
        Ok(Some(tenant.into()))
    }

    fn missing(&self, _: Head<'_>) -> TenantError {
        self.missing.clone()
    }
}

/// Stands in for verifying a signature.
fn verified(token: &str) -> Option<(&str, Tier)> {
    let (name, rest) = token.split_once('.')?;
    match rest {
        "free.demo" => Some((name, Tier::Free)),
        "gold.demo" => Some((name, Tier::Gold)),
        _ => None,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let customers = Customers::new()?;

    // created once; the function returns clones
    let free = Plan::from(Quota::per_minute(5)?.with_name("free")?);
    let gold = Plan::from(Quota::per_minute(50)?.with_name("gold")?);
    let booked = customers.clone();
    let plans = Plans::by(free.clone(), move |key| {
        Some(match booked.tier(key)? {
            Tier::Free => free.clone(),
            Tier::Gold => gold.clone(),
        })
    });

    let limit = RateLimitLayer::new(customers, Limiter::memory(plans)).respond_with(ProblemJson);
    let app = Router::new().route("/", get(hello)).layer(limit);

    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn hello(tenant: Tenant, limit: RateLimit) -> String {
    format!("hello {tenant}: {} of {} left, plan {}\n", limit.remaining(), limit.limit(), limit.policy())
}
