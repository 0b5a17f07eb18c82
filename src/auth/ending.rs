//! How an application or an operator ends sessions, and everything issued from them.

use crate::{
    auth::{service::AuthService, state::journal::EventSource},
    event::EventKind,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    util::handle::Handle,
};

impl AuthService {
    /// Ends a session by its id, with the refresh and access tokens issued from it. Returns whether it was live.
    ///
    /// Grants with the scope `offline_access` outlive it: the user allowed the client to act while signed out. To end
    /// those as well, call [`end_user`](Self::end_user) or have the client revoke its token.
    ///
    /// A session id is not a secret. If users name the session to end, check first that it is one of their own.
    pub async fn end_session(&self, sid: &Handle) -> Result<bool, StoreError> {
        self.0.sessions.revoke_sid(sid).await
    }

    /// Ends everything that a user has begun: sessions, logins in progress, authorization codes, refresh tokens and
    /// access tokens, at every client. Returns how many sessions there were.
    ///
    /// Call this when an account is closed or may be compromised. It takes effect at once on every node that
    /// shares the store, even if their clocks differ. The user can log in again at once; disable the account first if that
    /// must not happen. [Remote verifiers](crate::bearer) accept access tokens until they expire.
    pub async fn end_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        self.0.sessions.end_user(tenant, user).await
    }

    /// Deletes the credentials of a user, and ends everything that [`end_user`](Self::end_user) ends. Credentials are passkeys,
    /// authenticator apps, recovery codes, and linked accounts at other identity providers. Returns how many sessions there
    /// were.
    ///
    /// Ended logins and counts expire by themselves within a day. A generation number stays, without which old sessions
    /// could count again. The account itself is yours to delete.
    ///
    /// Disable or delete the account first, so that the user can't sign in and enrol something in between. A credential
    /// that a session or a login adds at the same time is removed again. If the call fails, repeat it: it continues where
    /// it stopped. The sessions are then ended already, so it returns 0.
    pub async fn forget_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        let ended = self.end_user(tenant, user).await?;
        self.0.credentials.forget(tenant, user).await?;
        let keyed = self.0.keyed().await?;
        self.0.journal.record(EventKind::UserForgotten, EventSource::of_user(tenant, user), None, keyed);
        Ok(ended)
    }

    /// Ends what rests on a password, a contact or a credential that the user no longer has.
    ///
    /// Sessions, codes and refresh tokens notice such a change by themselves when the account is read next: at
    /// `/authorize`, `/token` and `/userinfo`. Call this after changing an account in your own database to end sessions
    /// at once, so that no [`SessionLayer`](crate::SessionLayer) lets them through in between. Returns how many sessions
    /// ended.
    pub async fn credential_changed(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        self.0.end_outdated(tenant, user).await
    }
}
