//! The cache in front of a [`PlanSource`](super::source::PlanSource).
//!
//! The plans that were found are stored in [`Plans`], like those that an operator sets. The cache only knows until when
//! each answer may be used. Invariants:
//!
//! - A row whose epoch is that of the plans has a fresh plan, so a decision on it does not look into the cache. The epoch
//!   rises at least once per [`TICK`], and the first request of a tenant in an epoch checks the age of its answer.
//! - A lookup runs under no lock.

use std::time::Duration;

use super::{
    source::{AnyPlanSource, CachedPlans, LookedUp, PlanFailure, PlanUnavailable},
    table::Plans,
};
use crate::{
    tenant::LimitKey,
    util::{
        clock::{Clock, Moment},
        lookup::{Answer, CachedLookup, Found, KeyState, Lookup, Pace},
    },
};

/// How long a row is used without a look at the age of its plan.
const TICK: Duration = Duration::from_secs(1);

pub(in crate::limit) struct PlanCache {
    source: Box<dyn AnyPlanSource>,
    on_failure: PlanFailure,
    /// Found plans are in [`Plans`].
    cached: CachedLookup<LimitKey, ()>,
    tick: Pace,
}

impl PlanCache {
    pub(in crate::limit) fn new(settings: CachedPlans) -> Self {
        let CachedPlans { source, lookup, on_failure } = settings;
        Self { source, on_failure, cached: CachedLookup::new(lookup), tick: Pace::default() }
    }

    /// Lets the first request of each tenant check the age of its plan, if it is time.
    #[inline]
    pub(in crate::limit) fn tick(&self, plans: &Plans, now: Moment) {
        if self.tick.is_due(now, TICK.min(self.cached.settings.time_to_live)) {
            plans.begin_epoch();
        }
    }

    fn state(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> KeyState<()> {
        // addresses are no customers, and what an operator sets counts
        if tenant.is_reserved() || plans.is_set(tenant) {
            return KeyState::Decided(Found::Known(()));
        }
        match self.cached.state(tenant, now) {
            KeyState::Decided(Found::Known(())) | KeyState::Due { was_known: true, .. } if !plans.is_found(tenant) => {
                // an operator has set another plan and removed it, and the found one with it
                KeyState::Due { was_known: true, meanwhile: None }
            }
            state => state,
        }
    }

    /// Returns whether a row may not use its plan from now on without a look at its age.
    pub(in crate::limit) fn is_stale(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> bool {
        match self.state(plans, tenant, now) {
            KeyState::Decided(found) => self.outcome(found).is_err(),
            KeyState::Due { .. } => true,
        }
    }

    /// Returns whether a request must wait for the plan, if it `can_wait`, or is refused. A stale plan is used while it
    /// is looked up.
    pub(in crate::limit) fn must_wait(&self, plans: &Plans, tenant: &LimitKey, now: Moment, can_wait: bool) -> bool {
        let found = self.cached.without_waiting(tenant, self.state(plans, tenant, now));
        found.map_or(can_wait, |found| self.outcome(found).is_err())
    }

    /// Returns whether the plan should be looked up and no lookup is running. A lookup in the background does not wait for a place.
    pub(in crate::limit) fn is_due(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> bool {
        let KeyState::Due { was_known, .. } = self.state(plans, tenant, now) else { return false };
        (was_known || self.cached.has_place()) && !self.cached.running.contains(tenant)
    }

    /// Looks up the plan of a tenant, unless it is fresh. Calls `failed` with the reason if the lookup fails.
    pub(in crate::limit) async fn load(
        &self,
        plans: &Plans,
        tenant: &LimitKey,
        clock: &dyn Clock,
        failed: impl Fn(&str),
    ) -> Result<(), PlanUnavailable> {
        let failed = &failed;
        let look_up = |lookup: Lookup<LimitKey, Found<()>>| async move {
            let answer = self.cached.in_time(self.source.look_up(tenant)).await;
            let found = self.keep_plan(plans, tenant, clock.now(), answer).unwrap_or_else(|reason| {
                failed(&reason);
                self.keep_failure(plans, tenant, clock.now())
            });
            lookup.publish_result(found);
            found
        };
        let state = || self.state(plans, tenant, clock.now());
        self.outcome(self.cached.load(tenant, state, failed, look_up).await)
    }

    /// Keeps a plan, or returns why it failed.
    fn keep_plan(&self, plans: &Plans, tenant: &LimitKey, now: Moment, answer: LookedUp) -> Result<Found<()>, String> {
        // an old plan is used until there is another one
        let (renew_at, until) = (now + self.cached.settings.time_to_live, Moment::from_nanos(u64::MAX));
        let keep = |found| self.insert(plans, tenant, Answer { renew_at, until, found }, now);
        match answer? {
            Some(plan) if keep(Found::Known(())) => {
                plans.set_found(tenant, plan);
                Ok(Found::Known(()))
            }
            Some(_) => Err("there is no room for one more plan".into()),
            None => {
                plans.remove_found(tenant);
                keep(Found::Nothing);
                Ok(Found::Nothing)
            }
        }
    }

    fn keep_failure(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> Found<()> {
        if self.on_failure == PlanFailure::Default {
            plans.remove_found(tenant);
        }
        let keeps_plan = self.on_failure == PlanFailure::Keep && plans.is_found(tenant);
        let answer = self.cached.answer_after_failure(tenant, now, keeps_plan);
        self.insert(plans, tenant, answer, now);
        answer.found
    }

    fn outcome(&self, found: Found<()>) -> Result<(), PlanUnavailable> {
        match (found, self.on_failure) {
            (Found::Failure, PlanFailure::Refuse) => Err(PlanUnavailable),
            _ => Ok(()),
        }
    }

    /// Keeps an answer, if there is room. Returns whether there was.
    fn insert(&self, plans: &Plans, tenant: &LimitKey, answer: Answer<()>, now: Moment) -> bool {
        self.cached.answers.keep_answer(tenant, answer, now, |purge| plans.remove_all_found(purge))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
    };

    use tokio::task::yield_now;

    use crate::{
        LimitKey,
        limit::{CachedPlans, Limiter, Plan, PlanSource, Plans, quota::Quota},
    };

    /// A database that never answers, and counts its lookups.
    #[derive(Clone, Default)]
    struct Silent(Arc<AtomicUsize>);

    impl PlanSource for Silent {
        type Error = Infallible;

        async fn plan(&self, _tenant: &LimitKey) -> Result<Option<Plan>, Infallible> {
            self.0.fetch_add(1, SeqCst);
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn a13_lookups_in_the_background_are_bounded_and_do_not_queue() {
        let database = Silent::default();
        let plans = Plans::new(Quota::per_minute(9).unwrap());
        let source = CachedPlans::new(database.clone()).max_lookups(4);
        let limiter = Limiter::builder(plans).plan_source(source).build().unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        for number in (0..100).flat_map(|number| [number; 2]) {
            limiter.load_plan_later(&LimitKey::parse(format!("made-up-{number}")).unwrap());
            for _ in 0..10 {
                yield_now().await;
            }
        }
        assert_eq!((database.0.load(SeqCst), tasks() - before), (2, 2));
    }
}
