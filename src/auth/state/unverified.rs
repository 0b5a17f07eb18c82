//! [`UnverifiedWork`]: lookups and signature checks for requests before it is known whose budget they spend.

use std::{num::NonZeroU32, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    auth::http::problem::{Code, Problem},
    limit::{AnyLimiter, Spend},
    tenant::LimitKey,
};

/// Bounds unverified work: by address, or as a whole where addresses are unknown.
pub(crate) struct UnverifiedWork {
    per_address: AnyLimiter,
    at_once: Arc<Semaphore>,
}

/// The unverified work of one request: counted up front, and refunded if the request turns out to be good.
pub(crate) enum CountedWork {
    ByAddress(Spend),
    /// Free again when it is dropped.
    AtOnce {
        _permit: OwnedSemaphorePermit,
    },
}

impl UnverifiedWork {
    pub(crate) fn new(per_address: AnyLimiter, at_once: NonZeroU32) -> Self {
        Self { per_address, at_once: Arc::new(Semaphore::new(at_once.get() as usize)) }
    }

    /// Counts the work of one request.
    ///
    /// # Errors
    ///
    /// Returns a problem if too many requests of this address were bad, or if too many are under way.
    pub(crate) async fn count_work(&self, address: Option<&LimitKey>) -> Result<CountedWork, Problem> {
        let Some(address) = address else {
            let permit = Arc::clone(&self.at_once).try_acquire_owned();
            return permit.map(|permit| CountedWork::AtOnce { _permit: permit }).map_err(|_| Problem::unavailable());
        };
        let decision = self.per_address.check(address, 1).await;
        if !decision.is_admitted() {
            let problem = Problem::new(Code::RateLimitExceeded, "too many bad requests from this address");
            return Err(problem.retry_in(decision.retry_after()));
        }
        Ok(CountedWork::ByAddress(decision.into_spend()))
    }

    /// Uncounts the work of a good request.
    pub(crate) fn refund_work(&self, work: CountedWork) {
        if let CountedWork::ByAddress(spend) = work {
            self.per_address.refund_later(spend);
        }
    }
}
