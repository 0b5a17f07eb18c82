//! How an application vouches for a credential of a user.

use crate::{
    auth::{
        factors::credentials::{credential::Credential, row::Credentials},
        service::AuthService,
        state::journal::EventSource,
    },
    event::EventKind,
    policy::Method,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
};

/// A credential that a user has enrolled. Passkeys and links are identified by the `id` that `GET /account/credentials`
/// shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnrolledCredential<'a> {
    /// The passkey with this id.
    Passkey(&'a str),
    /// The authenticator app.
    Totp,
    /// The recovery codes.
    RecoveryCodes,
    /// The link with this id, to an account at another identity provider.
    Link(&'a str),
}

impl EnrolledCredential<'_> {
    fn method(self) -> Method {
        match self {
            Self::Passkey(_) => Method::Passkey,
            Self::Totp => Method::Totp,
            Self::RecoveryCodes => Method::RecoveryCode,
            Self::Link(_) => Method::Sso,
        }
    }

    fn id(&self) -> Option<&str> {
        match self {
            Self::Passkey(id) | Self::Link(id) => Some(id),
            Self::Totp | Self::RecoveryCodes => None,
        }
    }
}

impl AuthService {
    /// Vouches for a credential of a user. The credential then counts for every policy, however it was enrolled.
    /// Returns whether the user has it. Recorded as an event.
    ///
    /// By default, a credential counts for a policy that names methods only if it was enrolled with methods that met this
    /// policy. Otherwise, anyone who knows a password could add a passkey, and sign in with it where only passkeys are
    /// accepted. Call this once you know that the credential belongs to the user, for example because the user has enrolled
    /// it in front of you.
    ///
    /// A credential that later replaces this one does not inherit this.
    pub async fn vouch_for(
        &self,
        tenant: &Tenant,
        user: &UserId,
        credential: EnrolledCredential<'_>,
    ) -> Result<bool, StoreError> {
        let keyed = self.0.keyed().await?;
        let (method, id) = (credential.method(), credential.id());
        let is_meant = |it: &dyn Credential| it.method() == method && id.is_none_or(|id| it.is_shown_as(id, keyed));
        let vouch = |row: &mut Credentials| row.vouch_for(is_meant);
        let has_it = match self.0.credentials.get(tenant, user).await? {
            Some(_) => self.0.credentials.update(tenant, user, vouch).await?.is_some(),
            None => false,
        };
        if has_it {
            let source = EventSource::of_user(tenant, user);
            self.0.journal.record(EventKind::CredentialVouched, source, Some(method), keyed);
        }
        Ok(has_it)
    }
}
