//! What is kept of an account, and of a name.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Account, Identifier, NewUser, UserError, account::OwnContact};
use crate::{
    encoding::{base64url_of_32, base64url_to_32},
    password::PasswordHash,
    secret::{Digest, Secret},
    session::UserId,
};

/// The most names, and the most contacts, of an account.
pub(super) const MOST: usize = 16;

/// A name as it stands in keys and rows: the SHA-256 of the identifier. It is no
/// secret (names can be guessed), but all are of one size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name([u8; 32]);

impl Name {
    pub(super) fn of(identifier: &Identifier) -> Self {
        Self(*Digest::of(identifier.as_str()).as_bytes())
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // never the default: base64url is ASCII
        serializer.serialize_str(std::str::from_utf8(&base64url_of_32(&self.0)).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = base64url_to_32(text.as_bytes()).ok_or_else(|| de::Error::custom("not a digest"))?;
        Ok(Self(*bytes))
    }
}

/// An account.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Row {
    /// Tells it from another that had the same id before or after it.
    pub(super) born: u64,
    /// In order, so that of two that want the same ones, one gets the first.
    pub(super) names: Vec<Name>,
    pub(super) password: Option<PasswordHash>,
    pub(super) contacts: Vec<OwnContact>,
    pub(super) disabled: bool,
}

impl Row {
    pub(super) fn new(new: &NewUser) -> Result<Self, UserError> {
        let mut names: Vec<Name> = new.identifiers.iter().map(Name::of).collect();
        names.sort_unstable();
        names.dedup();
        let mut row = Self {
            born: random(),
            names,
            password: new.account.password_hash().cloned(),
            contacts: Vec::new(),
            disabled: new.account.is_disabled(),
        };
        for (contact, verified) in new.account.contacts() {
            row.put(&OwnContact { contact: contact.clone(), verified })?;
        }
        if row.names.len() > MOST { Err(UserError::OutOfBounds) } else { Ok(row) }
    }

    pub(super) fn lists(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    /// Lists one more name.
    pub(super) fn list(&mut self, name: Name) -> Result<(), UserError> {
        if !self.lists(&name) {
            if self.names.len() >= MOST {
                return Err(UserError::OutOfBounds);
            }
            self.names.push(name);
        }
        Ok(())
    }

    /// Takes up a contact, or what is newly known of it: one that is verified
    /// stays so.
    pub(super) fn put(&mut self, new: &OwnContact) -> Result<(), UserError> {
        if let Some(own) = self.contacts.iter_mut().find(|own| own.contact == new.contact) {
            own.verified |= new.verified;
        } else if self.contacts.len() >= MOST {
            return Err(UserError::OutOfBounds);
        } else {
            self.contacts.push(new.clone());
        }
        Ok(())
    }

    pub(super) fn into_account(self, id: UserId) -> Account {
        Account::restore(id, self.password, self.contacts, self.disabled)
    }
}

fn random() -> u64 {
    let digest = Secret::generate().digest();
    digest.as_bytes().first_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// Whom a name belongs to, if that account lists it.
#[derive(Clone)]
pub(super) struct Owner(pub(super) UserId);

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for Owner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        UserId::parse(String::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}
