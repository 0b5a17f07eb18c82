//! Requests that wait for their tenant, its plan, a shared limiter, or units that come back.

use super::{
    decision::{Ask, Decision},
    gate::{RateLimitFuture, RateLimitGate, Unadmitted, no_plan},
    pass::RateLimitPass,
};
use crate::{
    http::head::Head,
    reject::Rejection,
    tenant::{RateLimit, TenantName},
};

impl RateLimitGate {
    /// Looks up the plan of the tenant or asks the shared limiter, and charges the request then. It may wait for units, too.
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
        let begin = |decision: &Decision| self.waiting.as_ref()?.begin(decision);
        let decided = self.limiter.decide_or_wait(&name.to_known_key(), ask, begin).await;
        let (mut decision, mut extension) = (decided.map_err(|_| no_plan())?, None);
        let pass = self.pass_or_reject(name, self.limiter.local.key(name), ask, &mut decision, &mut extension);
        let mut pass = pass.map_err(Unadmitted::into_rejection)?;
        pass.keep(extension);
        Ok(pass)
    }
}
