//! The interface of an engine under test.

use std::time::Duration;

use tollgate::{
    Limiter, Plan, Plans, Tenant,
    clock::{Clock, Moment},
    limit::{Decision, LimiterBuilder, Spend, Standing},
    testing::ManualClock,
};

/// A limiter under test and its clock.
pub(crate) trait Engine {
    fn clock(&self) -> &ManualClock;
    fn check(&self, tenant: &Tenant, units: u32) -> Decision;
    fn peek(&self, tenant: &Tenant) -> Option<Standing>;
    fn refund(&self, spend: Spend);
    fn reset(&self, tenant: &Tenant);
    fn set_plan(&self, tenant: &Tenant, plan: Plan);
    fn remove_plan(&self, tenant: &Tenant);
    fn set_default_plan(&self, plan: Plan);
}

/// The guarantees of an engine in addition to the bound, which all engines guarantee.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    /// Requests are refused only if the units admitted in the last window and the slice before it leave no room.
    pub(crate) lower_bound: bool,
    /// A retry at `reset` is admitted, and a retry one nanosecond earlier is refused.
    pub(crate) exact_reset: bool,
}

impl Claims {
    pub(crate) const ALL: Self = Self { lower_bound: true, exact_reset: true };
    pub(crate) const BOUND_AND_RESET: Self = Self { lower_bound: false, exact_reset: true };
}

/// The engine in memory.
pub(crate) struct InMemory {
    pub(crate) limiter: Limiter,
    clock: ManualClock,
}

impl InMemory {
    pub(crate) fn new(clock: ManualClock, plan: impl Into<Plan>) -> Self {
        Self::of(Limiter::builder(Plans::new(plan)), clock)
    }

    pub(crate) fn of(builder: LimiterBuilder, clock: ManualClock) -> Self {
        Self { limiter: builder.clock(clock.clone()).build().unwrap(), clock }
    }

    /// Creates an engine without memory for logs of more than two entries. Its logs become coarser.
    pub(crate) fn without_memory(clock: ManualClock, plan: impl Into<Plan>) -> Self {
        Self::of(Limiter::builder(Plans::new(plan)).max_bytes(1), clock)
    }
}

impl Engine for InMemory {
    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn check(&self, tenant: &Tenant, units: u32) -> Decision {
        self.limiter.check(tenant, units)
    }

    fn peek(&self, tenant: &Tenant) -> Option<Standing> {
        self.limiter.peek(tenant)
    }

    fn refund(&self, spend: Spend) {
        self.limiter.refund(spend);
    }

    fn reset(&self, tenant: &Tenant) {
        self.limiter.reset(tenant);
    }

    fn set_plan(&self, tenant: &Tenant, plan: Plan) {
        self.limiter.plans().set(tenant.clone(), plan);
    }

    fn remove_plan(&self, tenant: &Tenant) {
        self.limiter.plans().remove(tenant);
    }

    fn set_default_plan(&self, plan: Plan) {
        self.limiter.plans().set_default(plan);
    }
}

pub(crate) fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

/// Advances the clock to a later moment.
pub(crate) fn advance_to(clock: &ManualClock, moment: Moment) {
    clock.advance(moment.since(clock.now()));
}

pub(crate) const fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}
