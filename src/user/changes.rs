//! The outcomes of changes that users make to their own accounts.

use crate::session::UserId;

/// A change that [`Users`](super::Users) can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OfferedChange {
    /// [`Users::create`](super::Users::create): sign-up and invitations.
    Create,
    /// [`Users::set_password`](super::Users::set_password): a changed password, and a reset of a forgotten one.
    SetPassword,
    /// [`Users::set_name`](super::Users::set_name).
    SetName,
    /// [`Users::set_contact`](super::Users::set_contact): a new e-mail address or phone number.
    SetContact,
    /// [`Users::remove`](super::Users::remove).
    Remove,
}

/// The outcome of [`Users::create`](super::Users::create).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum NewAccount {
    /// The account with this id exists now.
    Created(UserId),
    /// Another account has one of the identifiers or the id.
    Taken,
    /// Accounts are not created here.
    NotOffered,
}

/// The outcome of a change to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[non_exhaustive]
pub enum AccountChange {
    /// The account was changed, or already was as requested.
    Done,
    /// Another account has the new identifier.
    Taken,
    /// The account is gone, or has changed since it was read. Nothing was changed.
    Outdated,
    /// The account would have too many identifiers or contacts, or too long a name. Nothing was changed.
    OutOfBounds,
    /// These accounts don't offer the change.
    NotOffered,
}
