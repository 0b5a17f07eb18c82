//! The reports of a limiter: events, and counters with the feature `metrics`.

use std::sync::Arc;
use std::time::Duration;

use super::decision::{Ask, Decision, RefusalReason};
use crate::util::lookup::Pace;
use crate::{
    event::{Event, EventKind, EventLog, Mode, event_kinds},
    tenant::{LimitKey, Standing},
    util::clock::{Clock, Moment},
};

event_kinds! {
    /// a request was rejected because its quota is used up, or would have been rejected (see [`Mode`]).
    RateLimited = "rate_limited",
    /// a request was rejected because it costs more than the quota allows.
    QuotaImpossible = "quota_impossible",
    /// a request of a denied tenant was rejected.
    TenantDenied = "tenant_denied",
    /// a request was rejected because it has no API key or names no usable tenant. The reason is `missing`, `invalid`, or
    /// `internal` for a mistake of the server.
    TenantMissing = "tenant_missing",
    /// an operator reset the usage of a tenant.
    TenantReset = "tenant_reset",
    /// the limiter is full. New tenants share buckets from now on.
    OverflowBegan = "overflow_began",
    /// the limiter has room again. New tenants get their own budget.
    OverflowEnded = "overflow_ended",
    /// a request was rejected because its plan has a quota of concurrent calls, and nothing tracks when the request
    /// ends.
    CallUntracked = "call_untracked",
    /// the tenant of a credential could not be looked up.
    TenantLookupFailed = "tenant_lookup_fail",
    /// the plan of a tenant could not be looked up.
    PlanLookupFailed = "plan_lookup_fail",
    /// the server of a shared limiter does not answer. Its fallback decides from now on. The reason is `no_answer`,
    /// `no_connection`, `loading`, `read_only`, `out_of_memory`, `access_denied`, or `error` for any other reason.
    LimiterFallbackBegan = "limiter_fallback_began",
    /// the server of a shared limiter answers again.
    LimiterFallbackEnded = "limiter_fallback_ended",
}

#[derive(Debug)]
pub(super) struct Report {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) log: Option<EventLog>,
    plan_warnings: Pace,
}

impl Report {
    pub(super) fn new(clock: Arc<dyn Clock>, log: Option<EventLog>) -> Self {
        Self { clock, log, plan_warnings: Pace::default() }
    }

    /// Reports a decision, but no refusal of a request that can wait.
    #[inline]
    pub(super) fn decision(&self, decision: &Decision, ask: Ask, tenant: impl Fn() -> Option<LimitKey>, now: Moment) {
        match (decision.refused, &decision.shadow) {
            (Some(_), _) if ask.can_wait => {}
            (Some(reason), _) => self.report_refusal(tenant, reason, decision.standing.as_ref(), now),
            (None, shadow) => {
                count!("tollgate_units_admitted_total", ask.units);
                if let Some(standing) = shadow {
                    self.would_refuse(tenant, standing, now);
                }
            }
        }
    }

    fn report_refusal(
        &self,
        tenant: impl FnOnce() -> Option<LimitKey>,
        reason: RefusalReason,
        standing: Option<&Standing>,
        now: Moment,
    ) {
        count!("tollgate_requests_refused_total", 1_u32);
        let Some(log) = &self.log else { return };
        let kind = match reason {
            RefusalReason::Spent => EventKind::RateLimited,
            RefusalReason::Impossible => EventKind::QuotaImpossible,
            RefusalReason::Denied => EventKind::TenantDenied,
            RefusalReason::Untracked => EventKind::CallUntracked,
            // one event says that the fallback decides
            RefusalReason::Unavailable => return,
        };
        let mut event = Event::new(kind, self.clock.unix(now));
        event.tenant = tenant();
        log.tally(&with_standing(event, standing));
    }

    fn would_refuse(&self, tenant: impl FnOnce() -> Option<LimitKey>, standing: &Standing, now: Moment) {
        count!("tollgate_requests_shadow_refused_total", 1_u32);
        let Some(log) = &self.log else { return };
        let mut event = Event::new(EventKind::RateLimited, self.clock.unix(now));
        (event.tenant, event.mode) = (tenant(), Mode::Shadow);
        log.tally(&with_standing(event, Some(standing)));
    }

    pub(super) fn report_rejection(&self, kind: EventKind, reason: Option<&'static str>) {
        if let Some(log) = &self.log {
            log.tally(&Event { reason, ..Event::new(kind, self.clock.unix(self.clock.now())) });
        }
    }

    /// Counts a failed lookup of a plan. The reason is not for those who read events. At most one warning is logged each
    /// second, because callers can invent tenants.
    pub(super) fn plan_lookup_failed(&self, tenant: &LimitKey, reason: &str) {
        if self.plan_warnings.is_due(self.clock.now(), Duration::from_secs(1)) {
            crate::util::trace::warning!("the plan of {tenant} could not be looked up: {reason}");
        }
        if let Some(log) = &self.log {
            let event = Event::new(EventKind::PlanLookupFailed, self.clock.unix(self.clock.now()));
            log.tally(&event.tenant(tenant.clone()));
        }
    }

    pub(super) fn overflow_began(&self, now: Moment) {
        crate::util::trace::warning!("the limiter is full: new tenants share buckets");
        self.record_limit_event(EventKind::OverflowBegan, now, None);
    }

    pub(super) fn overflow_ended(&self, now: Moment) {
        self.record_limit_event(EventKind::OverflowEnded, now, None);
    }

    /// Counts a request that the fallback decides.
    #[cfg(feature = "redis")]
    pub(super) fn fell_back(&self) {
        count!("tollgate_limiter_fallback_total", 1_u32);
    }

    #[cfg(feature = "redis")]
    pub(super) fn fallback_began(&self, failure: &crate::redis::RedisFailure, now: Moment) {
        crate::util::trace::warning!("the shared limiter does not answer, its fallback decides: {failure}");
        count!("tollgate_limiter_fallback_changes_total", 1_u32);
        if let Some(log) = &self.log {
            log.record(Event::new(EventKind::LimiterFallbackBegan, self.clock.unix(now)).reason(failure.reason));
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn fallback_ended(&self, now: Moment) {
        crate::util::trace::warning!("the shared limiter answers again");
        count!("tollgate_limiter_fallback_changes_total", 1_u32);
        self.record_limit_event(EventKind::LimiterFallbackEnded, now, None);
    }

    pub(super) fn record_limit_event(&self, kind: EventKind, now: Moment, tenant: Option<&LimitKey>) {
        if let Some(log) = &self.log {
            let mut event = Event::new(kind, self.clock.unix(now));
            event.tenant = tenant.cloned();
            log.record(event);
        }
    }
}

fn with_standing(mut event: Event, standing: Option<&Standing>) -> Event {
    if let Some(standing) = standing {
        event.policy = Some(standing.policy());
        event.limit = standing.limit();
        event.remaining = standing.remaining();
        event.reset = standing.reset_unix();
    }
    event
}

#[cfg(feature = "metrics")]
macro_rules! count {
    ($name:literal, $by:expr) => {
        ::metrics::counter!($name).increment(u64::from($by))
    };
}

#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($name:literal, $by:expr) => {
        let _ = $by;
    };
}

use count;
