//! A credential that a user has just proved to have.

use crate::{
    auth::factors::credentials::{
        credential::{Credential, Strength},
        row::Credentials,
        table::{Added, CredentialTable},
    },
    delivery::NoticeKind,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
};

/// A credential that a user enrols.
pub(crate) trait NewCredential: Credential {
    /// The kind of the message to the user.
    const ADDED: NoticeKind;

    /// Stores it for its user, if `may` allows a change of the row.
    fn store(
        &self,
        credentials: &CredentialTable,
        owner: (&Tenant, &UserId),
        may: impl Fn(&Credentials) -> bool + Send + Sync,
    ) -> impl Future<Output = Result<Added, StoreError>> + Send;

    /// Removes it again.
    fn discard(
        &self,
        credentials: &CredentialTable,
        owner: (&Tenant, &UserId),
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The strength of a credential that is about to be enrolled.
pub(crate) struct Vouching {
    pub(crate) strength: Strength,
    /// Whether the account has no second factor yet.
    pub(crate) is_first: bool,
}
