//! Plans that are looked up in a simulated database.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use http::{Request, Response};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tollgate::{
    EventLog, LimitKey, Limiter, Plan, Plans, Quota, RateLimit, RateLimitLayer,
    event::{EventKind, Query},
    limit::{CachedPlans, PlanFailure, PlanSource, RefusalReason},
    tenant::HeaderTenant,
    testing::{ManualClock, block_on},
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::engine::tenant;

const MINUTE: Duration = Duration::from_secs(60);
/// The limit of a tenant without a plan.
const DEFAULT: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Answers,
    Fails,
    /// Each answer takes a permit.
    Waits,
}

/// The database.
#[derive(Clone)]
struct Database(Arc<Shared>);

struct Shared {
    plans: Mutex<HashMap<String, Plan>>,
    mode: Mutex<Mode>,
    permits: Semaphore,
    begun: AtomicUsize,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Database {
    fn new(plans: &[(&str, u32)]) -> Self {
        let database = Self(Arc::new(Shared {
            plans: Mutex::default(),
            mode: Mutex::new(Mode::Answers),
            permits: Semaphore::new(0),
            begun: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        }));
        plans.iter().for_each(|(name, limit)| database.set(name, *limit));
        database
    }

    fn set(&self, name: &str, limit: u32) {
        self.0.plans.lock().unwrap().insert(name.to_owned(), Quota::per_minute(limit).unwrap().into());
    }

    fn mode(&self, mode: Mode) {
        *self.0.mode.lock().unwrap() = mode;
    }

    fn lookups(&self) -> usize {
        self.0.begun.load(SeqCst)
    }
}

impl PlanSource for Database {
    type Error = &'static str;

    async fn plan(&self, tenant: &LimitKey) -> Result<Option<Plan>, &'static str> {
        self.0.begun.fetch_add(1, SeqCst);
        let running = self.0.running.fetch_add(1, SeqCst) + 1;
        let _running = Running(&self.0.running);
        self.0.most_running.fetch_max(running, SeqCst);
        let mode = *self.0.mode.lock().unwrap();
        match mode {
            Mode::Answers => {}
            Mode::Fails => return Err("the database is down"),
            Mode::Waits => self.0.permits.acquire().await.unwrap().forget(),
        }
        Ok(self.0.plans.lock().unwrap().get(tenant.as_str()).cloned())
    }
}

/// A service behind a limiter with this source, and its clock.
#[derive(Clone)]
struct World {
    database: Database,
    limiter: Limiter,
    clock: ManualClock,
    log: EventLog,
}

impl World {
    fn new(plans: &[(&str, u32)], settings: impl Fn(CachedPlans) -> CachedPlans) -> Self {
        Self::with(Plans::new(Quota::per_minute(DEFAULT).unwrap()), plans, settings)
    }

    fn with(quotas: Plans, plans: &[(&str, u32)], settings: impl Fn(CachedPlans) -> CachedPlans) -> Self {
        let (database, clock, log) = (Database::new(plans), ManualClock::new(), EventLog::new());
        let plans = settings(CachedPlans::new(database.clone()));
        let limiter =
            Limiter::builder(quotas).plan_source(plans).clock(clock.clone()).events(log.clone()).build().unwrap();
        Self { database, limiter, clock, log }
    }

    /// Sends one request. Returns its status, limit and remaining units. An admitted request has the same in its extension,
    /// whether its plan had to be looked up or not.
    async fn ask(&self, name: &str) -> (u16, String, String) {
        let service = ServiceBuilder::new()
            .layer(RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), self.limiter.clone()))
            .service(service_fn(async |request: Request<String>| {
                let limit = RateLimit::from_extensions(request.extensions()).unwrap();
                let known = format!("{} {} {}", limit.key(), limit.limit(), limit.remaining());
                Ok::<_, Infallible>(Response::new(known))
            }));
        let request = Request::get("/").header("x-tenant", name).body(String::new()).unwrap();
        let response = service.oneshot(request).await.unwrap();
        let header = |name: &str| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let (limit, remaining) = (header("x-ratelimit-limit"), header("x-ratelimit-remaining"));
        if response.status().is_success() && !limit.is_empty() {
            assert_eq!(*response.body(), format!("{name} {limit} {remaining}"));
        }
        (response.status().as_u16(), limit, remaining)
    }

    fn ask_in_background(&self, tasks: &mut JoinSet<(u16, String, String)>, name: String) {
        let world = self.clone();
        tasks.spawn(async move { world.ask(&name).await });
    }
}

fn answer(status: u16, limit: u32, remaining: u32) -> (u16, String, String) {
    (status, limit.to_string(), remaining.to_string())
}

async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a13_a_plan_is_looked_up_at_the_first_request_and_when_it_is_stale() {
    let world = World::new(&[("acme", 10)], |plans| plans.time_to_live(MINUTE));
    for remaining in (5..10).rev() {
        assert_eq!(world.ask("acme").await, answer(200, 10, remaining));
        world.clock.advance(Duration::from_secs(10));
    }
    assert_eq!(world.database.lookups(), 1);
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(world.ask("acme").await.0, 200);
    assert_eq!(world.database.lookups(), 2);
    assert_eq!(world.limiter.plans().plan(&tenant("acme")).quotas().next().unwrap().limit(), 10);
}

#[tokio::test]
async fn a13_a_tenant_without_a_plan_gets_the_default_and_is_looked_up_once() {
    let world = World::new(&[], |plans| plans);
    for remaining in (0..DEFAULT).rev() {
        assert_eq!(world.ask("unknown").await, answer(200, DEFAULT, remaining));
    }
    assert_eq!(world.ask("unknown").await.0, 429);
    assert_eq!(world.database.lookups(), 1);
    // it becomes a customer: what it has spent stays spent
    world.database.set("unknown", 10);
    world.clock.advance(Duration::from_secs(30));
    assert_eq!(world.ask("unknown").await.0, 429);
    world.clock.advance(Duration::from_secs(30));
    assert_eq!(world.ask("unknown").await, answer(200, 10, 9));
    assert_eq!(world.database.lookups(), 2);
}

#[tokio::test]
async fn a13_a_change_of_a_plan_takes_effect_and_forgives_nothing() {
    let world = World::new(&[("acme", 10)], |plans| plans.time_to_live(Duration::from_secs(10)));
    for _ in 0..8 {
        assert_eq!(world.ask("acme").await.0, 200);
    }
    world.database.set("acme", 5);
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(world.ask("acme").await, answer(429, 5, 0));
    world.database.set("acme", 9);
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(world.ask("acme").await, answer(200, 9, 0));
    assert_eq!(world.ask("acme").await.0, 429);
    world.database.0.plans.lock().unwrap().clear();
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(world.ask("acme").await, answer(429, DEFAULT, 0));
    // all that was spent comes back a minute after it was
    world.clock.advance(MINUTE);
    assert_eq!(world.ask("acme").await, answer(200, DEFAULT, 2));
}

#[tokio::test]
async fn a13_a_failed_lookup_is_answered_as_chosen_and_not_repeated_at_once() {
    for (on_failure, first, later) in [
        (PlanFailure::Keep, answer(200, DEFAULT, 2), answer(200, 10, 8)),
        (PlanFailure::Default, answer(200, DEFAULT, 2), answer(200, DEFAULT, 1)),
        (PlanFailure::Refuse, (503, String::new(), String::new()), (503, String::new(), String::new())),
    ] {
        let world = World::new(&[("acme", 10)], |plans| plans.on_failure(on_failure));
        world.database.mode(Mode::Fails);
        assert_eq!(world.ask("other").await, first, "{on_failure:?}");
        assert_eq!(world.ask("other").await.0, first.0);
        assert_eq!(world.database.lookups(), 1, "{on_failure:?}");

        // one that was found before
        world.database.mode(Mode::Answers);
        assert_eq!(world.ask("acme").await, answer(200, 10, 9));
        world.database.mode(Mode::Fails);
        world.clock.advance(MINUTE - Duration::from_secs(1));
        assert_eq!(world.ask("acme").await.0, 200);
        world.clock.advance(Duration::from_secs(1));
        // what was spent a minute ago is back
        assert_eq!(world.ask("acme").await, later, "{on_failure:?}");
        assert_eq!(world.ask("acme").await.0, later.0);
        assert_eq!(world.database.lookups(), 3, "{on_failure:?}");

        world.database.mode(Mode::Answers);
        world.clock.advance(Duration::from_secs(5));
        assert_eq!(world.ask("acme").await.1, "10", "{on_failure:?}");

        let events = world.log.read_events(&Query::new()).events;
        let failed: Vec<_> = events.iter().filter(|event| event.kind == EventKind::PlanLookupFailed).collect();
        let tenants: Vec<_> = failed.iter().map(|event| event.tenant.as_ref().unwrap().as_str()).collect();
        assert_eq!(tenants, ["other", "acme"], "{on_failure:?}");
    }
}

#[tokio::test]
async fn a13_a_stale_plan_is_used_while_too_many_lookups_are_running() {
    let settings = |plans: CachedPlans| plans.max_lookups(1).on_failure(PlanFailure::Refuse);
    // so long that no lookup ends by itself
    let world = World::new(&[("acme", 10)], |plans| settings(plans).deadline(MINUTE));
    assert_eq!(world.ask("acme").await, answer(200, 10, 9));
    world.clock.advance(MINUTE);
    world.database.mode(Mode::Waits);
    let mut tasks = JoinSet::new();
    world.ask_in_background(&mut tasks, String::from("slow"));
    settled().await;
    assert_eq!(world.ask("acme").await, answer(200, 10, 9));
    world.database.0.permits.add_permits(1);
    tasks.join_all().await;
    // a tenant whose plan is unknown is not a denied one
    world.database.mode(Mode::Fails);
    assert_eq!(world.ask("stranger").await.0, 503);
    assert_eq!(world.limiter.check(&tenant("stranger"), 1).refusal_reason(), Some(RefusalReason::Unavailable));

    // another one waits for its turn and for the database until the deadline
    let world = World::new(&[], |plans| settings(plans).deadline(Duration::from_millis(20)));
    world.database.mode(Mode::Waits);
    let mut tasks = JoinSet::new();
    world.ask_in_background(&mut tasks, String::from("slow"));
    settled().await;
    assert_eq!(world.ask("stranger").await.0, 503);
}

/// Fails the lookup of a tenant at a deadline of 20 ms, and never looks it up again.
async fn fails_at_the_deadline() {
    let deadline = Duration::from_millis(20);
    let world = World::new(&[("acme", 10)], |plans| plans.deadline(deadline));
    world.database.mode(Mode::Waits);
    let began = Instant::now();
    assert_eq!(world.ask("acme").await, answer(200, DEFAULT, 2));
    assert!(began.elapsed() >= deadline);
    assert_eq!(world.ask("acme").await, answer(200, DEFAULT, 1));
    assert_eq!((world.database.lookups(), world.database.0.running.load(SeqCst)), (1, 0));
}

#[tokio::test]
async fn a13_a_slow_lookup_fails_at_the_deadline() {
    fails_at_the_deadline().await;
}

#[test]
fn b28_lookups_have_a_deadline_in_a_runtime_without_timers_and_without_a_runtime() {
    let without_timers = tokio::runtime::Builder::new_current_thread().build().unwrap();
    without_timers.block_on(async {
        let world = World::new(&[("acme", 10)], |plans| plans);
        assert_eq!(world.ask("acme").await, answer(200, 10, 9));
        fails_at_the_deadline().await;
    });
    block_on(fails_at_the_deadline());
}

#[tokio::test]
async fn a13_a_thundering_herd_makes_one_lookup() {
    let world = World::new(&[("acme", 50)], |plans| plans);
    world.database.mode(Mode::Waits);
    let mut tasks = JoinSet::new();
    (0..60).for_each(|_| world.ask_in_background(&mut tasks, String::from("acme")));
    settled().await;
    assert_eq!((world.database.lookups(), tasks.try_join_next().is_none()), (1, true));
    world.database.0.permits.add_permits(1);
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|(status, ..)| *status == 200).count(), 50);
    assert_eq!(world.database.lookups(), 1);

    // a stale plan is used while one request looks it up again
    world.clock.advance(MINUTE);
    let mut first = JoinSet::new();
    world.ask_in_background(&mut first, String::from("acme"));
    settled().await;
    for remaining in (40..50).rev() {
        assert_eq!(world.ask("acme").await, answer(200, 50, remaining));
    }
    assert_eq!(world.database.lookups(), 2);
    world.database.0.permits.add_permits(1);
    assert_eq!(first.join_all().await, [answer(200, 50, 39)]);
}

#[tokio::test]
async fn a13_a_lookup_whose_request_is_dropped_is_taken_over() {
    let world = World::new(&[("acme", 50)], |plans| plans);
    world.database.mode(Mode::Waits);
    let (mut first, mut second) = (JoinSet::new(), JoinSet::new());
    world.ask_in_background(&mut first, String::from("acme"));
    settled().await;
    world.ask_in_background(&mut second, String::from("acme"));
    settled().await;
    assert_eq!(world.database.lookups(), 1);
    first.shutdown().await;
    settled().await;
    assert_eq!(world.database.lookups(), 2);
    world.database.0.permits.add_permits(1);
    assert_eq!(second.join_all().await, [answer(200, 50, 49)]);
}

#[tokio::test]
async fn a13_a_flood_of_unknown_tenants_displaces_no_plan_and_stays_bounded() {
    let world = World::new(&[("acme", 500), ("globex", 500)], |plans| plans.max_tenants(10).max_lookups(4));
    assert_eq!(world.ask("acme").await, answer(200, 500, 499));
    for stranger in 0..200 {
        assert_eq!(world.ask(&format!("stranger-{stranger}")).await, answer(200, DEFAULT, 2));
    }
    assert_eq!(world.database.lookups(), 201);
    assert_eq!(world.ask("acme").await, answer(200, 500, 498));
    assert_eq!(world.ask("globex").await, answer(200, 500, 499));
    assert_eq!(world.ask("globex").await, answer(200, 500, 498));
    assert_eq!(world.database.lookups(), 202);
    // five of them are remembered, the others are not
    for stranger in 0..200 {
        assert_eq!(world.ask(&format!("stranger-{stranger}")).await, answer(200, DEFAULT, 1));
    }
    assert_eq!(world.database.lookups(), 202 + 195);

    // a slow database sees no more than two lookups of made-up names at once, and customers don't wait behind them
    world.clock.advance(MINUTE);
    world.database.mode(Mode::Waits);
    let (mut flood, mut customer) = (JoinSet::new(), JoinSet::new());
    (0..100).for_each(|number| world.ask_in_background(&mut flood, format!("late-{number}")));
    settled().await;
    assert_eq!(world.database.0.running.load(SeqCst), 2);
    world.ask_in_background(&mut customer, String::from("acme"));
    settled().await;
    assert_eq!(world.database.0.running.load(SeqCst), 3);
    world.database.0.permits.add_permits(101);
    assert_eq!(customer.join_all().await, [answer(200, 500, 499)]);
    assert_eq!(flood.join_all().await, vec![answer(200, DEFAULT, 2); 100]);
    assert_eq!(world.database.0.most_running.load(SeqCst), 3);
}

#[tokio::test]
async fn a13_a_flood_of_unknown_tenants_and_an_outage_lift_no_plan() {
    let world = World::new(&[("acme", 1)], |plans| plans.max_tenants(10));
    assert_eq!(world.ask("acme").await, answer(200, 1, 0));
    world.clock.advance(Duration::from_secs(61));
    for stranger in 0..20 {
        assert_eq!(world.ask(&format!("stranger-{stranger}")).await, answer(200, DEFAULT, 2));
    }
    world.database.mode(Mode::Fails);
    assert_eq!(world.ask("acme").await, answer(200, 1, 0));
}

#[tokio::test]
async fn a13_old_answers_make_room_for_new_ones() {
    let plans: Vec<_> = (0..8).map(|number| format!("customer-{number}")).collect();
    let plans: Vec<_> = plans.iter().map(|name| (name.as_str(), 10)).collect();
    let world = World::new(&plans, |settings| settings.max_tenants(4));
    for (name, _) in &plans[..4] {
        assert_eq!(world.ask(name).await, answer(200, 10, 9));
    }
    assert_eq!(world.ask("customer-4").await, answer(200, DEFAULT, 2), "there is no room");
    world.clock.advance(Duration::from_secs(61));
    for (name, _) in &plans[4..] {
        assert_eq!(world.ask(name).await, answer(200, 10, 9));
    }
}

#[test]
fn a13_a_plan_that_is_found_while_old_answers_are_removed_stays() {
    let names: Vec<_> = (0..64).map(|number| format!("customer-{number}")).chain(["acme".to_owned()]).collect();
    let plans: Vec<_> = names.iter().map(|name| (name.as_str(), 10)).chain([("newcomer", 10)]).collect();
    let world = World::new(&plans, |settings| settings.max_tenants(names.len()));
    let load = |name: &str| block_on(world.limiter.load_plan(&tenant(name))).unwrap();
    for round in 0..500 {
        names.iter().for_each(|name| load(name));
        world.clock.advance(Duration::from_secs(61));
        let start = Barrier::new(2);
        thread::scope(|threads| {
            threads.spawn(|| {
                start.wait();
                // there is no room, so old answers are removed
                load("newcomer");
            });
            start.wait();
            load("acme");
        });
        assert_eq!(world.limiter.peek(&tenant("acme")).unwrap().limit(), 10, "{round}");
        world.clock.advance(Duration::from_secs(61));
    }
}

#[tokio::test]
async fn a13_what_an_operator_sets_overrides_what_is_found() {
    let world = World::new(&[("acme", 10)], |plans| plans);
    world.limiter.plans().set(tenant("acme"), Quota::per_minute(20).unwrap());
    assert_eq!(world.ask("acme").await, answer(200, 20, 19));
    assert_eq!(world.database.lookups(), 0);
    world.limiter.plans().remove(&tenant("acme"));
    assert_eq!(world.ask("acme").await, answer(200, 10, 8));
}

/// A function is asked at each request, so no row is known to have a fresh plan.
#[tokio::test]
async fn a13_a_function_chooses_the_default_of_tenants_without_a_plan() {
    let quotas =
        Plans::by(Quota::per_minute(DEFAULT).unwrap(), |tenant| (tenant.as_str() == "partner").then(Plan::unlimited));
    let world = World::with(quotas, &[("acme", 10)], |plans| plans);
    for remaining in (0..10).rev() {
        assert_eq!(world.ask("acme").await, answer(200, 10, remaining));
    }
    for _ in 0..10 {
        assert_eq!(world.ask("partner").await.0, 200);
    }
    assert_eq!(world.database.lookups(), 2);
}

/// Without a request that waits, nothing is looked up, and a look at a tenant does not make its plan fresh.
#[tokio::test]
async fn a13_a_peek_or_a_check_does_not_make_a_stale_plan_fresh() {
    let world = World::new(&[("acme", 10)], |plans| plans);
    let acme = tenant("acme");
    assert!(world.limiter.check(&acme, 1).is_admitted());
    assert_eq!(world.limiter.peek(&acme).unwrap().remaining(), DEFAULT - 1);
    assert_eq!(world.database.lookups(), 0);
    world.limiter.load_plan(&acme).await.unwrap();
    assert_eq!(world.limiter.peek(&acme).unwrap().remaining(), 9);
    for (limit, lookups) in [(20, 2), (30, 3)] {
        world.database.set("acme", limit);
        world.clock.advance(MINUTE);
        _ = world.limiter.peek(&acme);
        assert!(world.limiter.check(&acme, 1).is_admitted());
        _ = world.limiter.peek(&acme);
        assert_eq!(world.ask("acme").await, answer(200, limit, limit - 2));
        assert_eq!(world.database.lookups(), lookups);
    }
}

#[tokio::test]
async fn a13_the_plan_that_was_found_is_back_when_an_operator_removes_another() {
    let world = World::new(&[("acme", 10)], |plans| plans);
    assert_eq!(world.ask("acme").await, answer(200, 10, 9));
    world.limiter.plans().set(tenant("acme"), Quota::per_minute(20).unwrap());
    assert_eq!(world.ask("acme").await, answer(200, 20, 18));
    world.limiter.plans().remove(&tenant("acme"));
    assert_eq!(world.ask("acme").await, answer(200, 10, 7));
}

/// Customers with a plan of one unit, and a limiter that keeps ten answers.
async fn world_of_customers(count: usize, of: usize) -> World {
    let names: Vec<_> = (0..of).map(|number| format!("customer-{number}")).collect();
    let plans: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let world = World::new(&plans, |plans| plans.max_tenants(10));
    for name in &names[..count] {
        assert_eq!(world.ask(name).await, answer(200, 1, 0));
    }
    world
}

async fn strangers_come(world: &World) {
    for stranger in 0..20 {
        assert_eq!(world.ask(&format!("stranger-{stranger}")).await, answer(200, DEFAULT, 2));
    }
}

#[tokio::test]
async fn a13_made_up_names_drive_out_no_old_plan() {
    for customers in [4, 6] {
        let world = world_of_customers(customers, customers).await;
        world.clock.advance(Duration::from_secs(61));
        strangers_come(&world).await;
        // the rows of the customers are swept
        for _ in 0..1100 {
            world.clock.advance(Duration::from_millis(30));
            world.ask("stranger-0").await;
        }
        world.database.mode(Mode::Fails);
        assert_eq!(world.ask("customer-0").await, answer(200, 1, 0), "{customers}");
    }
}

#[tokio::test]
async fn a13_made_up_names_make_room_for_a_new_customer() {
    let world = world_of_customers(6, 7).await;
    strangers_come(&world).await;
    assert_eq!(world.ask("customer-6").await, answer(200, 1, 0));
}

#[test]
fn a_bucket_of_a_plan_stays_if_the_plan_becomes_the_default() {
    let partner = Plan::from(Quota::per_minute(7).unwrap());
    let chosen = partner.clone();
    let quotas = Plans::by(Quota::per_minute(DEFAULT).unwrap(), move |_| Some(chosen.clone()));
    let limiter = Limiter::builder(quotas.clone()).max_tenants(1).clock(ManualClock::new()).build().unwrap();
    assert!(limiter.check(&tenant("first"), 1).is_admitted());
    assert!(limiter.check(&tenant("acme"), 7).is_admitted());
    for _ in 0..2 {
        assert!(!limiter.check(&tenant("acme"), 1).is_admitted());
        quotas.set_default(partner.clone());
    }
}

#[test]
fn rows_of_tenants_that_have_lost_their_name_are_swept_while_a_bucket_is_in_use() {
    let (clock, quotas) = (ManualClock::new(), Plans::new(Quota::per_minute(1_000_000).unwrap()));
    let limiter = Limiter::builder(quotas.clone()).max_tenants(1).clock(clock.clone()).build().unwrap();
    let spend = |name: &str| assert!(limiter.check(&tenant(name), 1).is_admitted());
    spend("first");
    spend("in-a-bucket");
    for number in 0..50 {
        let name = format!("customer-{number}");
        quotas.set(tenant(&name), Quota::per_minute(5).unwrap());
        spend(&name);
        quotas.remove(&tenant(&name));
    }
    for _ in 0..4000 {
        clock.advance(Duration::from_millis(30));
        spend("in-a-bucket");
    }
    assert!(limiter.tenants() <= 3, "{}", limiter.tenants());
}
