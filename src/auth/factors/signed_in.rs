//! The signed-in session of a browser, as far as a login or a code can build on it.

use std::time::Duration;

use super::credentials::credential::{CurrentProofs, Strength};
use crate::{
    auth::{context::RequestContext, core::Core, state::accounts::shown_name},
    login::Login,
    policy::LoginPlan,
    session::{Proof, Session},
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
    /// Finds the browser's session at this tenant, even if the application created it. Proofs that stopped counting are
    /// removed from it.
    pub(crate) async fn find_at_tenant(cx: &RequestContext<'_>, tenant: &Tenant) -> Result<Option<Self>, StoreError> {
        match cx.core.sessions.presented(&cx.parts.headers, tenant).await? {
            Some(session) => Self::of_session(cx.core, session).await,
            None => Ok(None),
        }
    }

    /// Reads the account of a live session. Proofs that stopped counting are removed from the session.
    pub(crate) async fn of_session(core: &Core, session: Session) -> Result<Option<Self>, StoreError> {
        let keyed = core.keyed().await?;
        let current = core.current_proofs(&session.authentication(), keyed).await?;
        let Some(current) = current else { return Ok(None) };
        let session = core.keep_proofs(&session, &current).await?;
        let CurrentProofs { account, proofs, strengths } = current;
        let strengths = proofs.into_iter().zip(strengths).collect();
        Ok(session.map(|session| Self { session, account, strengths }))
    }

    pub(crate) fn proofs(&self) -> &[Proof] {
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
    pub(crate) fn proofs_within(&self, age: Option<Duration>, plan: &LoginPlan, now: UnixTime) -> Vec<Proof> {
        let is_young = |proof: &&Proof| age.is_none_or(|age| proof.authenticated_at() + age >= now);
        self.proofs().iter().filter(is_young).filter(|proof| self.strength(proof).counts_for(plan)).cloned().collect()
    }

    /// Returns whether a login continues this session, and the proofs that it took over still count.
    pub(crate) fn bears(&self, login: &Login) -> bool {
        login.session == Some(self.session.sid())
            && login.carried_proofs().iter().all(|proof| self.proofs().contains(proof))
    }

    /// Returns a name of the user for our own pages.
    pub(crate) fn display_name(&self) -> String {
        shown_name(&self.account).to_owned()
    }
}
