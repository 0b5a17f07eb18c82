//! A credential that a user has just proved to have.

use crate::{
    auth::factors::{
        credentials::{
            row::{Credentials, Passkey, TotpKey},
            strength::Strength,
            table::{Added, CredentialTable},
        },
        proofs::{enrolment_mark, passkey_mark},
    },
    delivery::NoticeKind,
    login::Keyed,
    policy::Method,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
};

/// A credential that a user enrols.
pub(crate) enum NewCredential {
    Passkey(Passkey),
    Totp(TotpKey),
}

/// The strength of a credential that is about to be enrolled.
pub(crate) struct Vouching {
    pub(crate) strength: Strength,
    /// Whether the account has no second factor yet.
    pub(crate) is_first: bool,
}

impl NewCredential {
    /// Stores it for its user, if `may` allows a change of the row.
    pub(crate) async fn store(
        &self,
        credentials: &CredentialTable,
        owner: (&Tenant, &UserId),
        may: impl Fn(&Credentials) -> bool + Send + Sync,
    ) -> Result<Added, StoreError> {
        match self {
            Self::Passkey(passkey) => credentials.add_passkey(owner, passkey, may).await,
            Self::Totp(key) => credentials.put_totp(owner, key, may).await,
        }
    }

    /// Removes it again.
    pub(crate) async fn discard(
        &self,
        credentials: &CredentialTable,
        owner: (&Tenant, &UserId),
    ) -> Result<(), StoreError> {
        match self {
            Self::Passkey(passkey) => credentials.remove_passkey(owner, &passkey.id, |_, _| true).await.map(|_| ()),
            Self::Totp(key) => credentials.discard_enrolment(owner, &key.enrolment).await,
        }
    }

    /// Returns the mark of a proof by it.
    pub(crate) fn mark(&self, keyed: &Keyed) -> [u8; 32] {
        match self {
            Self::Passkey(passkey) => passkey_mark(passkey, keyed),
            Self::Totp(key) => enrolment_mark(&key.enrolment, keyed),
        }
    }

    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Passkey(_) => Method::Passkey,
            Self::Totp(_) => Method::Totp,
        }
    }

    /// Returns the kind of the message to the user.
    pub(crate) fn notice(&self) -> NoticeKind {
        match self {
            Self::Passkey(_) => NoticeKind::PasskeyAdded,
            Self::Totp(_) => NoticeKind::TotpAdded,
        }
    }
}
