//! Calls that wait until they are admitted. The time of tokio is paused and jumps from timer to timer, and the clock of the
//! limiter follows it.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use proptest::{collection::vec, prelude::*};
use tokio::{
    runtime::Builder,
    task::{JoinSet, yield_now},
    time::{Instant, sleep, timeout},
};
use tollgate::{
    EventLog, LimitKey, Limiter, Plan, Plans, Quota, RateLimitLayer,
    clock::{Clock, Moment, UnixTime},
    event::{EventKind, Query},
    limit::{CachedPlans, Decision, HeaderStyle, PlanSource, RefusalReason},
    tenant::HeaderTenant,
};
use tower::{Layer, Service, ServiceExt, service_fn, util::ServiceFn};

use crate::engine::tenant;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The paused time of tokio, and how often it was read.
#[derive(Clone, Debug)]
struct PausedClock {
    began: Instant,
    reads: Arc<AtomicUsize>,
}

impl Clock for PausedClock {
    fn now(&self) -> Moment {
        self.reads.fetch_add(1, SeqCst);
        Moment::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap())
    }

    fn unix(&self, moment: Moment) -> UnixTime {
        UnixTime::from_secs(1_000_000_000) + moment.since(Moment::default())
    }
}

struct World {
    limiter: Limiter,
    clock: PausedClock,
    log: EventLog,
}

impl World {
    fn new(plan: impl Into<Plan>) -> Self {
        let clock = PausedClock { began: Instant::now(), reads: Arc::default() };
        let log = EventLog::new();
        let limiter = Limiter::builder(Plans::new(plan)).clock(clock.clone()).events(log.clone()).build().unwrap();
        Self { limiter, clock, log }
    }

    async fn wait(&self, units: u32, at_most: Duration) -> Decision {
        self.limiter.until_ready(&tenant("acme"), units, at_most).await
    }

    fn check(&self, units: u32) -> Decision {
        self.limiter.check(&tenant("acme"), units)
    }

    fn remaining(&self) -> u32 {
        self.limiter.peek(&tenant("acme")).unwrap().remaining()
    }

    /// Returns how many refusals the log shows.
    fn refusals(&self) -> u64 {
        let events = self.log.read_events(&Query::new().kind(EventKind::RateLimited)).events;
        events.iter().map(|event| event.count).sum()
    }

    fn passed(&self) -> Duration {
        self.clock.began.elapsed()
    }
}

fn ten_seconds(limit: u32) -> Quota {
    Quota::new(limit, 10 * SECOND).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_admitted_at_the_reset_and_charged_once() {
    let world = World::new(ten_seconds(3));
    assert!(world.wait(1, Duration::ZERO).await.is_admitted());
    sleep(2 * SECOND).await;
    assert!(world.check(2).is_admitted());
    for (units, remaining) in [(1, 0), (2, 0)] {
        let refusal = world.check(units);
        let reset = refusal.standing().unwrap().reset();
        assert!(world.wait(units, MINUTE).await.is_admitted());
        let late = world.clock.now().since(reset);
        assert!(world.clock.now() >= reset && late <= Duration::from_millis(1), "{late:?}");
        assert_eq!(world.remaining(), remaining);
    }
    assert_eq!(world.refusals(), 2, "of the two that did not wait");
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_if_that_is_useless() {
    let world = World::new(ten_seconds(3));
    assert!(world.check(3).is_admitted());
    let reset = world.check(1).retry_after();
    let refused = world.wait(1, reset - Duration::from_millis(2)).await;
    assert_eq!((refused.refusal_reason(), refused.retry_after()), (Some(RefusalReason::Spent), reset));
    assert_eq!(world.wait(4, Duration::MAX).await.refusal_reason(), Some(RefusalReason::Impossible));
    world.limiter.plans().set(tenant("acme"), Plan::denied());
    assert_eq!(world.wait(1, MINUTE).await.refusal_reason(), Some(RefusalReason::Denied));
    world.limiter.plans().set(tenant("acme"), Plan::unlimited());
    assert!(world.wait(1, MINUTE).await.is_admitted());
    assert_eq!((world.passed(), world.refusals()), (Duration::ZERO, 2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_is_charged_nothing() {
    let world = World::new(ten_seconds(3));
    assert!(world.check(3).is_admitted());
    let waits = [world.wait(1, MINUTE), world.wait(1, MINUTE)].map(|wait| timeout(5 * SECOND, wait));
    for wait in waits {
        assert!(wait.await.is_err());
    }
    sleep(6 * SECOND).await;
    assert_eq!((world.remaining(), world.refusals()), (3, 0));
}

/// If one that is first gives up, the next one is.
#[tokio::test(start_paused = true)]
async fn calls_for_the_same_wait_in_line() {
    let world = Arc::new(World::new(ten_seconds(1)));
    assert!(world.check(1).is_admitted());
    let (mut calls, order) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for number in 0..5 {
        let (world, order) = (Arc::clone(&world), Arc::clone(&order));
        calls.spawn(async move {
            let wait = timeout(if number == 1 { 15 * SECOND } else { MINUTE }, world.wait(1, MINUTE));
            let is_admitted = wait.await.is_ok_and(|decision| decision.is_admitted());
            (number, is_admitted.then(|| (order.fetch_add(1, SeqCst), world.passed().as_secs())))
        });
        yield_now().await;
    }
    let mut admitted = calls.join_all().await;
    admitted.sort();
    // half a slice later than ten seconds after the last one, at most
    let at = |place, second| Some((place, second));
    assert_eq!(admitted, [(0, at(0, 10)), (1, None), (2, at(1, 20)), (3, at(2, 30)), (4, at(3, 40))]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_calls_that_wait_ask_about_twice_each() {
    // a unit comes back each second
    let world = Arc::new(World::new(Quota::new(100, 100 * SECOND).unwrap().slices(100).unwrap()));
    for _ in 0..100 {
        assert!(world.check(1).is_admitted());
        sleep(SECOND).await;
    }
    let (mut calls, began) = (JoinSet::new(), world.clock.reads.load(SeqCst));
    for _ in 0..1_000 {
        let world = Arc::clone(&world);
        calls.spawn(async move { world.wait(1, 500 * SECOND).await.is_admitted() });
    }
    let admitted = calls.join_all().await.into_iter().filter(|is_admitted| *is_admitted).count();
    let asked = world.clock.reads.load(SeqCst) - began;
    assert!((480..=501).contains(&admitted), "{admitted}");
    // those that are refused at the end, too; reports read the clock once more
    assert!(asked < 4_500, "{asked}");
    assert_eq!(world.refusals(), 1_000 - admitted as u64);
}

#[tokio::test(start_paused = true)]
async fn while_open_calls_block_it_asks_ten_times_a_second() {
    let world = World::new(ten_seconds(3));
    let hold = world.limiter.hold(&tenant("acme"), 3, 3, 5 * MINUTE).unwrap();
    let reads = world.clock.reads.load(SeqCst);
    let refused = world.wait(1, 2 * SECOND).await;
    assert!(!refused.is_admitted() && !refused.standing().unwrap().is_exact());
    assert!((20..=24).contains(&(world.clock.reads.load(SeqCst) - reads)), "it asks too often or too seldom");
    let began = world.passed();
    let (decision, ()) = tokio::join!(world.wait(1, 2 * SECOND), async {
        sleep(SECOND).await;
        hold.commit(0);
    });
    assert!(decision.is_admitted() && world.passed() - began <= Duration::from_millis(1_101));
}

#[tokio::test(start_paused = true)]
async fn while_open_calls_block_it_asks_a_last_time_at_the_end() {
    for (wait, ends_after) in [(50, 40), (250, 220)].map(|(wait, ends)| (wait, Duration::from_millis(ends))) {
        let world = World::new(ten_seconds(3));
        let hold = world.limiter.hold(&tenant("acme"), 3, 3, 5 * MINUTE).unwrap();
        let (decision, ()) = tokio::join!(world.wait(1, Duration::from_millis(wait)), async {
            sleep(ends_after).await;
            hold.commit(0);
        });
        assert!(decision.is_admitted(), "{wait}");
    }
}

// ---- layers

type Served = Result<Response<String>, Infallible>;

fn serve(_: Request<()>) -> Ready<Served> {
    ready(Ok(Response::new(String::from("served"))))
}

type Serving = ServiceFn<fn(Request<()>) -> Ready<Served>>;

/// Sends a request of acme through this layer.
async fn send<L, B>(layer: &L, content_type: &str) -> Response<B>
where
    L: Layer<Serving>,
    L::Service: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let request = Request::get("/").header("x-tenant", "acme").header("content-type", content_type).body(()).unwrap();
    layer.layer(service_fn(serve as fn(_) -> _)).oneshot(request).await.unwrap()
}

impl World {
    /// Returns a layer whose requests wait for at most 25 seconds.
    fn layer(&self, most_waiting: usize) -> RateLimitLayer {
        let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), self.limiter.clone());
        layer.waiting(25 * SECOND, most_waiting)
    }
}

#[tokio::test(start_paused = true)]
async fn refused_requests_wait_but_only_so_many_at_the_same_time() {
    let world = World::new(ten_seconds(1));
    let layer = world.layer(3);
    let at = async || {
        let response = send(&layer.clone(), "").await;
        (response.status(), header(&response, "retry-after"), world.passed().as_secs())
    };
    let answers: [_; 5] = tokio::join!(at(), at(), at(), at(), at()).into();
    let limited = |seconds: &str, at| (StatusCode::TOO_MANY_REQUESTS, Some(seconds.to_owned()), at);
    let expected = [served(0), served(10), served(20), limited("10", 20), limited("10", 0)];
    assert_eq!(answers, expected);
    assert_eq!(world.refusals(), 2, "each of them once");
}

fn served(at: u64) -> (StatusCode, Option<String>, u64) {
    (StatusCode::OK, None, at)
}

fn header<B>(response: &Response<B>, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_client_disconnects_leaves_its_place_and_is_charged_nothing() {
    let world = World::new(ten_seconds(1));
    let layer = world.layer(1);
    assert_eq!(send(&layer, "").await.status(), StatusCode::OK);
    for _ in 0..3 {
        assert!(timeout(3 * SECOND, send(&layer, "")).await.is_err(), "it waits");
    }
    sleep(2 * SECOND).await;
    assert_eq!((world.remaining(), world.refusals()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_is_answered_as_any_other() {
    let shadow = Quota::per_hour(2).unwrap().with_name("trial").unwrap().shadow();
    let world = World::new(Plan::new([ten_seconds(2), shadow]).unwrap());
    let layer = world.layer(9).charge_if(|status, _| status.is_success()).cost(|_| 2);
    let free = world.layer(9).charge_if(|_, _| false).headers(HeaderStyle::new().ietf_draft_10());
    assert_eq!(send(&layer, "").await.status(), StatusCode::OK);
    // refunded after the wait
    let response = send(&free, "").await;
    assert_eq!((world.passed().as_secs(), world.remaining()), (10, 2));
    assert_eq!(header(&response, "x-ratelimit-would-refuse").as_deref(), Some("trial"));
    assert!(header(&response, "ratelimit").unwrap().contains("r=2"), "{:?}", response.headers());
    assert_eq!(world.refusals(), 1, "of the shadow quota");
    assert!(world.check(2).is_admitted());
    world.limiter.plans().set_default(Quota::new(2, MINUTE).unwrap());
    let response = send(&layer, "application/grpc").await;
    assert_eq!((response.status(), header(&response, "grpc-status").as_deref()), (StatusCode::OK, Some("8")));
    assert_eq!(world.passed().as_secs(), 10, "the reset is too late");
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_end_of_an_open_call() {
    let world = World::new(Quota::concurrent(1).unwrap());
    let layer = world.layer(9).tracking_bodies();
    let first = send(&layer, "").await;
    let second = async { (send(&layer, "").await.status(), world.passed()) };
    let end = async {
        sleep(SECOND).await;
        drop(first.into_body());
    };
    let ((status, at), ()) = tokio::join!(second, end);
    assert!(status == StatusCode::OK && at >= SECOND && at <= Duration::from_millis(1_101), "{at:?}");
    assert_eq!((world.remaining(), world.refusals()), (1, 0), "its body has ended");
    // an estimate
    let world = World::new(ten_seconds(10));
    let layer = world.layer(9).tracking_bodies().metered(10, 10);
    let first = send(&layer, "").await;
    let second = async { (send(&layer, "").await.status(), world.passed().as_secs()) };
    let (answer, ()) = tokio::join!(second, async { drop(first.into_body()) });
    assert_eq!(answer, (StatusCode::OK, 10));
}

struct Slow;

impl PlanSource for Slow {
    type Error = Infallible;

    async fn plan(&self, _: &LimitKey) -> Result<Option<Plan>, Infallible> {
        yield_now().await;
        Ok(Some(ten_seconds(1).into()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_plan_and_then_for_units() {
    let clock = PausedClock { began: Instant::now(), reads: Arc::default() };
    let builder = Limiter::builder(Plans::new(Plan::denied())).plan_source(CachedPlans::new(Slow));
    let limiter = builder.clock(clock.clone()).build().unwrap();
    let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter).waiting(25 * SECOND, 9);
    let at = async || (send(&layer, "").await.status(), clock.began.elapsed().as_secs());
    let mut answers: [_; 3] = tokio::join!(at(), at(), at()).into();
    answers.sort();
    assert_eq!(answers, [0, 10, 20].map(|at| (StatusCode::OK, at)));
}

proptest! {
    /// Callers wait, give up, or do not wait. Afterwards, each admission counts once.
    #[test]
    fn with_waiting_calls_no_window_has_more_than_the_limit(
        callers in vec((0_u64..30_000, 1_u32..4, 0_u64..20_000, 0_u64..20_000), 1..60),
        limit in 3_u32..8,
    ) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (mut admitted, remaining, now) = runtime.block_on(async {
            let world = Arc::new(World::new(ten_seconds(limit)));
            let mut calls = JoinSet::new();
            for (begins, units, at_most, gives_up) in callers {
                let world = Arc::clone(&world);
                calls.spawn(async move {
                    sleep(Duration::from_millis(begins)).await;
                    let wait = world.wait(units, Duration::from_millis(at_most));
                    let waited = timeout(Duration::from_millis(gives_up), wait).await;
                    let is_admitted = waited.is_ok_and(|decision| decision.is_admitted());
                    is_admitted.then(|| (world.passed(), units))
                });
            }
            let admitted: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
            (admitted, world.remaining(), world.passed())
        });
        admitted.sort();
        for (begin, _) in &admitted {
            let window = admitted.iter().filter(|(at, _)| at >= begin && *at < *begin + 10 * SECOND);
            prop_assert!(window.map(|(_, units)| units).sum::<u32>() <= limit);
        }
        let since = |time| admitted.iter().filter(|(at, _)| *at + time > now).map(|(_, units)| units).sum::<u32>();
        prop_assert!(remaining + since(10 * SECOND) <= limit, "more is admitted than charged");
        // units come back at most a slice late
        prop_assert!(remaining + since(11 * SECOND) >= limit, "more is charged than admitted");
    }
}
