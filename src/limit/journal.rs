//! What a limiter tells others: events, and counters behind the feature `metrics`.

use std::sync::Arc;

use super::decision::{Facts, RefusalReason};
use crate::{
    event::{Event, EventKind, EventLog, Mode},
    tenant::Tenant,
    util::clock::{Clock, Moment},
};

#[derive(Debug)]
pub(super) struct Journal {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) log: Option<EventLog>,
}

impl Journal {
    pub(super) fn admitted(&self, units: u32) {
        count!("tollgate_units_admitted_total", units);
    }

    pub(super) fn refused(&self, tenant: &Tenant, reason: RefusalReason, facts: Option<&Facts>, now: Moment) {
        count!("tollgate_requests_refused_total", 1_u32);
        let Some(log) = &self.log else { return };
        let kind = match reason {
            RefusalReason::Spent => EventKind::RateLimited,
            RefusalReason::Impossible => EventKind::QuotaImpossible,
            RefusalReason::Denied => EventKind::TenantDenied,
        };
        let event = Event::new(kind, self.clock.unix(now)).tenant(tenant.clone());
        log.tally(&with_facts(event, facts));
    }

    pub(super) fn would_refuse(&self, tenant: &Tenant, facts: Facts, now: Moment) {
        count!("tollgate_requests_shadow_refused_total", 1_u32);
        let Some(log) = &self.log else { return };
        let mut event = Event::new(EventKind::RateLimited, self.clock.unix(now)).tenant(tenant.clone());
        event.mode = Mode::Shadow;
        log.tally(&with_facts(event, Some(&facts)));
    }

    pub(super) fn reset(&self, tenant: &Tenant, now: Moment) {
        self.record(EventKind::TenantReset, now, Some(tenant));
    }

    pub(super) fn overflow_began(&self, now: Moment) {
        crate::util::trace::warning!("the limiter is full: new tenants share buckets");
        self.record(EventKind::OverflowBegan, now, None);
    }

    pub(super) fn overflow_ended(&self, now: Moment) {
        self.record(EventKind::OverflowEnded, now, None);
    }

    fn record(&self, kind: EventKind, now: Moment, tenant: Option<&Tenant>) {
        if let Some(log) = &self.log {
            let mut event = Event::new(kind, self.clock.unix(now));
            event.tenant = tenant.cloned();
            log.record(event);
        }
    }
}

fn with_facts(mut event: Event, facts: Option<&Facts>) -> Event {
    if let Some(facts) = facts {
        event.policy = Some(facts.policy);
        event.limit = facts.limit;
        event.remaining = facts.remaining;
        event.reset = facts.reset_unix();
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
