//! How an application or an operator ends sessions, and everything issued from them.

use std::sync::Arc;

use crate::{
    auth::{service::AuthService, state::consents::Consent},
    event::EventKind,
    policy::Method,
    session::{Session, UserId},
    store::StoreError,
    tenant::Tenant,
    util::public_id::PublicId,
};

impl AuthService {
    /// Ends a session by its id, with the refresh and access tokens issued from it. Returns whether it was live.
    ///
    /// Grants with the scope `offline_access` outlive it: the user allowed the client to act while they are signed out.
    /// To end those as well, call [`end_user`](Self::end_user) or have the client revoke its token.
    ///
    /// A session id is not a secret. If users choose the session to end, first check that it is theirs.
    pub async fn end_session(&self, sid: &PublicId) -> Result<bool, StoreError> {
        self.0.sessions.revoke_sid(sid).await
    }

    /// Ends everything that a user has begun: sessions, logins in progress, authorization codes, refresh tokens and
    /// access tokens, at every client. Returns how many sessions ended.
    ///
    /// The user's [consents](crate::auth#consent) stay: third-party clients get new tokens after a new login.
    /// [`forget_user`](Self::forget_user) deletes the consents.
    ///
    /// Call this when an account is closed or may be compromised. It takes effect at once on every node that
    /// shares the store, even if their clocks differ. The user can log in again at once; disable the account first if that
    /// must not happen. [Remote verifiers](crate::bearer) accept access tokens until they expire.
    pub async fn end_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        self.0.sessions.end_user(tenant, user).await
    }

    /// Returns the [consents](crate::auth#consent) of a user to third-party clients, newest first, as the account page lists
    /// them.
    pub async fn consents(&self, tenant: &Tenant, user: &UserId) -> Result<Vec<Consent>, StoreError> {
        self.0.shown_consents(tenant, user).await
    }

    /// Withdraws the consent of a user to a third-party client: deletes the decisions, and revokes the client's tokens for this
    /// user. Returns whether there was a decision.
    ///
    /// [Remote verifiers](crate::bearer) accept access tokens until they expire. If the call fails, repeat it.
    pub async fn withdraw_consent(&self, tenant: &Tenant, user: &UserId, client_id: &str) -> Result<bool, StoreError> {
        self.0.withdraw_consent(tenant, user, client_id).await
    }

    /// Ends all sessions, logins in progress, authorization codes, refresh tokens and access tokens, of all users and
    /// machine clients. Accounts and credentials stay, and so do the counts that limit attackers.
    ///
    /// Call this after the store was restored from a backup, or after a failover of Redis, if a session or a token that
    /// came back is worse than having everybody sign in again. It takes effect at once on every node that shares the
    /// store: a custom store that several processes share has to implement
    /// [`Store::begin_epoch`](crate::store::Store::begin_epoch).
    ///
    /// The clocks of nodes may differ by a second, so users who sign in within a second after the call may have to do
    /// so again. [Remote verifiers](crate::bearer) accept access tokens until they expire.
    pub async fn end_everything(&self) -> Result<(), StoreError> {
        self.0.store.end_everything(Arc::clone(&self.0.clock)).await?;
        self.0.journal.tally(EventKind::EverythingEnded, None, None);
        Ok(())
    }

    /// Deletes the credentials of a user, and ends everything that [`end_user`](Self::end_user) ends. Credentials are passkeys,
    /// authenticator apps, recovery codes, and linked accounts at other identity providers. Also deletes the user's
    /// consents to third-party clients. Returns how many sessions ended.
    ///
    /// Ended logins and counts expire by themselves within a day. A generation number stays, without which old sessions
    /// could become valid again. Deleting the account itself is up to you.
    ///
    /// Disable the account first, so that the user can't sign in and enrol something in between, and delete it
    /// afterwards. While the account exists, this also removes queued messages to its verified contacts, and withdraws
    /// the invitations to them. If it is already deleted, call [`withdraw_invitation`](Self::withdraw_invitation) for
    /// each address. A credential that a session or a login adds at the same time is removed again. If the call fails,
    /// repeat it: it continues where it stopped. The sessions have ended by then, so it returns 0.
    pub async fn forget_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        let account = self.0.accounts.of_user(tenant, Some(user)).await?;
        self.0.forget_user((tenant, user), account.as_ref()).await
    }

    /// Ends everything that relies on a password, a contact or a credential that the user no longer has. A session ends
    /// if its other proofs do not meet the [policy](crate::Policies) of its tenant.
    ///
    /// Sessions, codes and refresh tokens notice such a change by themselves when the account is read next: at
    /// `/authorize`, `/token` and `/userinfo`. Call this after changing an account in your own database to end sessions
    /// at once, so that no [`SessionLayer`](crate::SessionLayer) lets them through until then. Returns how many
    /// sessions ended.
    ///
    /// If a user has changed their password in a session, call [`password_changed`](Self::password_changed) instead.
    pub async fn credential_changed(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        self.0.end_outdated(tenant, user, None).await
    }

    /// Ends everything that relies on the old password of a user who has just changed it in this session. The session
    /// itself stays signed in, because its proof by password now counts for the new one. Returns how many other
    /// sessions ended.
    ///
    /// Call this after the change is stored. Ask for the old password first, because this call renews what the session
    /// has proved. Refresh tokens that relied on the old password alone end in this session too, but clients with
    /// single sign-on get new ones without another login.
    ///
    /// ```
    /// # async fn changed(auth: tollgate::AuthService, session: tollgate::Session, users: tollgate::StoredUsers,
    /// #     new: tollgate::password::PasswordHash) -> Result<(), Box<dyn std::error::Error>> {
    /// users.set_password(session.tenant(), session.user(), Some(new)).await?;
    /// auth.password_changed(&session).await?;
    /// # Ok(()) }
    /// ```
    pub async fn password_changed(&self, session: &Session) -> Result<usize, StoreError> {
        self.0.end_outdated(session.tenant(), session.user(), Some((session, Method::Password))).await
    }
}
