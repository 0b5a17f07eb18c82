//! [`Codes`]: authorization codes that wait to be redeemed.

use std::{sync::Arc, time::Duration};

use crate::{
    login::{Binding, Wanted},
    session::Authentication,
    store::{
        AnyStore, StoreError,
        compact::{row_struct, stored_row},
        table::{ReadRow, RowOperation, Table},
    },
    util::{clock::Clock, public_id::PublicId, secret::SecretDigest},
};

/// How long a code can be redeemed.
const CODE_LIVES: Duration = Duration::from_secs(60);

/// The grant behind an authorization code, stored under the digest of the code.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizationCode {
    pub(crate) who: Authentication,
    /// The `sid` of the session that the code was issued in.
    pub(crate) session: PublicId,
    /// The request that the code answers.
    pub(crate) binding: Binding,
    pub(crate) wanted: Wanted,
}

stored_row!(AuthorizationCode, 2, "not the row of a code");
row_struct!(AuthorizationCode { who, session, binding, wanted });

/// All codes that wait to be redeemed.
#[derive(Clone, Debug)]
pub(crate) struct Codes(Table<AuthorizationCode>);

impl Codes {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "codes", clock))
    }

    /// Returns the operation that issues a code. The code is new, so nothing is in its place.
    pub(crate) fn prepare_code_insert(
        &self,
        code: &SecretDigest,
        row: &AuthorizationCode,
    ) -> Result<RowOperation<'_, AuthorizationCode>, StoreError> {
        self.0.prepare_row_write(None, code.as_bytes(), &ReadRow::ABSENT, row, self.0.now() + CODE_LIVES)
    }

    pub(crate) async fn find(&self, code: &SecretDigest) -> Result<Option<AuthorizationCode>, StoreError> {
        let Some(stored) = self.0.get(None, code.as_bytes()).wait().await? else { return Ok(None) };
        let has_ended = stored.expires_at < self.0.cutoff().wait().await? + CODE_LIVES;
        Ok((!has_ended).then_some(stored.value))
    }

    /// Removes a code that was redeemed.
    pub(crate) async fn remove(&self, code: &SecretDigest) -> Result<(), StoreError> {
        self.0.remove(None, code.as_bytes()).await
    }
}
