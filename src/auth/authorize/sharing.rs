//! How a request uses a signed-in session: single sign-on, and steps that a login takes over.

use crate::{
    auth::{authorize::oidc::OidcParameters, context::RequestContext, factors::signed_in::SignedIn},
    client::Client,
    login::{BoundUser, CarriedProofs},
    policy::{LoginPlan, Method, MethodSet},
    session::Authentication,
    store::StoreError,
    util::clock::UnixTime,
};

impl SignedIn {
    /// Finds the browser's session at the client's tenant, unless the request asks for a fresh login.
    ///
    /// Proofs that stopped counting are removed from the session: a changed password, a removed contact. If the rest does not
    /// meet the policy of the tenant, the session ends. Sessions that the application created itself have no proofs, so
    /// nothing builds on them.
    pub(crate) async fn find(
        cx: &RequestContext<'_>,
        client: &Client,
        oidc: &OidcParameters,
    ) -> Result<Option<Self>, StoreError> {
        if oidc.is_fresh {
            return Ok(None);
        }
        let found = Self::find_at_tenant(cx, client.tenant()).await?;
        Ok(found.filter(|it| !it.proofs().is_empty()))
    }

    /// Returns whether young enough proofs of the session complete the plan.
    pub(crate) fn meets(&self, plan: &LoginPlan, oidc: &OidcParameters, now: UnixTime) -> bool {
        plan.is_met_by(MethodSet::of_proofs(&self.proofs_within(oidc.max_age, plan, now)))
    }

    /// Returns the authentication for a code without a page, if the client takes part in single sign-on and the session
    /// meets the plan.
    pub(crate) fn silently(
        &self,
        plan: &LoginPlan,
        oidc: &OidcParameters,
        client: &Client,
        now: UnixTime,
    ) -> Option<Authentication> {
        let is_met = client.has_single_sign_on() && self.meets(plan, oidc, now);
        is_met.then(|| Authentication {
            proofs: self.proofs_within(oidc.max_age, plan, now),
            acr: plan.acr().map(Box::from),
            ..self.session.authentication()
        })
    }

    /// Returns the steps of a new login that this session has already proved.
    ///
    /// Without single sign-on, only the session's own client can build on it, and only to add a step. A sign-in to the site
    /// itself that needs more or younger proofs belongs to the signed-in user even if no proof of the session counts.
    pub(crate) fn carried(
        &self,
        plan: &LoginPlan,
        oidc: &OidcParameters,
        client: &Client,
        now: UnixTime,
    ) -> Option<CarriedProofs> {
        let mut proofs = self.proofs_within(oidc.max_age, plan, now);
        let useful = plan.closest(MethodSet::of_proofs(&proofs));
        let is_step_up = self.session.client() == Some(client.id()) && !plan.is_met_by(useful);
        let is_bound = client.is_first_party() && oidc.needs_proofs();
        if !is_bound && (useful.is_empty() || !(client.has_single_sign_on() || is_step_up)) {
            return None;
        }
        proofs.retain(|proof| Method::from_name(&proof.method).is_some_and(|method| useful.contains(method)));
        let user = BoundUser { id: self.session.user().clone(), generation: self.session.generation() };
        Some(CarriedProofs { session: self.session.sid(), user, proofs })
    }
}
