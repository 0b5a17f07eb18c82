//! The end of an account, and its id.

use tollgate::{Tenant, UserId, store::StoreError, user::UserError};

use super::{
    SqlUsers,
    row::read_id,
    statements::{RELEASE_ID, REMEMBER, REMOVE, REMOVED},
    transaction::{change, on_pool},
};

impl SqlUsers {
    /// Removes the account. Other accounts can then use its identifiers, but never its id. So passkeys, sessions and
    /// tokens of this id never pass to another account, even if they still exist.
    ///
    /// Call [`AuthService::forget_user`](tollgate::AuthService::forget_user) afterwards. It ends the sessions and
    /// tokens of the user, and deletes what the user has enrolled. If the process dies before that, make the call
    /// later: [`removed`](Self::removed) lists the ids.
    ///
    /// Your own tables can refer to the account with `on delete cascade`. Deleting its row by SQL does the same as this call.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn remove(&self, tenant: &Tenant, user: &UserId) -> Result<(), UserError> {
        change!(self, tenant, user, connection => {
            let remember = sqlx::query(REMEMBER).bind(tenant.as_str()).bind(user.as_str());
            remember.bind(self.seconds()).execute(&mut *connection).await?;
            sqlx::query(REMOVE).bind(tenant.as_str()).bind(user.as_str()).execute(&mut *connection).await?;
        })
    }

    /// Lists at most `most` ids of removed accounts, in order, beginning after `after`.
    pub async fn removed(&self, tenant: &Tenant, after: Option<&UserId>, most: u16) -> Result<Vec<UserId>, StoreError> {
        let ids: Vec<String> = on_pool!(self.database, reads, pool => {
            let query = sqlx::query_scalar(REMOVED).bind(tenant.as_str()).bind(after.map_or("", UserId::as_str));
            Ok::<_, sqlx::Error>(query.bind(i64::from(most)).fetch_all(pool).await?)
        })?;
        ids.into_iter().map(read_id).collect()
    }

    /// Lets a new account have the id of a removed one. Returns whether this was the id of a removed account.
    ///
    /// OpenID Connect forbids this for ids that a client has seen. Call it only after
    /// [`AuthService::forget_user`](tollgate::AuthService::forget_user), for example to undo a mistake.
    pub async fn release_id(&self, tenant: &Tenant, user: &UserId) -> Result<bool, StoreError> {
        on_pool!(self.database, writes, pool => {
            let delete = sqlx::query(RELEASE_ID).bind(tenant.as_str()).bind(user.as_str());
            Ok::<_, sqlx::Error>(delete.execute(pool).await?.rows_affected() > 0)
        })
    }
}
