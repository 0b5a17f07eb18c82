//! Plans from a database. A simulated one holds the plan of each customer.
//!
//!     cargo run --example plans_from_database
//!
//!     curl -i http://127.0.0.1:3000/ -H 'x-api-key: demo-acme-key'      # 600 in any minute, from the database
//!     curl -i http://127.0.0.1:3000/ -H 'x-api-key: demo-initech-key'   # 60, because the database has no plan for it
//!     curl -i http://127.0.0.1:3000/upgrade -X POST                     # acme gets 1,200, within 10 seconds

#![expect(clippy::print_stdout, reason = "prints its address")]

use std::{
    collections::HashMap,
    env,
    error::Error,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    routing::{get, post},
};
use tokio::net::TcpListener;
use tollgate::{
    ApiKeys, ConfigError, LimitKey, Limiter, Plan, Plans, ProblemJson, Quota, RateLimit, RateLimitLayer,
    limit::{CachedPlans, PlanFailure, PlanSource},
};

/// A table of your database: requests per minute and a daily maximum by customer.
#[derive(Clone, Default)]
struct Customers(Arc<RwLock<HashMap<String, (u32, u32)>>>);

impl Customers {
    /// SELECT per_minute, per_day FROM customers WHERE name = $1
    async fn limits(&self, name: &str) -> Option<(u32, u32)> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn set(&self, name: &str, per_minute: u32, per_day: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), (per_minute, per_day));
    }
}

impl PlanSource for Customers {
    type Error = ConfigError;

    async fn plan(&self, tenant: &LimitKey) -> Result<Option<Plan>, ConfigError> {
        let Some((per_minute, per_day)) = self.limits(tenant.as_str()).await else { return Ok(None) };
        Plan::new([Quota::per_minute(per_minute)?, Quota::per_day(per_day)?.with_name("daily")?]).map(Some)
    }
}

fn app(customers: &Customers) -> Result<Router, ConfigError> {
    let plans = CachedPlans::new(customers.clone())
        .time_to_live(Duration::from_secs(10))
        .deadline(Duration::from_millis(500))
        // while the database is down, customers keep the plans that they have
        .on_failure(PlanFailure::Keep);
    let limiter = Limiter::builder(Plans::new(Quota::per_minute(60)?)).plan_source(plans).build()?;

    let keys = ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?.key("demo-initech-key", "initech")?;
    let limit = RateLimitLayer::new(keys, limiter).respond_with(ProblemJson);
    let hello = Router::new().route("/", get(hello)).layer(limit);
    Ok(hello.route("/upgrade", post(upgrade)).with_state(customers.clone()))
}

async fn hello(limit: RateLimit) -> String {
    format!("hello {}, {} of {} left\n", limit.key(), limit.remaining(), limit.limit())
}

/// Your billing would do this.
async fn upgrade(State(customers): State<Customers>) -> &'static str {
    customers.set("acme", 1200, 200_000);
    "acme is upgraded\n"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let customers = Customers::default();
    customers.set("acme", 600, 100_000);
    let address = env::args().nth(1).unwrap_or_else(|| String::from("127.0.0.1:3000"));
    let listener = TcpListener::bind(address).await?;
    println!("Listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app(&customers)?).await?;
    Ok(())
}
