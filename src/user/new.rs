use super::{Account, Contact, EmailAddress, Identifier, PhoneNumber};
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
    ///
    /// Applications that ask for the scope `profile` are told it as the [`username`](Self::username), but not where it is
    /// an e-mail address or a phone number: those have scopes of their own.
    pub fn new(id: UserId, identifier: Identifier) -> Self {
        let account = Account::new(id);
        let reaches =
            EmailAddress::parse(identifier.as_str()).is_ok() || PhoneNumber::parse(identifier.as_str()).is_ok();
        let account = if reaches { account } else { account.username(identifier.as_str()) };
        Self { account, identifiers: vec![identifier] }
    }

    /// One more name that finds it; 16 in all.
    pub fn identifier(mut self, identifier: Identifier) -> Self {
        self.identifiers.push(identifier);
        self
    }

    /// How the user is called, as applications may show it: the claim `name` of OpenID Connect, in 1 to 320 bytes.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { account: self.account.name(name), ..self }
    }

    /// The short name by which the user likes to be known: the claim `preferred_username`, in 1 to 320 bytes. Nobody
    /// is found by it, and two may have the same.
    pub fn username(self, username: impl Into<String>) -> Self {
        Self { account: self.account.username(username), ..self }
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
