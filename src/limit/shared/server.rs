//! [`Server`]: the calls of the script on a shared server.

use std::sync::Arc;

use super::{
    breaker::Breaker,
    script::{self, Answer, SCRIPT},
};
use crate::{
    limit::{decision::Ask, limiter::Limiter, plan::Plan},
    redis::{Link, RedisFailure, Reply, unexpected},
    tenant::Tenant,
};

/// The shared server, and what is needed to call it.
pub(super) struct Server {
    /// Has the plans, the clock and the reports, and decides for [`Fallback::Local`](super::Fallback::Local).
    pub(super) local: Limiter,
    pub(super) link: Link,
    pub(super) prefix: String,
    /// The part of the keys that names the kind of budget.
    pub(super) space: &'static str,
    pub(super) breaker: Arc<Breaker>,
    /// Has the clock of the breaker, and reports its changes.
    pub(super) watcher: Limiter,
}

/// The space of the budgets of tenants.
pub(super) const TENANTS: &str = "limit";

impl Server {
    /// Runs the script. Returns `None` if the server does not answer.
    pub(super) async fn call(
        &self,
        operation: &str,
        tenant: &Tenant,
        plan: &Plan,
        ask: Ask,
        more: &[&[u8]],
    ) -> Option<Answer> {
        let reports = self.watcher.reports();
        if !self.breaker.allows(reports.clock.now()) {
            return None;
        }
        match self.call_at("", operation, tenant, plan, ask, more).await {
            Ok(answer) => {
                if self.breaker.succeeded() {
                    reports.fallback_ended(reports.clock.now());
                }
                answer
            }
            Err(failure) => {
                let now = reports.clock.now();
                if self.breaker.failed(now) {
                    reports.fallback_began(&failure.to_string(), now);
                }
                None
            }
        }
    }

    /// Runs the script at a time that is only given in tests. Returns `None` if there is nothing to refund.
    pub(super) async fn call_at(
        &self,
        time: &str,
        operation: &str,
        tenant: &Tenant,
        plan: &Plan,
        ask: Ask,
        more: &[&[u8]],
    ) -> Result<Option<Answer>, RedisFailure> {
        let (quotas, units) = (script::packed(plan), ask.units.to_string());
        let anonymous = if ask.is_anonymous { "1" } else { "0" };
        let usual = [operation.as_bytes(), time.as_bytes(), &quotas, units.as_bytes(), anonymous.as_bytes()];
        let arguments: Vec<&[u8]> = usual.iter().chain(more).copied().collect();
        // units that came back twice would be admitted twice
        let comes_back = matches!(operation, "refund" | "return");
        let (link, key) = (&self.link, self.key(tenant));
        let reply = match comes_back {
            true => link.run_once(&SCRIPT, &[&key], &arguments).await?,
            false => link.run(&SCRIPT, &[&key], &arguments).await?,
        };
        match reply {
            Reply::Nothing if comes_back => Ok(None),
            Reply::Nothing => Err(unexpected()),
            reply => Answer::read(reply, plan, self.local.reports().clock.read()).map(Some),
        }
    }

    /// Returns the key of a tenant, which is its hash tag. Braces in a name would end the tag early, but the rest of the key
    /// follows: no two tenants share a key.
    pub(super) fn key(&self, tenant: &Tenant) -> Vec<u8> {
        [self.prefix.as_bytes(), b":", self.space.as_bytes(), b":{", tenant.as_bytes(), b"}"].concat()
    }
}
