//! Errors inside a transaction.

use tollgate::{
    store::{StoreError, StoreErrorKind},
    user::UserError,
};

use crate::error::{is_conflict, store_error};

/// Why a transaction did not commit.
pub(super) enum Failure {
    User(UserError),
    Sql(sqlx::Error),
}

impl Failure {
    /// Returns whether the database rolled the transaction back because of another one.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Sql(error) if is_conflict(error))
    }
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

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::User(error.into())
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

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Sql(error) => store_error(error),
            Failure::User(UserError::Store(error)) => error,
            Failure::User(error) => Self::new(StoreErrorKind::Corrupt, error),
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
