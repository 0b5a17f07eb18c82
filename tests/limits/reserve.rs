//! Reserved budgets. The oracle is two limiters without a reserve: one that all requests spend from, and one that only
//! anonymous requests spend from, with what the reserve leaves.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use proptest::{collection::vec, prelude::*, sample::Index};
use tollgate::{
    ApiKeys, Limiter, Plan, Plans, Quota, RateLimitLayer, Tenant, TenantSource,
    clock::Clock,
    limit::{Decision, RefusalReason, Spend, Standing},
    testing::ManualClock,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::{
    engine::{nanos, tenant},
    schedule::cases,
};

const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
struct Reserved {
    limit: u32,
    /// Less than the limit.
    reserved: u32,
    seconds: u64,
    is_fixed: bool,
    is_shadow: bool,
}

impl Reserved {
    fn quota(&self, place: usize, limit: u32) -> Quota {
        let window = Duration::from_secs(self.seconds);
        let quota = if self.is_fixed { Quota::fixed(limit, window) } else { Quota::new(limit, window) };
        let quota = quota.unwrap().with_name(&format!("q{place}")).unwrap();
        if self.is_shadow { quota.shadow() } else { quota }
    }
}

fn plan(quotas: &[Reserved], quota: impl Fn(usize, &Reserved) -> Quota) -> Plan {
    Plan::new(quotas.iter().enumerate().map(|(place, it)| quota(place, it))).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Spend {
        is_anonymous: bool,
        units: u32,
        times: usize,
    },
    Pass(u64),
    /// Passes to the reset that the last refusal named, or a nanosecond before it.
    ToReset {
        is_early: bool,
    },
    Refund(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let spend = (any::<bool>(), prop_oneof![4 => Just(1_u32), 2 => 2..5_u32, 1 => 0..12_u32], 1..4_usize)
        .prop_map(|(is_anonymous, units, times)| Step::Spend { is_anonymous, units, times });
    let step = prop_oneof![
        6 => spend,
        1 => (0..3 * SECOND).prop_map(Step::Pass),
        1 => (0..30 * SECOND).prop_map(Step::Pass),
        2 => any::<bool>().prop_map(|is_early| Step::ToReset { is_early }),
        1 => any::<Index>().prop_map(Step::Refund),
    ];
    vec(step, 1..60)
}

fn quotas() -> impl Strategy<Value = Vec<Reserved>> {
    let quota = (
        1..12_u32,
        0..12_u32,
        prop_oneof![Just(1_u64), Just(10), Just(60)],
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(limit, reserved, seconds, is_fixed, is_shadow)| Reserved {
            limit,
            reserved: reserved % limit,
            seconds,
            is_fixed,
            // the oracle does not know which shadow quota with a reserve would refuse whom
            is_shadow: is_shadow && reserved % limit == 0,
        });
    vec(quota, 1..=3)
}

/// The limiter under test, and the two that know what it must answer.
struct Trio {
    clock: ManualClock,
    tested: Limiter,
    all: Limiter,
    anonymous: Limiter,
    tenant: Tenant,
    /// Admitted units, with their time, and whether they are anonymous.
    admitted: Vec<(u64, u32, bool)>,
    spends: Vec<(Spend, Spend, Option<Spend>, usize)>,
    last_reset: Option<(u64, bool, u32)>,
    shares_a_bucket: bool,
}

impl Trio {
    fn new(quotas: &[Reserved], shares_a_bucket: bool) -> Self {
        let clock = ManualClock::new();
        let build = |plan: Plan, most| {
            Limiter::builder(Plans::new(plan)).clock(clock.clone()).max_tenants(most).build().unwrap()
        };
        let most = if shares_a_bucket { 1 } else { 100 };
        let fraction = |it: &Reserved| f64::from(it.reserved) / f64::from(it.limit);
        let tested = build(plan(quotas, |place, it| it.quota(place, it.limit).reserve(fraction(it)).unwrap()), most);
        for (quota, it) in tested.plans().plan(&tenant("acme")).quotas().zip(quotas) {
            assert_eq!(quota.reserved(), it.reserved);
        }
        // it takes the only row
        _ = tested.check(&tenant("first"), 0);
        Self {
            tested,
            all: build(plan(quotas, |place, it| it.quota(place, it.limit)), 100),
            anonymous: build(plan(quotas, |place, it| it.quota(place, it.limit - it.reserved)), 100),
            clock,
            tenant: tenant("acme"),
            admitted: Vec::new(),
            spends: Vec::new(),
            last_reset: None,
            shares_a_bucket,
        }
    }

    fn step(&mut self, step: &Step, quotas: &[Reserved]) {
        match step {
            Step::Spend { is_anonymous, units, times } => {
                for _ in 0..*times {
                    self.spend(*is_anonymous, *units, quotas);
                }
            }
            Step::Pass(gap) => self.clock.advance(nanos(*gap)),
            Step::ToReset { is_early } => {
                let Some((reset, is_anonymous, units)) = self.last_reset.take() else { return };
                let now = self.clock.now().as_nanos();
                self.clock.advance(nanos(reset.saturating_sub(now).saturating_sub(u64::from(*is_early))));
                if self.clock.now().as_nanos() + u64::from(*is_early) == reset {
                    let admitted = self.spend(is_anonymous, units, quotas);
                    assert_eq!(admitted, !is_early, "a retry is admitted at the reset, and not before");
                }
            }
            // a refund to the bucket does not reach the row that a tenant gets when there is room again
            Step::Refund(which) if !self.spends.is_empty() && !self.shares_a_bucket => {
                let (tested, all, anonymous, place) = self.spends.swap_remove(which.index(self.spends.len()));
                self.tested.refund(tested);
                self.all.refund(all);
                anonymous.map(|spend| self.anonymous.refund(spend));
                self.admitted[place].1 = 0;
                self.last_reset = None;
            }
            Step::Refund(_) => {}
        }
    }

    fn check(&self, is_anonymous: bool, units: u32) -> Decision {
        match is_anonymous {
            true => self.tested.check_anonymous(&self.tenant, units),
            false => self.tested.check(&self.tenant, units),
        }
    }

    /// One request, which must be answered as the two other limiters say. Returns whether it was admitted.
    fn spend(&mut self, is_anonymous: bool, units: u32, quotas: &[Reserved]) -> bool {
        let now = self.clock.now().as_nanos();
        let room = |limiter: &Limiter| limiter.peek(&self.tenant).map_or(u32::MAX, |standing| standing.remaining());
        let fits = room(&self.all) >= units && (!is_anonymous || room(&self.anonymous) >= units);
        let before = self.tested.peek(&self.tenant).map(|standing| standing.remaining());
        let decision = self.check(is_anonymous, units);
        assert_eq!(decision.is_admitted(), fits, "{is_anonymous} {units} {quotas:?}");
        if !fits {
            assert_eq!(
                before,
                self.tested.peek(&self.tenant).map(|standing| standing.remaining()),
                "it spends nothing"
            );
            let told = decision.standing().unwrap();
            if decision.refusal_reason() == Some(RefusalReason::Spent) {
                self.last_reset = Some((told.reset().as_nanos(), is_anonymous, units));
            }
            return false;
        }
        self.last_reset = None;
        // a shadow that would have refused has not been charged: the others know what it says
        let all = self.all.check(&self.tenant, units);
        let anonymous = is_anonymous.then(|| self.anonymous.check(&self.tenant, units));
        if let (Some(told), Some(whole)) = (decision.standing(), all.standing()) {
            let left = |standing: &Standing| standing.remaining();
            let least = anonymous.as_ref().and_then(Decision::standing).map_or(u32::MAX, left).min(left(whole));
            assert_eq!(told.remaining(), least);
            assert!(quotas.iter().any(|it| it.limit == told.limit()), "the limit is that of a whole quota");
        }
        self.admitted.push((now, units, is_anonymous));
        for it in quotas.iter().filter(|it| !it.is_fixed && !it.is_shadow) {
            let counts = |at: u64| now - at < it.seconds * SECOND;
            let sum = |only_anonymous: bool| -> u32 {
                let ours =
                    self.admitted.iter().filter(|(at, _, anonymous)| counts(*at) && (*anonymous || !only_anonymous));
                ours.map(|(_, units, _)| units).sum()
            };
            assert!(sum(false) <= it.limit && sum(true) <= it.limit - it.reserved, "{it:?}");
        }
        let anonymous = anonymous.map(Decision::into_spend);
        self.spends.push((decision.into_spend(), all.into_spend(), anonymous, self.admitted.len() - 1));
        true
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a04_anonymous_requests_never_spend_the_reserve_and_others_all(
        quotas in quotas(),
        steps in steps(),
        shares_a_bucket in prop::bool::weighted(0.3),
    ) {
        let mut trio = Trio::new(&quotas, shares_a_bucket);
        for step in &steps {
            trio.step(step, &quotas);
        }
    }
}

fn limiter(plan: impl Into<Plan>) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder(Plans::new(plan)).clock(clock.clone()).build().unwrap(), clock)
}

fn ten(reserve: f64) -> Quota {
    Quota::per_minute(10).unwrap().reserve(reserve).unwrap()
}

/// Spends one unit at a time, until refused.
fn spent(check: impl Fn() -> Decision) -> usize {
    (0..100).take_while(|_| check().is_admitted()).count()
}

#[test]
fn a04_a_refusal_of_anonymous_requests_is_never_repeated_to_others() {
    let (limiter, clock) = limiter(ten(0.5));
    let acme = tenant("acme");
    for _ in 0..3 {
        assert_eq!(spent(|| limiter.check_anonymous(&acme, 1)), 5);
        // the refusal is remembered now
        assert!((0..3).all(|_| !limiter.check_anonymous(&acme, 1).is_admitted()));
        assert_eq!(spent(|| limiter.check(&acme, 1)), 5);
        assert!((0..3).all(|_| !limiter.check(&acme, 1).is_admitted()));
        assert!((0..3).all(|_| !limiter.check_anonymous(&acme, 1).is_admitted()));
        clock.advance(Duration::from_secs(60));
    }
    // the other way around, anonymous requests find nothing left
    assert_eq!(spent(|| limiter.check(&acme, 1)), 10);
    assert_eq!(spent(|| limiter.check_anonymous(&acme, 1)), 0);
}

#[test]
fn a04_a_change_of_the_reserve_forgives_nothing() {
    let (limiter, clock) = limiter(ten(0.0));
    let acme = tenant("acme");
    assert_eq!((0..4).filter(|_| limiter.check(&acme, 1).is_admitted()).count(), 4);
    // these four were not counted apart, so they count for both
    limiter.plans().set_default(ten(0.5));
    assert_eq!(spent(|| limiter.check_anonymous(&acme, 1)), 1);
    // five count as anonymous
    limiter.plans().set_default(ten(0.3));
    assert_eq!(spent(|| limiter.check_anonymous(&acme, 1)), 2);
    limiter.plans().set_default(ten(0.8));
    assert_eq!(spent(|| limiter.check_anonymous(&acme, 1)), 0);
    assert_eq!(spent(|| limiter.check(&acme, 1)), 3);
    clock.advance(Duration::from_secs(60));
    assert_eq!(spent(|| limiter.check_anonymous(&acme, 1)), 2);
}

#[test]
fn a04_everything_can_be_reserved() {
    let (limiter, _clock) = limiter(ten(1.0));
    let refused = limiter.check_anonymous(&tenant("acme"), 1);
    assert_eq!(refused.refusal_reason(), Some(RefusalReason::Impossible));
    assert_eq!(spent(|| limiter.check(&tenant("acme"), 1)), 10);
}

#[test]
fn a04_a_shadow_with_a_reserve_shows_what_it_would_refuse() {
    let (limiter, _clock) = limiter(ten(0.5).shadow());
    let acme = tenant("acme");
    let would_refuse = |decision: Decision| decision.would_refuse().is_some();
    assert_eq!((0..7).filter(|_| would_refuse(limiter.check_anonymous(&acme, 1))).count(), 2);
    // what it would have refused is not charged
    assert_eq!((0..7).filter(|_| would_refuse(limiter.check(&acme, 1))).count(), 2);
}

#[cfg(feature = "smooth")]
#[test]
fn a04_a_steady_stream_of_anonymous_requests_leaves_the_reserve_of_a_smooth_quota() {
    let quota = Quota::smooth(60, Duration::from_secs(60), 10).unwrap().reserve(0.5).unwrap();
    let (limiter, clock) = limiter(quota);
    let acme = tenant("acme");
    let (mut anonymous, mut others) = (0, 0);
    for _ in 0..600 {
        clock.advance(Duration::from_millis(500));
        anonymous += u32::from(limiter.check_anonymous(&acme, 1).is_admitted());
        others += u32::from(limiter.check(&acme, 1).is_admitted());
    }
    // in five minutes: half of 300, and half of the burst
    assert!((150..=155).contains(&anonymous), "{anonymous}");
    assert!((anonymous + others) <= 310, "{others}");
    assert!(others >= 145, "{others}");
}

/// A stranger names the tenant in a header, as in a public client id. The tenant's own callers have a key.
#[tokio::test]
async fn a04_the_layer_knows_anonymous_requests_by_their_tenant_source() {
    let keys = ApiKeys::new("x-api-key").unwrap().key("a-key-of-acme", "acme").unwrap();
    let source = keys.or(tollgate::tenant::HeaderTenant::new("x-tenant").unwrap()).or(tenant("acme"));
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(source, limiter(ten(0.5)).0))
        .service(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new()))));
    let ask = async |name: &str, value: &str| {
        let request = Request::get("/").header(name, value).body(String::new()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        (response.status(), header("x-ratelimit-limit"), header("x-ratelimit-remaining"))
    };
    let answer = |status, remaining: u32| (status, String::from("10"), remaining.to_string());
    for (remaining, name) in [(4, "x-tenant"), (3, "x-tenant"), (2, "x-other"), (1, "x-other"), (0, "x-tenant")] {
        assert_eq!(ask(name, "acme").await, answer(StatusCode::OK, remaining));
    }
    for name in ["x-tenant", "x-other"] {
        assert_eq!(ask(name, "acme").await, answer(StatusCode::TOO_MANY_REQUESTS, 0));
    }
    for remaining in (0..5).rev() {
        assert_eq!(ask("x-api-key", "a-key-of-acme").await, answer(StatusCode::OK, remaining));
    }
    assert_eq!(ask("x-api-key", "a-key-of-acme").await.0, StatusCode::TOO_MANY_REQUESTS);
}
