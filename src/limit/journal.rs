//! What a limiter tells others: events, and counters behind the feature `metrics`.

use std::sync::Arc;

use super::{
    decision::{RateLimit, Refusal, RefusalReason},
    row::Standing,
};
use crate::{
    clock::{Clock, Moment},
    event::{Event, EventKind, EventLog, Mode},
    tenant::Tenant,
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

    pub(super) fn refused(&self, tenant: &Tenant, refusal: &Refusal, now: Moment) {
        count!("tollgate_requests_refused_total", 1_u32);
        let Some(log) = &self.log else { return };
        let kind = match refusal.reason {
            RefusalReason::Spent => EventKind::RateLimited,
            RefusalReason::Impossible => EventKind::QuotaImpossible,
            RefusalReason::Denied => EventKind::TenantDenied,
        };
        let mut event = Event::new(kind, self.clock.unix(now)).tenant(tenant.clone());
        if let Some(rate_limit) = &refusal.rate_limit {
            event.policy = Some(rate_limit.policy());
            event.limit = rate_limit.limit();
            event.remaining = rate_limit.remaining();
            event.reset = rate_limit.reset_unix();
        }
        log.tally(&event);
    }

    pub(super) fn would_refuse(&self, tenant: &Tenant, standing: Standing, now: Moment) {
        count!("tollgate_requests_shadow_refused_total", 1_u32);
        let Some(log) = &self.log else { return };
        let unix_now = self.clock.unix(now);
        let would_be = RateLimit::new(standing, now, unix_now);
        let mut event = Event::new(EventKind::RateLimited, unix_now).tenant(tenant.clone());
        event.mode = Mode::Shadow;
        event.policy = Some(would_be.policy());
        event.limit = would_be.limit();
        event.remaining = would_be.remaining();
        event.reset = would_be.reset_unix();
        log.tally(&event);
    }

    pub(super) fn reset(&self, tenant: &Tenant, now: Moment) {
        self.record(EventKind::TenantReset, now, Some(tenant));
    }

    pub(super) fn overflow_began(&self, now: Moment) {
        crate::trace::warning!("the limiter is full: new tenants share buckets");
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
