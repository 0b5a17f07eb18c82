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
    source::{CachedPlans, LookedUp, PlanFailure, PlanUnavailable},
    table::Plans,
};
use crate::{
    tenant::LimitKey,
    util::{
        clock::{Clock, Moment},
        lookup::{Answer, Answers, Found, Pace, Running, Turn, in_time},
    },
};

/// How long a row is used without a look at the age of its plan.
const TICK: Duration = Duration::from_secs(1);

type Outcome = Result<(), PlanUnavailable>;

pub(in crate::limit) struct PlanCache {
    settings: CachedPlans,
    /// Found plans are in [`Plans`].
    answers: Answers<LimitKey, ()>,
    running: Running<LimitKey, Outcome>,
    tick: Pace,
}

/// The state of a tenant's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::limit) enum PlanState {
    Fresh,
    /// It is older than its time to live, and still in use.
    Stale,
    Unknown,
    Refused,
}

impl PlanCache {
    pub(in crate::limit) fn new(settings: CachedPlans) -> Self {
        let answers = Answers::new(settings.max_tenants);
        Self { settings, answers, running: Running::new(), tick: Pace::default() }
    }

    /// Lets the first request of each tenant check the age of its plan, if it is time.
    #[inline]
    pub(in crate::limit) fn tick(&self, plans: &Plans, now: Moment) {
        if self.tick.is_due(now, TICK.min(self.settings.time_to_live)) {
            plans.begin_epoch();
        }
    }

    pub(in crate::limit) fn state(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> PlanState {
        // addresses are no customers, and what an operator sets counts
        if tenant.is_reserved() || plans.is_set(tenant) {
            return PlanState::Fresh;
        }
        match self.answers.last_answer(tenant) {
            // an operator has set another plan and removed it, and the found one with it
            Some(Answer { found: Found::Known(()), .. }) if !plans.is_found(tenant) => PlanState::Unknown,
            Some(Answer { until, found }) if now < until => match found {
                Found::Failure if self.settings.on_failure == PlanFailure::Refuse => PlanState::Refused,
                _ => PlanState::Fresh,
            },
            Some(Answer { found: Found::Known(()), .. }) => PlanState::Stale,
            _ => PlanState::Unknown,
        }
    }

    /// Returns whether a request must wait for the plan, or is refused. A stale plan is used while it is looked up.
    pub(in crate::limit) fn must_wait(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> bool {
        match self.state(plans, tenant, now) {
            PlanState::Fresh => false,
            PlanState::Stale => !self.running.contains(tenant),
            PlanState::Unknown | PlanState::Refused => true,
        }
    }

    /// Returns whether the plan should be looked up and no lookup is running.
    pub(in crate::limit) fn is_due(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> bool {
        matches!(self.state(plans, tenant, now), PlanState::Stale | PlanState::Unknown)
            && !self.running.contains(tenant)
    }

    /// Looks up the plan of a tenant, unless it is fresh. Calls `failed` with the reason if the lookup fails.
    pub(in crate::limit) async fn load(
        &self,
        plans: &Plans,
        tenant: &LimitKey,
        clock: &dyn Clock,
        failed: impl Fn(&str),
    ) -> Outcome {
        loop {
            let state = self.state(plans, tenant, clock.now());
            match state {
                PlanState::Fresh => return Ok(()),
                PlanState::Refused => return Err(PlanUnavailable),
                PlanState::Stale | PlanState::Unknown => {}
            }
            match self.running.join_lookup(tenant, self.settings.max_lookups) {
                Turn::Full => {
                    failed("too many lookups are running");
                    return if state == PlanState::Stale { Ok(()) } else { self.unknown() };
                }
                Turn::Leads(lookup) => {
                    let answer = in_time(self.settings.deadline, self.settings.source.look_up(tenant)).await;
                    let answer = answer.unwrap_or_else(|| Err("no answer in time".into()));
                    let outcome = self.keep_plan(plans, tenant, clock.now(), answer, failed);
                    lookup.publish_result(outcome);
                    return outcome;
                }
                Turn::Follows(_) if state == PlanState::Stale => return Ok(()),
                Turn::Follows(other) => {
                    if let Some(outcome) = other.result().await {
                        return outcome;
                    }
                }
            }
        }
    }

    fn keep_plan(
        &self,
        plans: &Plans,
        tenant: &LimitKey,
        now: Moment,
        answer: LookedUp,
        failed: impl Fn(&str),
    ) -> Outcome {
        let until = now + self.settings.time_to_live;
        let reason = match answer {
            Ok(Some(plan)) if self.insert(plans, tenant, Answer { until, found: Found::Known(()) }, now) => {
                plans.set_found(tenant, plan);
                return Ok(());
            }
            Ok(Some(_)) => String::from("there is no room for one more plan"),
            Ok(None) => {
                plans.remove_found(tenant);
                self.insert(plans, tenant, Answer { until, found: Found::Nothing }, now);
                return Ok(());
            }
            Err(reason) => reason,
        };
        failed(&reason);
        let until = now + self.settings.retry_after;
        let found = match self.settings.on_failure {
            PlanFailure::Keep if plans.is_found(tenant) => Found::Known(()),
            PlanFailure::Keep | PlanFailure::Refuse => Found::Failure,
            PlanFailure::Default => {
                plans.remove_found(tenant);
                Found::Failure
            }
        };
        self.insert(plans, tenant, Answer { until, found }, now);
        self.unknown()
    }

    /// Returns the answer for a tenant that can't be looked up now.
    fn unknown(&self) -> Outcome {
        match self.settings.on_failure {
            PlanFailure::Refuse => Err(PlanUnavailable),
            PlanFailure::Keep | PlanFailure::Default => Ok(()),
        }
    }

    /// Keeps an answer, if there is room. Returns whether there was.
    fn insert(&self, plans: &Plans, tenant: &LimitKey, answer: Answer<()>, now: Moment) -> bool {
        self.answers.keep_answer(tenant, answer, now, |purge| plans.remove_all_found(purge))
    }
}
