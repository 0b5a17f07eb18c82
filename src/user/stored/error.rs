use crate::{store::StoreError, user::changes::AccountChange};

/// The reason why an account was not created or changed, in [`StoredUsers`](super::StoredUsers) or SQL tables.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum UserError {
    /// Another account has one of the identifiers.
    Taken,
    /// An account with this id exists already, in this tenant or another one, or has existed and its id is not reused.
    Exists,
    /// There is no account with this id.
    Unknown,
    /// The account would not have 1 to 16 identifiers and at most 16 contacts, or a name does not have 1 to 320 bytes.
    OutOfBounds,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for UserError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

crate::util::fmt::display!(UserError, |own| match own {
    Self::Taken => "another account has this identifier",
    Self::Exists => "an account with this id already exists",
    Self::Unknown => "no account has this id",
    Self::OutOfBounds => "an account has 1 to 16 identifiers, at most 16 contacts, and names of 1 to 320 bytes",
    Self::Store(_) => "accounts could not be read or written",
});

impl std::error::Error for UserError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

/// Translates the outcome of a change.
pub(super) fn outcome(changed: Result<(), UserError>) -> Result<AccountChange, StoreError> {
    match changed {
        Ok(()) => Ok(AccountChange::Done),
        Err(UserError::Taken | UserError::Exists) => Ok(AccountChange::Taken),
        Err(UserError::Unknown) => Ok(AccountChange::Outdated),
        Err(UserError::OutOfBounds) => Ok(AccountChange::OutOfBounds),
        Err(UserError::Store(error)) => Err(error),
    }
}
