//! Errors inside a transaction.

use tollgate::user::UserError;

use crate::error::store_error;

/// Why a transaction did not commit.
pub(super) enum Failure {
    User(UserError),
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<UserError> for Failure {
    fn from(error: UserError) -> Self {
        Self::User(error)
    }
}

impl From<Failure> for UserError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::User(error) => error,
            Failure::Sql(error) => Self::Store(store_error(error)),
        }
    }
}

/// Returns `error` in place of the violation of a unique index.
pub(super) fn instead_of_duplicate(error: UserError) -> impl FnOnce(sqlx::Error) -> Failure {
    move |found| match found.as_database_error() {
        Some(database) if database.is_unique_violation() => error.into(),
        _ => found.into(),
    }
}
