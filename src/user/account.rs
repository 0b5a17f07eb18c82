use std::fmt;

use serde::{Deserialize, Serialize};

use super::{EmailAddress, PhoneNumber};
use crate::{password::PasswordHash, session::UserId};

/// Where a person can be written to.
///
/// Its `Debug` shows only of which kind it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Contact {
    /// A mailbox.
    Email(EmailAddress),
    /// A phone, for SMS and WhatsApp.
    Phone(PhoneNumber),
}

impl Contact {
    /// The address or the number.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Email(address) => address.as_str(),
            Self::Phone(number) => number.as_str(),
        }
    }
}

impl From<EmailAddress> for Contact {
    fn from(address: EmailAddress) -> Self {
        Self::Email(address)
    }
}

impl From<PhoneNumber> for Contact {
    fn from(number: PhoneNumber) -> Self {
        Self::Phone(number)
    }
}

/// What a login needs to know of a user: what [`Users::find`](super::Users::find)
/// answers with.
///
/// ```
/// use tollgate::{Account, UserId, user::{Contact, EmailAddress}};
///
/// let mailbox = Contact::from(EmailAddress::parse("ada@example.com")?);
/// let account = Account::new(UserId::parse("u-1815")?).contact(mailbox.clone());
/// assert!(account.has_verified(&mailbox));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Its `Debug` does not show how the user is called.
#[derive(Clone)]
#[must_use]
pub struct Account {
    id: UserId,
    password: Option<PasswordHash>,
    contacts: Vec<OwnContact>,
    disabled: bool,
    name: Option<String>,
    username: Option<String>,
}

/// A contact, and whether the user proved that it is theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OwnContact {
    pub(super) contact: Contact,
    pub(super) verified: bool,
}

impl Account {
    /// The account with this id, with no password and no contacts.
    pub fn new(id: UserId) -> Self {
        Self { id, password: None, contacts: Vec::new(), disabled: false, name: None, username: None }
    }

    /// The hash of its password.
    pub fn password(self, hash: PasswordHash) -> Self {
        Self { password: Some(hash), ..self }
    }

    /// One more contact, which the user proved to be theirs. One-time codes are
    /// sent to such only.
    pub fn contact(mut self, contact: impl Into<Contact>) -> Self {
        self.contacts.push(OwnContact { contact: contact.into(), verified: true });
        self
    }

    /// One more contact, which the user only claims.
    pub fn unverified_contact(mut self, contact: impl Into<Contact>) -> Self {
        self.contacts.push(OwnContact { contact: contact.into(), verified: false });
        self
    }

    /// Whether nobody can sign in to it.
    pub fn disabled(self, disabled: bool) -> Self {
        Self { disabled, ..self }
    }

    /// How the user is called, as applications may show it: the claim `name` of OpenID Connect.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The short name by which the user likes to be known: the claim `preferred_username`. It need not be one that they can
    /// log in by.
    pub fn username(self, username: impl Into<String>) -> Self {
        Self { username: Some(username.into()), ..self }
    }

    /// Whose account it is.
    pub fn id(&self) -> &UserId {
        &self.id
    }

    /// The hash of its password, if it has one.
    pub fn password_hash(&self) -> Option<&PasswordHash> {
        self.password.as_ref()
    }

    /// Whether nobody can sign in to it.
    pub fn is_disabled(&self) -> bool {
        self.disabled
    }

    /// Whether this is a contact of the user, proved to be theirs.
    pub fn has_verified(&self, contact: &Contact) -> bool {
        self.contacts.iter().any(|own| own.verified && own.contact == *contact)
    }

    /// Its contacts, and whether each is proved.
    pub fn contacts(&self) -> impl Iterator<Item = (&Contact, bool)> {
        self.contacts.iter().map(|own| (&own.contact, own.verified))
    }

    /// How the user is called.
    pub fn display_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The short name by which the user likes to be known.
    pub fn preferred_username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    pub(super) fn restore(
        id: UserId,
        password: Option<PasswordHash>,
        contacts: Vec<OwnContact>,
        disabled: bool,
    ) -> Self {
        Self { id, password, contacts, disabled, name: None, username: None }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("id", &self.id)
            .field("password", &self.password)
            .field("contacts", &self.contacts)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}
