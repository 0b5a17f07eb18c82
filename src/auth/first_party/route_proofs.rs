//! The check whether a session has the proofs that a route of the site requires.

use std::{
    error::Error,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::{
    auth::{authorize::oidc::OidcParameters, core::Core, factors::signed_in::SignedIn},
    session::{NeededProofs, ProofCheck, Session},
    store::BoxFuture,
};

/// Decides as `GET /sign-in` does with the same `steps` and `max_age`, so that a user who comes from there has enough.
pub(crate) struct RouteProofs(pub(crate) Arc<Core>);

impl ProofCheck for RouteProofs {
    fn note_steps(&self, steps: usize) {
        self.0.route_steps.fetch_max(steps, Relaxed);
    }

    fn suffices(
        &self,
        session: &Session,
        needed: NeededProofs,
    ) -> BoxFuture<'static, Result<bool, Box<dyn Error + Send + Sync>>> {
        let (core, session) = (Arc::clone(&self.0), session.clone());
        Box::pin(async move {
            let Some(signed_in) = SignedIn::of_session(&core, session).await? else { return Ok(false) };
            let tenant = signed_in.session.tenant();
            let least = (core.enabled(tenant), needed.steps.max(1));
            let plan = core.policies.longer_plan(tenant, None, None, least).ok();
            let oidc = OidcParameters::of_max_age(needed.max_age);
            Ok(plan.is_some_and(|plan| signed_in.meets(&plan, &oidc, core.logins.now())))
        })
    }
}
