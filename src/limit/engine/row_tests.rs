//! Which row or bucket a request uses, and what is left of it: plans that change, a full limiter, and refunds.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use super::{Engine, Undecided, meter::Context, spend::SpendRequest};
use crate::{
    limit::{
        decision::{Ask, Decision},
        plan::Plan,
        plans::table::Plans,
        quota::Quota,
    },
    tenant::LimitKey,
    util::clock::{Moment, UnixTime},
};

const MINUTE: u64 = 60_000_000_000;

struct World {
    engine: Engine,
    now: Cell<u64>,
}

impl World {
    fn new(plans: Plans, max_tenants: usize) -> Self {
        Self { engine: Engine::new(plans, max_tenants, usize::MAX), now: Cell::new(60 * MINUTE) }
    }

    fn context(&self) -> Context<'_> {
        let (now, unix_now) = (Moment::from_nanos(self.now.get()), UnixTime::from_nanos(self.now.get()));
        Context { now, unix_now, swept_at: 0, bytes: &self.engine.bytes }
    }

    fn ask(&self, name: &str, ask: Ask) -> Result<Decision, Undecided> {
        let mut decision = Decision::UNLIMITED;
        let key = tenant(name);
        self.engine.spend(
            SpendRequest { key: self.engine.key(&key), context: self.context(), ask, began: &Cell::new(false) },
            &mut decision,
        )?;
        Ok(decision)
    }

    /// Decides on units that can be refunded.
    fn decide(&self, name: &str, units: u32) -> Decision {
        self.ask(name, Ask { refundable: true, ..Ask::new(units, false) }).unwrap()
    }

    fn spend(&self, name: &str, units: u32) {
        assert!(self.decide(name, units).is_admitted());
    }

    fn remaining(&self, name: &str) -> Option<u32> {
        self.engine.peek(&tenant(name), self.context()).map(|standing| standing.remaining())
    }

    fn sweep_all(&self) {
        for _ in 0..super::SHARDS {
            self.engine.sweep(self.context());
            self.now.set(self.now.get() + MINUTE / 2_000);
        }
    }

    fn buckets(&self) -> usize {
        self.engine.overflow.len()
    }
}

fn tenant(name: &str) -> LimitKey {
    LimitKey::parse(name).unwrap()
}

fn hourly(limit: u32) -> Quota {
    Quota::per_hour(limit).unwrap()
}

#[test]
fn a_plan_that_a_function_changes_applies_to_the_next_look() {
    let limit = Arc::new(AtomicU32::new(9));
    let shown = Arc::clone(&limit);
    let world = World::new(Plans::by(hourly(1), move |_| Some(hourly(shown.load(SeqCst)).into())), 10);
    world.spend("acme", 1);
    assert_eq!(world.remaining("acme"), Some(8));
    limit.store(5, SeqCst);
    assert_eq!(world.remaining("acme"), Some(4));
}

#[test]
fn a_tenant_that_gets_room_counts_the_default_bucket_even_if_it_has_a_plan_by_now() {
    let limit = Arc::new(AtomicU32::new(0));
    let chosen = Arc::clone(&limit);
    let plan_of =
        move |_: &LimitKey| Some(chosen.load(SeqCst)).filter(|limit| *limit > 0).map(|limit| hourly(limit).into());
    let world = World::new(Plans::by(hourly(9), plan_of), 1);
    world.spend("alice", 1);
    world.now.set(90 * MINUTE);
    world.spend("bob", 3);
    assert_eq!(world.buckets(), 1);
    limit.store(9, SeqCst);
    assert_eq!(world.remaining("bob"), Some(9), "the bucket of the plan is empty");
    world.now.set(121 * MINUTE);
    world.sweep_all();
    assert_eq!((world.engine.tenants(), world.remaining("bob")), (1, Some(6)), "there is room for a row");
    assert_eq!(world.decide("bob", 1).standing.unwrap().remaining(), 5);
}

#[test]
fn a_tenant_takes_other_room_when_it_is_named_and_when_it_is_not_any_more() {
    let plans = Plans::new(hourly(9));
    let world = World::new(plans.clone(), 1);
    plans.set(tenant("acme"), hourly(5));
    world.spend("acme", 1);
    plans.remove(&tenant("acme"));
    assert_eq!(world.remaining("acme"), Some(8));
    world.spend("bob", 1);
    assert_eq!(world.buckets(), 1, "the room was for one");

    let plans = Plans::new(hourly(9));
    let world = World::new(plans.clone(), 2);
    world.spend("acme", 1);
    plans.set(tenant("acme"), hourly(5));
    assert_eq!(world.remaining("acme"), Some(4));
    world.spend("bob", 1);
    assert_eq!(world.buckets(), 0, "the room of a named tenant counts once");
}

#[test]
fn a_refund_reaches_the_bucket_that_paid() {
    let world = World::new(Plans::new(hourly(9)), 0);
    let charge = world.decide("bob", 3).spend.0.unwrap();
    assert_eq!((world.buckets(), world.remaining("bob")), (1, Some(6)));
    let after = world.engine.refund(&charge, world.context()).unwrap();
    assert_eq!((after.remaining(), world.remaining("bob")), (9, Some(9)));
}

#[test]
fn only_an_admitted_spend_that_counts_can_be_refunded() {
    for max_tenants in [0, 1] {
        let plans = Plans::new(hourly(9));
        let world = World::new(plans.clone(), max_tenants);
        assert!(world.decide("acme", 1).spend.0.is_some());
        assert!(world.ask("acme", Ask::new(1, false)).unwrap().spend.0.is_none());
        assert!(world.decide("acme", 0).spend.0.is_none());
        let refused = world.decide("acme", 9);
        assert!(!refused.is_admitted() && refused.spend.0.is_none());
        plans.set_default(Plan::unlimited());
        assert!(world.decide("acme", 1).spend.0.is_none());
    }
}

#[test]
fn a_repeated_refusal_is_that_of_the_quota_that_refused() {
    let plan = Plan::new([Quota::per_minute(90).unwrap().with_name("burst").unwrap(), hourly(3)]).unwrap();
    let world = World::new(Plans::new(plan), 1);
    world.spend("acme", 3);
    let [first, second] = [0, 1].map(|_| world.decide("acme", 1));
    assert_eq!(first.standing.unwrap().policy(), "default");
    assert_eq!(second.standing, first.standing);
}

#[test]
fn a_long_name_counts_with_its_bytes() {
    let bytes_of = |name: &str| {
        let world = World::new(Plans::new(hourly(9)), 1);
        world.spend(name, 1);
        world.engine.bytes.used()
    };
    assert_eq!(bytes_of(&"a".repeat(100)), bytes_of("a") + tenant(&"a".repeat(100)).heap_bytes());
}

#[test]
fn a_row_that_was_made_without_the_plan_of_its_tenant_lets_the_next_request_look_it_up() {
    use crate::limit::plans::{
        cache::PlanCache,
        source::{CachedPlans, PlanSource},
    };

    struct Unused;

    impl PlanSource for Unused {
        type Error = &'static str;

        async fn plan(&self, _: &LimitKey) -> Result<Option<Plan>, Self::Error> {
            Err("not called")
        }
    }

    let mut world = World::new(Plans::new(hourly(9)), 1);
    world.engine.plan_cache = Some(PlanCache::new(CachedPlans::new(Unused)));
    assert!(world.ask("acme", Ask::new(1, false)).unwrap().is_admitted());
    let can_wait = Ask { can_wait: true, ..Ask::new(1, false) };
    assert!(matches!(world.ask("acme", can_wait), Err(Undecided::NeedsPlan)));
}
