//! The budgets that the page of an event service shows.

use super::any_limiter::AnyLimiter;
use crate::event::EventServiceBuilder;

impl EventServiceBuilder {
    /// Shows at `/usage` and on the page what tenants have left in this limiter, and how many requests it admits.
    ///
    /// The limiter counts admitted requests under a lock that it takes anyway. A request counts if it spends units of a
    /// limit, and a refund does not change the count. A `SharedLimiter` shows what this process has admitted, and what
    /// its server has left as far as this process knows.
    pub fn limiter(self, limiter: impl Into<AnyLimiter>) -> Self {
        self.budgets(limiter.into().local)
    }
}
