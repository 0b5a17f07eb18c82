use tollgate::{Identifier, clock::UnixTime, user::Account};

/// An account in [`SqlUsers`](super::SqlUsers), with the identifiers that find it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqlUser {
    /// The account.
    pub account: Account,
    /// The identifiers, in the order of their bytes.
    pub identifiers: Vec<Identifier>,
    /// When the account was created, to the second.
    pub created_at: UnixTime,
}
