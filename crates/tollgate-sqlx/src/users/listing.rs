//! Reading accounts for an administrator.

use tollgate::{Identifier, Tenant, UserId, store::StoreError};

use super::{
    SqlUsers,
    row::{end_of_prefix, normalized_prefix, read_identifier, read_user},
    sql_user::SqlUser,
    statements::{GET, LIST, SEARCH},
    transaction::on_pool,
};

impl SqlUsers {
    /// Returns an account with its identifiers, or `None` if there is no account with this id.
    pub async fn get(&self, tenant: &Tenant, user: &UserId) -> Result<Option<SqlUser>, StoreError> {
        let found = on_pool!(self.database, reads, pool => {
            let row = sqlx::query(GET).bind(tenant.as_str()).bind(user.as_str()).fetch_optional(pool).await?;
            Ok::<_, sqlx::Error>(row.as_ref().map(read_user).transpose()?)
        })?;
        found.transpose()
    }

    /// Lists at most `most` accounts of a tenant in the order of their ids, beginning after `after`.
    ///
    /// The last id of a page is the `after` of the next one. Pages cost the same, however many come before them.
    pub async fn list(&self, tenant: &Tenant, after: Option<&UserId>, most: u16) -> Result<Vec<SqlUser>, StoreError> {
        let found = on_pool!(self.database, reads, pool => {
            let query = sqlx::query(LIST).bind(tenant.as_str()).bind(after.map_or("", UserId::as_str));
            let rows = query.bind(i64::from(most)).fetch_all(pool).await?;
            Ok::<_, sqlx::Error>(rows.iter().map(read_user).collect::<Result<Vec<_>, _>>()?)
        })?;
        found.into_iter().collect()
    }

    /// Finds at most `most` identifiers that begin with `prefix`, with their accounts, in the order of bytes, beginning
    /// after `after`. `prefix` is what a person types: its case does not matter.
    ///
    /// An account appears once for each of its identifiers that match.
    pub async fn search(
        &self,
        tenant: &Tenant,
        prefix: &str,
        after: Option<&Identifier>,
        most: u16,
    ) -> Result<Vec<(Identifier, SqlUser)>, StoreError> {
        let prefix = normalized_prefix(prefix);
        if prefix.contains('\0') {
            return Ok(Vec::new());
        }
        // no identifier contains a control character, so this is the first text after it
        let after = after.map(|identifier| format!("{}\u{1}", identifier.as_str())).unwrap_or_default();
        let (begin, end) = ((&*prefix).max(&*after), end_of_prefix(&prefix));
        let found = on_pool!(self.database, reads, pool => {
            let query = sqlx::query(SEARCH).bind(tenant.as_str()).bind(begin).bind(&end);
            let rows = query.bind(i64::from(most)).fetch_all(pool).await?;
            let read = rows.iter().map(|row| Ok((read_identifier(row)?, read_user(row)?)));
            Ok::<_, sqlx::Error>(read.collect::<Result<Vec<_>, sqlx::Error>>()?)
        })?;
        found.into_iter().map(|(identifier, user)| Ok((identifier?, user?))).collect()
    }
}
