//! Requests that wait: for their tenant, for its plan, or for a shared limiter.

use super::gate::no_plan;
use super::{
    decision::Ask,
    gate::{RateLimitFuture, RateLimitGate, Unadmitted},
    pass::RateLimitPass,
};
use crate::http::head::Head;
use crate::{
    reject::Rejection,
    tenant::{RateLimit, TenantName},
};

impl RateLimitGate {
    /// Looks up the plan of the tenant or asks the shared limiter, and charges the request then.
    #[inline(never)]
    pub(super) fn charge_later(&self, name: &TenantName<'_>, ask: Ask) -> RateLimitFuture {
        let (gate, name) = (self.clone(), name.to_known_name());
        RateLimitFuture::new(async move { gate.charge_waiting(&name, ask).await })
    }

    /// Looks up the tenant of a request, and charges it then.
    #[cold]
    pub(super) fn look_up_and_charge(&self, head: Head<'_>) -> RateLimitFuture {
        let (gate, found) = (self.clone(), self.source.look_up(head));
        let cost = self.cost_of(head);
        let outer = head.extensions().get::<RateLimit>().cloned();
        RateLimitFuture::new(async move {
            let name = found.await.map_err(|error| gate.unusable(&error))?;
            match gate.unpaid(&name, cost, outer.as_ref()) {
                Some(ask) => gate.charge_waiting(&name, ask).await,
                None => {
                    let mut pass = RateLimitPass::UNCHARGED;
                    pass.keep(outer.and_then(|outer| outer.proved_by(&name)));
                    Ok(pass)
                }
            }
        })
    }

    /// Charges a request whose tenant is known to be valid.
    async fn charge_waiting(&self, name: &TenantName<'_>, ask: Ask) -> Result<RateLimitPass, Rejection> {
        let mut extension = None;
        let pass = self.load_and_charge(name, ask, &mut extension).await;
        let mut pass = pass.map_err(Unadmitted::into_rejection)?;
        pass.keep(extension);
        Ok(pass)
    }

    async fn load_and_charge(
        &self,
        name: &TenantName<'_>,
        ask: Ask,
        extension: &mut Option<RateLimit>,
    ) -> Result<RateLimitPass, Unadmitted> {
        let key = name.to_known_key();
        self.limiter.local.load_plan(&key).await.map_err(|_| Unadmitted::Rejected(no_plan()))?;
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.limiter.shared {
            let mut decision = shared.check_in_plan(&key, ask).await;
            self.limiter.local.report(&decision, &key, ask.units);
            return self.pass_or_reject(name, self.limiter.local.key(name), ask, &mut decision, extension);
        }
        self.charge_in_memory(name, ask, extension)
    }
}
