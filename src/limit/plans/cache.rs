//! The cache in front of a [`PlanSource`](super::source::PlanSource).
//!
//! The plans that were found are stored in [`Plans`], like those that an operator sets. The cache only knows until when
//! each answer may be used. Invariants:
//!
//! - A row whose epoch is that of the plans has a fresh plan, so a decision on it does not look into the cache. The epoch
//!   rises at least once per [`TICK`], and the first request of a tenant in an epoch checks the age of its answer.
//! - A lookup runs under no lock.

use std::{
    collections::HashMap,
    future::{Future, pending},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use dashmap::DashMap;
use tokio::{
    runtime::{Builder, Handle},
    sync::watch,
    time::timeout,
};

use super::{
    source::{CachedPlans, LookedUp, PlanFailure, PlanUnavailable},
    table::Plans,
};
use crate::{
    tenant::LimitKey,
    util::clock::{Clock, Moment},
};

/// How long a row is used without a look at the age of its plan.
const TICK: Duration = Duration::from_secs(1);

type Outcome = Result<(), PlanUnavailable>;

pub(in crate::limit) struct PlanCache {
    settings: CachedPlans,
    answers: DashMap<LimitKey, Answer, foldhash::fast::RandomState>,
    /// How many answers say that a tenant has no plan.
    without_plan: AtomicUsize,
    /// The lookups that are running. Each has a receiver for those who wait.
    running: Mutex<HashMap<LimitKey, watch::Receiver<Option<Outcome>>>>,
    tick_at: AtomicU64,
    purge_at: AtomicU64,
}

/// The last answer about a tenant.
#[derive(Clone, Copy)]
struct Answer {
    until: Moment,
    found: Found,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Plan,
    Nothing,
    Failure,
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
        Self {
            settings,
            answers: DashMap::default(),
            without_plan: AtomicUsize::new(0),
            running: Mutex::default(),
            tick_at: AtomicU64::new(0),
            purge_at: AtomicU64::new(0),
        }
    }

    /// Lets the first request of each tenant check the age of its plan, if it is time.
    #[inline]
    pub(in crate::limit) fn tick(&self, plans: &Plans, now: Moment) {
        let due = self.tick_at.load(Relaxed);
        if now.as_nanos() >= due {
            self.next_tick(plans, now, due);
        }
    }

    #[cold]
    fn next_tick(&self, plans: &Plans, now: Moment, due: u64) {
        let next = now + TICK.min(self.settings.time_to_live);
        if self.tick_at.compare_exchange(due, next.as_nanos(), Relaxed, Relaxed).is_ok() {
            plans.begin_epoch();
        }
    }

    pub(in crate::limit) fn state(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> PlanState {
        // addresses are no customers, and what an operator sets counts
        if tenant.is_reserved() || plans.is_set(tenant) {
            return PlanState::Fresh;
        }
        match self.answers.get(tenant).map(|answer| *answer) {
            // an operator has set another plan and removed it, and the found one with it
            Some(Answer { found: Found::Plan, .. }) if !plans.is_found(tenant) => PlanState::Unknown,
            Some(Answer { until, found }) if now < until => match found {
                Found::Failure if self.settings.on_failure == PlanFailure::Refuse => PlanState::Refused,
                _ => PlanState::Fresh,
            },
            Some(Answer { found: Found::Plan, .. }) => PlanState::Stale,
            _ => PlanState::Unknown,
        }
    }

    /// Returns whether a request must wait for the plan, or is refused. A stale plan is used while it is looked up.
    pub(in crate::limit) fn must_wait(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> bool {
        match self.state(plans, tenant, now) {
            PlanState::Fresh => false,
            PlanState::Stale => !self.running().contains_key(tenant),
            PlanState::Unknown | PlanState::Refused => true,
        }
    }

    /// Returns whether the plan should be looked up and no lookup is running.
    pub(in crate::limit) fn is_due(&self, plans: &Plans, tenant: &LimitKey, now: Moment) -> bool {
        matches!(self.state(plans, tenant, now), PlanState::Stale | PlanState::Unknown)
            && !self.running().contains_key(tenant)
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
            match self.join_lookup(tenant) {
                Turn::Full => {
                    failed("too many lookups are running");
                    return if state == PlanState::Stale { Ok(()) } else { self.unknown() };
                }
                Turn::Leads(lookup) => return self.look_up(plans, tenant, clock, lookup, failed).await,
                Turn::Follows(_) if state == PlanState::Stale => return Ok(()),
                Turn::Follows(mut result) => {
                    // an error means that the request that did the lookup was dropped
                    if let Ok(outcome) = result.wait_for(Option::is_some).await.map(|outcome| *outcome) {
                        return outcome.unwrap_or(Err(PlanUnavailable));
                    }
                }
            }
        }
    }

    async fn look_up(
        &self,
        plans: &Plans,
        tenant: &LimitKey,
        clock: &dyn Clock,
        lookup: Lookup<'_>,
        failed: impl Fn(&str),
    ) -> Outcome {
        let answer = in_time(self.settings.deadline, self.settings.source.look_up(tenant)).await;
        let outcome = self.keep_plan(plans, tenant, clock.now(), answer, failed);
        // those who wait may be gone
        _ = lookup.result.send(Some(outcome));
        outcome
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
            Ok(Some(plan)) if self.insert(plans, tenant, Answer { until, found: Found::Plan }, now) => {
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
            PlanFailure::Keep if plans.is_found(tenant) => Found::Plan,
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
    fn insert(&self, plans: &Plans, tenant: &LimitKey, answer: Answer, now: Moment) -> bool {
        // lookups that end at once may all find room: there are few
        if !self.answers.contains_key(tenant) && !self.has_room(answer.found) {
            self.purge(plans, now, answer.found);
            if !(self.has_room(answer.found) || answer.found == Found::Plan && self.forget_a_name()) {
                return false;
            }
        }
        let before = self.answers.insert(tenant.clone(), answer);
        let is_without = |answer: &Answer| usize::from(answer.found != Found::Plan);
        self.without_plan.fetch_add(is_without(&answer), Relaxed);
        self.without_plan.fetch_sub(before.as_ref().map_or(0, is_without), Relaxed);
        true
    }

    fn has_room(&self, found: Found) -> bool {
        let most = self.settings.max_tenants;
        self.answers.len() < most && (found == Found::Plan || self.without_plan.load(Relaxed) < most.div_ceil(2))
    }

    /// Forgets one tenant that has no plan, so that made-up names can't keep a new customer out.
    fn forget_a_name(&self) -> bool {
        if self.without_plan.load(Relaxed) == 0 {
            return false;
        }
        let is_name = |answer: &Answer| answer.found == Found::Nothing;
        let name = self.answers.iter().find(|answer| is_name(answer)).map(|answer| answer.key().clone());
        let is_gone = name.is_some_and(|name| self.answers.remove_if(&name, |_, answer| is_name(answer)).is_some());
        if is_gone {
            self.without_plan.fetch_sub(1, Relaxed);
        }
        is_gone
    }

    /// Removes answers that are not fresh any more, at most once per tick. Plans go only if another plan needs the room, so
    /// that made-up names can't drive out those that [`PlanFailure::Keep`] needs.
    fn purge(&self, plans: &Plans, now: Moment, wanted: Found) {
        let due = self.purge_at.load(Relaxed);
        let next = (now + TICK).as_nanos();
        if now.as_nanos() < due || self.purge_at.compare_exchange(due, next, Relaxed, Relaxed).is_err() {
            return;
        }
        let removes_plans = wanted == Found::Plan && self.answers.len() >= self.settings.max_tenants;
        plans.remove_all_found(|remove| {
            self.answers.retain(|tenant, answer| {
                if now < answer.until || (answer.found == Found::Plan && !removes_plans) {
                    return true;
                }
                if answer.found != Found::Plan {
                    self.without_plan.fetch_sub(1, Relaxed);
                }
                // while the answer is locked: a lookup that ends now puts its plan there afterwards; a failure may
                // follow a plan
                if answer.found != Found::Nothing {
                    remove(tenant);
                }
                false
            });
        });
    }

    /// Begins a lookup, or finds the one that is running.
    fn join_lookup(&self, tenant: &LimitKey) -> Turn<'_> {
        let mut running = self.running();
        if let Some(result) = running.get(tenant) {
            return Turn::Follows(result.clone());
        }
        if running.len() >= self.settings.max_lookups {
            return Turn::Full;
        }
        let (result, receiver) = watch::channel(None);
        running.insert(tenant.clone(), receiver);
        Turn::Leads(Lookup { cache: self, tenant: tenant.clone(), result })
    }

    fn running(&self) -> MutexGuard<'_, HashMap<LimitKey, watch::Receiver<Option<Outcome>>>> {
        // no code under the lock panics
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for an answer until the deadline.
async fn in_time(deadline: Duration, answer: impl Future<Output = LookedUp>) -> LookedUp {
    let Some(timers) = timers() else { return answer.await };
    let answer = {
        let _inside = timers.enter();
        timeout(deadline, answer)
    };
    answer.await.unwrap_or_else(|_| Err("no answer in time".into()))
}

/// Returns the runtime that has the timers of all lookups. A lookup may run in a runtime without timers, and tokio can't be
/// asked about it, or in no runtime at all.
fn timers() -> Option<&'static Handle> {
    static TIMERS: OnceLock<Option<Handle>> = OnceLock::new();
    let start = || {
        let runtime = Builder::new_current_thread().enable_time().build().ok()?;
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new().name("tollgate-deadlines".into());
        thread.spawn(move || runtime.block_on(pending::<()>())).ok().map(|_| handle)
    };
    TIMERS.get_or_init(start).as_ref()
}

enum Turn<'a> {
    Leads(Lookup<'a>),
    Follows(watch::Receiver<Option<Outcome>>),
    /// Too many lookups are running.
    Full,
}

/// A running lookup. It ends when this is dropped, which also happens if the request that waits for it is dropped.
struct Lookup<'a> {
    cache: &'a PlanCache,
    tenant: LimitKey,
    result: watch::Sender<Option<Outcome>>,
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        self.cache.running().remove(&self.tenant);
    }
}
