//! The budgets that the page of an event service shows.

use super::any_limiter::AnyLimiter;
use crate::event::EventServiceBuilder;

impl EventServiceBuilder {
    /// Shows what this limiter has left for tenants, and how many requests it admits, at `/usage` and on the page.
    ///
    /// The limiter counts admitted requests under a lock that it takes anyway. A request counts if it spends units of a
    /// limit, and a refund does not change the count. A `SharedLimiter` shows what this process has admitted, and what
    /// its server has left as far as this process knows.
    pub fn limiter(self, limiter: impl Into<AnyLimiter>) -> Self {
        self.budgets(limiter.into().local)
    }
}
