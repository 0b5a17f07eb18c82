//! [`SignedIn`]: the session of a browser, as far as a new login or a code can rest on it.

use super::{evidence::Evidence, grant::amr, visit::Visit, wishes::Wishes};
use crate::{
    client::Client,
    login::{Carried, Login},
    policy::{LoginPlan, Method, MethodSet},
    session::Session,
    store::StoreError,
    util::clock::UnixTime,
};

/// A session that lives, and what it rests on, with an account that is as it was.
pub(super) struct SignedIn {
    pub(super) session: Session,
    pub(super) evidence: Evidence,
}

impl SignedIn {
    /// That of the browser, where it has one of this client's tenant, and the request does not ask for a login anew.
    pub(super) async fn find(visit: &Visit<'_>, client: &Client, wishes: &Wishes) -> Result<Option<Self>, StoreError> {
        if wishes.fresh {
            return Ok(None);
        }
        let running = visit.inner.running();
        let headers = &visit.parts.headers;
        let Some(session) = running.sessions.presented(headers, Some(client.tenant())).await? else { return Ok(None) };
        let Some(evidence) = running.evidences.find(&session).await? else { return Ok(None) };
        Ok(evidence.still_stands(visit).await?.then_some(Self { session, evidence }))
    }

    /// The level of the session, if all that it was reached by still counts.
    pub(super) fn acr(&self) -> Option<&str> {
        self.session.acr().filter(|_| self.session.amr().eq(amr(self.evidence.methods())))
    }

    /// Whether a login that was begun with steps of a session was begun with those of this one, and all still count.
    pub(super) fn bears(&self, login: &Login) -> bool {
        let counts = |proof: &(Method, u64)| self.evidence.proved.contains(proof);
        login.session == Some(self.session.handle()) && login.proved.iter().take(login.carried).all(counts)
    }

    /// Whether a code can rest on it alone.
    pub(super) fn meets(&self, plan: &LoginPlan, wishes: &Wishes, client: &Client, now: UnixTime) -> bool {
        let proved = self.evidence.within(wishes.max_age, now).into_iter().map(|(method, _)| method).collect();
        client.has_single_sign_on() && plan.is_met_by(proved)
    }

    /// The steps of a new login that are done by it. Where clients don't share sessions it is only the client of the
    /// session, and something must be left to do: else it would be a single sign-on.
    pub(super) fn carried(&self, plan: &LoginPlan, wishes: &Wishes, client: &Client, now: UnixTime) -> Option<Carried> {
        let mut proved = self.evidence.within(wishes.max_age, now);
        let methods = plan.closest(proved.iter().map(|(method, _)| *method).collect::<MethodSet>());
        let is_step_up = self.evidence.client_id == client.id() && !plan.is_met_by(methods);
        if methods.is_empty() || !(client.has_single_sign_on() || is_step_up) {
            return None;
        }
        proved.retain(|(method, _)| methods.contains(*method));
        Some(Carried {
            session: self.session.handle(),
            user: self.evidence.user.clone(),
            proved,
            marks: self.evidence.marks.clone(),
        })
    }
}
