use super::{Account, Contact, Identifier};
use crate::{password::PasswordHash, session::UserId};

/// An account that is to be made, and the names that find it.
#[derive(Clone, Debug)]
#[must_use]
pub struct NewUser {
    pub(super) account: Account,
    pub(super) identifiers: Vec<Identifier>,
}

impl NewUser {
    /// An account that is found by this name.
    pub fn new(id: UserId, identifier: Identifier) -> Self {
        Self { account: Account::new(id), identifiers: vec![identifier] }
    }

    /// One more name that finds it; 16 in all.
    pub fn identifier(mut self, identifier: Identifier) -> Self {
        self.identifiers.push(identifier);
        self
    }

    /// The hash of its password.
    pub fn password(self, hash: PasswordHash) -> Self {
        Self { account: self.account.password(hash), ..self }
    }

    /// One more contact, which the user proved to be theirs; 16 in all.
    pub fn contact(self, contact: impl Into<Contact>) -> Self {
        Self { account: self.account.contact(contact), ..self }
    }

    /// One more contact, which the user only claims; 16 in all.
    pub fn unverified_contact(self, contact: impl Into<Contact>) -> Self {
        Self { account: self.account.unverified_contact(contact), ..self }
    }

    /// Whether nobody can sign in to it.
    pub fn disabled(self, disabled: bool) -> Self {
        Self { account: self.account.disabled(disabled), ..self }
    }
}
