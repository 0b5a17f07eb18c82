//! [`Limiter`]: the budget of all tenants, shared by as many layers as you like.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    decision::{Charge, Decision, Facts, Outcome, RateLimit, RefusalReason, Spend},
    journal::Journal,
    key::hash,
    memory::Memory,
    meter::Context,
    quotas::Quotas,
    row::{NEVER, NO_MARKS, Standing, Verdict},
};
use crate::{
    event::EventLog,
    tenant::Tenant,
    util::{
        clock::{Clock, Moment, SystemClock},
        error::ConfigError,
    },
};

/// Decides who may spend what. A clone is the same budget.
///
/// It keeps its promise for as long as the process lives: the engine in memory
/// forgets with it.
///
/// ```
/// use tollgate::{Limiter, Quota, Quotas, Tenant};
///
/// let limiter = Limiter::memory(Quotas::new(Quota::per_minute(2)?));
/// let acme = Tenant::parse("acme")?;
/// assert!(limiter.check(&acme, 1).is_admitted());
/// assert!(limiter.check(&acme, 1).is_admitted());
/// assert!(!limiter.check(&acme, 1).is_admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    id: u64,
    unix_at_zero: u64,
    memory: Memory,
    journal: Journal,
}

const DEFAULT_MAX_TENANTS: usize = 1_000_000;
const DEFAULT_MAX_BYTES: usize = 512 << 20;

impl Limiter {
    /// A limiter that keeps its state in memory.
    pub fn memory(quotas: Quotas) -> Self {
        Self::assemble(Memory::new(quotas, DEFAULT_MAX_TENANTS, DEFAULT_MAX_BYTES), Arc::new(SystemClock::new()), None)
    }

    fn assemble(memory: Memory, clock: Arc<dyn Clock>, log: Option<EventLog>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let now = clock.now();
        let unix_at_zero = clock.unix(now).as_nanos().saturating_sub(now.as_nanos());
        let journal = Journal { clock, log };
        Self(Arc::new(Inner { id: NEXT_ID.fetch_add(1, Relaxed), unix_at_zero, memory, journal }))
    }

    /// Takes the time from this clock.
    pub fn clock(self, clock: impl Clock) -> Result<Self, ConfigError> {
        let Inner { memory, journal, .. } = self.alone("clock")?;
        Ok(Self::assemble(memory, Arc::new(clock), journal.log))
    }

    /// Records refusals and changes of state in this log.
    pub fn events(self, log: EventLog) -> Result<Self, ConfigError> {
        let Inner { memory, journal, .. } = self.alone("events")?;
        Ok(Self::assemble(memory, journal.clock, Some(log)))
    }

    /// The most tenants that have a budget of their own, 1,000,000 otherwise.
    ///
    /// Beyond it, tenants that [`Quotas`] names still get one; others share 4096
    /// buckets. When there is room again a tenant leaves its bucket, and takes
    /// along what is spent there.
    pub fn max_tenants(self, most: usize) -> Result<Self, ConfigError> {
        if most == 0 {
            return Err(ConfigError::new("limiter max_tenants", most, "must be at least 1"));
        }
        let Inner { memory, journal, .. } = self.alone("max_tenants")?;
        Ok(Self::assemble(memory.with_bounds(Some(most), None), journal.clock, journal.log))
    }

    /// The most memory for all tenants together, 512 MiB otherwise.
    ///
    /// Beyond it, new tenants share buckets as under
    /// [`max_tenants`](Self::max_tenants), and the logs of busy tenants get
    /// coarser: units may come back late, never early.
    pub fn max_bytes(self, most: usize) -> Result<Self, ConfigError> {
        if most == 0 {
            return Err(ConfigError::new("limiter max_bytes", most, "must be at least 1"));
        }
        let Inner { memory, journal, .. } = self.alone("max_bytes")?;
        Ok(Self::assemble(memory.with_bounds(None, Some(most)), journal.clock, journal.log))
    }

    /// Takes it apart, if nobody shares it yet.
    fn alone(self, setting: &'static str) -> Result<Inner, ConfigError> {
        let inner = Arc::try_unwrap(self.0)
            .map_err(|_| ConfigError::new("limiter", setting, "must be set before the limiter is cloned"))?;
        if inner.memory.tenants() > 0 {
            return Err(ConfigError::new("limiter", setting, "must be set before the limiter is used"));
        }
        Ok(inner)
    }

    /// Decides whether the tenant may spend so many units now, and charges them if so.
    ///
    /// Units are spent all or nothing. Zero units are admitted, unless the tenant is denied.
    pub fn check(&self, tenant: &Tenant, units: u32) -> Decision {
        self.decide(tenant, units, true).into()
    }

    /// As [`check`](Self::check); a spend that nobody will refund is not kept.
    pub(super) fn decide(&self, tenant: &Tenant, units: u32, keep_spend: bool) -> Outcome {
        let Inner { memory, journal, .. } = &*self.0;
        let context = self.context();
        memory.sweep(context, journal);
        let (mut marks, mut charge) = (NO_MARKS, None);
        let verdict = memory.spend(tenant, context, journal, |charged, row| {
            let past = row.past();
            let verdict = row.decide(context, units, &mut marks)?;
            if keep_spend && units > 0 && matches!(verdict, Verdict::Admitted { .. }) {
                let (limiter, tenant) = (self.0.id, charged.clone());
                charge = Some(Box::new(Charge { limiter, tenant, past, units, marks }));
            }
            Some(verdict)
        });
        match verdict {
            Verdict::Admitted { tightest, shadow } => {
                journal.admitted(units);
                let would_refuse = shadow.map(|standing| {
                    journal.would_refuse(tenant, self.facts(*standing, context.now), context.now);
                    standing.policy
                });
                let facts = tightest.map(|tightest| self.facts(tightest, context.now));
                Outcome::Admitted { facts, would_refuse, charge }
            }
            Verdict::Unlimited => Outcome::Admitted { facts: None, would_refuse: None, charge: None },
            Verdict::Refused(standing) => {
                let reason = match standing.reset {
                    NEVER => RefusalReason::Impossible,
                    _ => RefusalReason::Spent,
                };
                let facts = self.facts(standing, context.now);
                journal.refused(tenant, reason, Some(&facts), context.now);
                Outcome::Refused { reason, facts: Some(facts) }
            }
            Verdict::Denied => {
                journal.refused(tenant, RefusalReason::Denied, None, context.now);
                Outcome::Refused { reason: RefusalReason::Denied, facts: None }
            }
        }
    }

    /// How the tenant stands, without spending; `None` where no enforced quota applies.
    pub fn peek(&self, tenant: &Tenant) -> Option<RateLimit> {
        let context = self.context();
        self.told(&self.0.memory.look(tenant, context, |row| row.peek(context)), context.now).map(RateLimit::from)
    }

    /// Takes back what was spent, as far as it still counts, and says how the tenant stands then.
    ///
    /// Only what this spend still holds is taken back: nothing once its window
    /// has passed, nothing of another limiter's, and nothing if the tenant was [`reset`](Self::reset) or its plan has changed since.
    pub fn refund(&self, spend: Spend) -> Option<RateLimit> {
        self.take_back(spend).map(RateLimit::from)
    }

    pub(super) fn take_back(&self, spend: Spend) -> Option<Facts> {
        let Charge { limiter, tenant, past, units, marks } = *spend.0?;
        if limiter != self.0.id {
            return None;
        }
        let context = self.context();
        let verdict = self.0.memory.on_own_row(&tenant, context, |row| {
            row.refund(context, past, &marks, units);
            row.peek(context)
        })?;
        self.told(&verdict, context.now)
    }

    /// Voids what the tenant has spent: an operator's act, which is logged. What
    /// it spent in a shared bucket stays.
    pub fn reset(&self, tenant: &Tenant) {
        let context = self.context();
        self.0.memory.on_own_row(tenant, context, |row| row.void(context));
        self.0.journal.reset(tenant, context.now);
    }

    /// The plans of the tenants, to be changed live.
    pub fn quotas(&self) -> &Quotas {
        &self.0.memory.quotas
    }

    /// How many tenants have something remembered of them, buckets included.
    pub fn tenants(&self) -> usize {
        self.0.memory.tenants()
    }

    /// How many bytes are taken for them, by our own count.
    pub fn bytes(&self) -> usize {
        self.0.memory.budget.used()
    }

    /// A number that stands for this tenant in this limiter.
    pub(super) fn mark(&self, tenant: &Tenant) -> u64 {
        hash(tenant) ^ self.0.id.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn context(&self) -> Context<'_> {
        Context { now: self.0.journal.clock.now(), unix_at_zero: self.0.unix_at_zero, budget: &self.0.memory.budget }
    }

    fn told(&self, verdict: &Verdict, now: Moment) -> Option<Facts> {
        match verdict {
            Verdict::Admitted { tightest, .. } => tightest.map(|tightest| self.facts(tightest, now)),
            Verdict::Refused(_) | Verdict::Unlimited | Verdict::Denied => None,
        }
    }

    fn facts(&self, standing: Standing, now: Moment) -> Facts {
        Facts::new(standing, now, self.0.journal.clock.unix(now))
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("quotas", self.quotas())
            .field("tenants", &self.tenants())
            .finish_non_exhaustive()
    }
}
