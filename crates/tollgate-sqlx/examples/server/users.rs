//! Where the accounts are: in tables of their own.

use tollgate_sqlx::SqlUsers;

pub(crate) type AccountTable = SqlUsers;
