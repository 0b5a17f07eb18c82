use std::fmt;

use crate::store::StoreError;

/// Why a text names nobody and nothing that can be written to. It repeats
/// nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifierError(pub(super) &'static str);

impl fmt::Display for IdentifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for IdentifierError {}

/// Why a change of an account in [`StoredUsers`](super::StoredUsers) was not
/// made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum UserError {
    /// Another account has one of the names.
    Taken,
    /// There is an account with this id already.
    Exists,
    /// There is no account with this id.
    Unknown,
    /// An account has 1 to 16 identifiers and at most 16 contacts; what its user is called has 1 to 320 bytes.
    OutOfBounds,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for UserError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Taken => "another account has this name",
            Self::Exists => "there is an account with this id already",
            Self::Unknown => "there is no account with this id",
            Self::OutOfBounds => "an account has 1 to 16 identifiers, at most 16 contacts, and names of 1 to 320 bytes",
            Self::Store(_) => "the accounts could not be read or written",
        })
    }
}

impl std::error::Error for UserError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}
