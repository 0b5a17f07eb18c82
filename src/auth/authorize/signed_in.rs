//! [`SignedIn`]: the session of a browser, as far as a new login or a code can rest on it.

use crate::{
    auth::{
        authorize::wishes::Wishes,
        context::RequestContext,
        state::{evidence::Evidence, grant::amr},
    },
    client::Client,
    login::{BoundUser, CarriedProofs, Login},
    policy::{Method, MethodSet, Plan},
    session::{Proof, Session},
    store::StoreError,
    util::clock::UnixTime,
};

/// A session that lives, and what it rests on, with an account that is as it was.
pub(crate) struct SignedIn {
    pub(crate) session: Session,
    pub(crate) evidence: Evidence,
}

impl SignedIn {
    /// That of the browser, where it has one of this client's tenant, and the request does not ask for a login anew.
    pub(crate) async fn find(
        cx: &RequestContext<'_>,
        client: &Client,
        wishes: &Wishes,
    ) -> Result<Option<Self>, StoreError> {
        if wishes.fresh {
            return Ok(None);
        }
        let core = cx.core;
        let headers = &cx.parts.headers;
        let Some(session) = core.sessions.presented(headers, Some(client.tenant())).await? else { return Ok(None) };
        let Some(evidence) = core.evidences.find(&session).await? else { return Ok(None) };
        Ok(evidence.still_stands(cx).await?.then_some(Self { session, evidence }))
    }

    /// The level of the session, if all that it was reached by still counts.
    pub(crate) fn acr(&self) -> Option<&str> {
        self.session.acr().filter(|_| self.session.amr().eq(amr(self.evidence.methods())))
    }

    /// Whether a login that was begun with steps of a session was begun with those of this one, and all still count.
    pub(crate) fn bears(&self, login: &Login) -> bool {
        let counts = |proof: &Proof| self.evidence.proved.contains(proof);
        login.session == Some(self.session.handle()) && login.carried_proofs().iter().all(counts)
    }

    /// Whether a code can rest on it alone.
    pub(crate) fn meets(&self, plan: &Plan, wishes: &Wishes, client: &Client, now: UnixTime) -> bool {
        let proved = self
            .evidence
            .within(wishes.max_age, now)
            .iter()
            .filter_map(|proof| Method::from_name(&proof.method))
            .collect();
        client.has_single_sign_on() && plan.is_met_by(proved)
    }

    /// The steps of a new login that are done by it. Where clients don't share sessions it is only the client of the
    /// session, and something must be left to do: else it would be a single sign-on.
    pub(crate) fn carried(
        &self,
        plan: &Plan,
        wishes: &Wishes,
        client: &Client,
        now: UnixTime,
    ) -> Option<CarriedProofs> {
        let mut proved = self.evidence.within(wishes.max_age, now);
        let methods =
            plan.closest(proved.iter().filter_map(|proof| Method::from_name(&proof.method)).collect::<MethodSet>());
        let is_step_up = self.evidence.client_id == client.id() && !plan.is_met_by(methods);
        if methods.is_empty() || !(client.has_single_sign_on() || is_step_up) {
            return None;
        }
        proved.retain(|proof| Method::from_name(&proof.method).is_some_and(|it| methods.contains(it)));
        Some(CarriedProofs {
            session: self.session.handle(),
            user: BoundUser { id: self.evidence.user.clone(), generation: self.evidence.generation },
            proofs: proved,
        })
    }
}
