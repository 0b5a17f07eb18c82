//! The signed-in session of a browser, as far as a login or a code can build on it.

use std::time::Duration;

use super::credentials::strength::Strength;
use crate::{
    auth::{
        authorize::oidc::OidcParameters,
        context::RequestContext,
        state::accounts::{CurrentProofs, shown_name},
    },
    client::Client,
    login::{BoundUser, CarriedProofs, Login},
    policy::{LoginPlan, Method, MethodSet},
    session::{Authentication, Proof, Session},
    store::StoreError,
    tenant::Tenant,
    user::Account,
    util::clock::UnixTime,
};

/// A live session whose account may sign in. All of its proofs count.
pub(crate) struct SignedIn {
    pub(crate) session: Session,
    pub(crate) account: Account,
    /// What vouches for each proof. One that was added to the session since counts for nothing here.
    strengths: Vec<(Proof, Strength)>,
}

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
        let found = Self::at(cx, client.tenant()).await?;
        Ok(found.filter(|it| !it.proofs().is_empty()))
    }

    /// Finds the browser's session at this tenant, even if the application created it. Proofs that stopped counting are
    /// removed from it.
    pub(crate) async fn at(cx: &RequestContext<'_>, tenant: &Tenant) -> Result<Option<Self>, StoreError> {
        let sessions = &cx.core.sessions;
        let Some(session) = sessions.presented(&cx.parts.headers, tenant).await? else { return Ok(None) };
        let keyed = cx.core.keyed().await?;
        let current = cx.core.accounts.current(&session.authentication(), keyed).await?;
        let Some(current) = current else { return Ok(None) };
        let session = cx.core.keep_proofs(&session, &current).await?;
        let CurrentProofs { account, proofs, strengths } = current;
        let strengths = proofs.into_iter().zip(strengths).collect();
        Ok(session.map(|session| Self { session, account, strengths }))
    }

    fn proofs(&self) -> &[Proof] {
        self.session.proofs()
    }

    /// Returns the proofs, and what vouches for each.
    pub(crate) fn strengths(&self) -> impl Iterator<Item = (&Proof, &Strength)> {
        self.proofs().iter().map(|proof| (proof, self.strength(proof)))
    }

    fn strength(&self, proof: &Proof) -> &Strength {
        let known = self.strengths.iter().find(|(known, _)| known == proof);
        known.map_or(Strength::NONE, |(_, strength)| strength)
    }

    /// Returns the proofs that are not older than this, and that count in a login of this plan.
    fn proofs_within(&self, age: Option<Duration>, plan: &LoginPlan, now: UnixTime) -> Vec<Proof> {
        let is_young = |proof: &&Proof| age.is_none_or(|age| proof.authenticated_at() + age >= now);
        self.proofs().iter().filter(is_young).filter(|proof| self.strength(proof).counts_for(plan)).cloned().collect()
    }

    /// Returns whether a login continues this session, and the proofs that it took over still count.
    pub(crate) fn bears(&self, login: &Login) -> bool {
        login.session == Some(self.session.sid())
            && login.carried_proofs().iter().all(|proof| self.proofs().contains(proof))
    }

    /// Returns whether young enough proofs of the session complete the plan.
    pub(crate) fn meets(&self, plan: &LoginPlan, oidc: &OidcParameters, now: UnixTime) -> bool {
        plan.is_met_by(methods(&self.proofs_within(oidc.max_age, plan, now)))
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
        let useful = plan.closest(methods(&proofs));
        let is_step_up = self.session.client() == Some(client.id()) && !plan.is_met_by(useful);
        let is_bound = client.is_first_party() && oidc.needs_proofs();
        if !is_bound && (useful.is_empty() || !(client.has_single_sign_on() || is_step_up)) {
            return None;
        }
        proofs.retain(|proof| Method::from_name(&proof.method).is_some_and(|method| useful.contains(method)));
        let user = BoundUser { id: self.session.user().clone(), generation: self.session.generation() };
        Some(CarriedProofs { session: self.session.sid(), user, proofs })
    }

    /// Returns a name of the user for our own pages.
    pub(crate) fn display_name(&self) -> String {
        shown_name(&self.account).to_owned()
    }
}

fn methods(proofs: &[Proof]) -> MethodSet {
    proofs.iter().filter_map(|proof| Method::from_name(&proof.method)).collect()
}
