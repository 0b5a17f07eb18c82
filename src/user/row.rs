//! What is kept of an account, and of a name.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Account, Identifier, NewUser, UserError, account::OwnContact};
use crate::{
    password::PasswordHash,
    session::UserId,
    util::{
        encoding::{base64url_of_32, base64url_to_32},
        secret::{Digest, Secret},
    },
};

/// The most names, and the most contacts, of an account.
pub(super) const MOST: usize = 16;

/// The most bytes of what a user is called, so that an identifier will do.
const LONGEST: usize = Identifier::MAX_LEN;

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
    /// How the user is called; older rows do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) username: Option<String>,
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
            name: None,
            username: None,
        };
        row.call(new.account.display_name(), new.account.preferred_username())?;
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

    /// Strikes a name, and as what the user is called too: it may be somebody else's soon.
    pub(super) fn strike(&mut self, name: &Name) {
        self.names.retain(|listed| listed != name);
        let is_it = |username: &String| Identifier::parse(username).is_ok_and(|own| Name::of(&own) == *name);
        self.username = self.username.take().filter(|username| !is_it(username));
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

    /// Notes how the user is called.
    pub(super) fn call(&mut self, name: Option<&str>, username: Option<&str>) -> Result<(), UserError> {
        if [name, username].into_iter().flatten().any(|text| text.is_empty() || text.len() > LONGEST) {
            return Err(UserError::OutOfBounds);
        }
        self.name = name.map(str::to_owned);
        self.username = username.map(str::to_owned);
        Ok(())
    }

    pub(super) fn into_account(self, id: UserId) -> Account {
        let account = Account::restore(id, self.password, self.contacts, self.disabled);
        let account = self.name.into_iter().fold(account, Account::name);
        self.username.into_iter().fold(account, Account::username)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::{Memory, table::Value},
        tenant::Tenant,
        testing::block_on,
        user::{StoredUsers, Users},
    };

    fn identifier(text: &str) -> Identifier {
        Identifier::parse(text).unwrap()
    }

    fn new(text: &str) -> NewUser {
        NewUser::new(UserId::parse("u-1").unwrap(), identifier(text))
    }

    fn called(account: &Account) -> (Option<&str>, Option<&str>) {
        (account.display_name(), account.preferred_username())
    }

    #[test]
    fn a_row_from_before_users_had_names_is_read() {
        let old = br#"{"born":1,"names":[],"password":null,"contacts":[],"disabled":false}"#;
        let row = Row::read(old).unwrap();
        assert_eq!(row.write().unwrap(), old);
        assert_eq!(called(&row.into_account(UserId::parse("u-1").unwrap())), (None, None));
    }

    #[test]
    fn what_a_user_is_called_is_kept() {
        let (users, acme) = (StoredUsers::new(Memory::new()), Tenant::parse("acme").unwrap());
        let id =
            block_on(users.create(&acme, new("Ada").identifier(identifier("countess")).name("Ada Lovelace"))).unwrap();
        let account = || block_on(users.find(&acme, &identifier("countess"))).unwrap().unwrap();
        assert_eq!(called(&account()), (Some("Ada Lovelace"), Some("ada")));
        // another may have the name soon
        block_on(users.remove_identifier(&acme, &id, &identifier("ada"))).unwrap();
        assert_eq!(called(&account()), (Some("Ada Lovelace"), None));
        block_on(users.set_names(&acme, &id, None, Some("The Countess"))).unwrap();
        block_on(users.add_identifier(&acme, &id, &identifier("ada"))).unwrap();
        block_on(users.remove_identifier(&acme, &id, &identifier("ada"))).unwrap();
        assert_eq!(called(&account()), (None, Some("The Countess")));
        for bad in [String::new(), "x".repeat(321)] {
            let refused = block_on(users.set_names(&acme, &id, Some(&bad), None));
            assert!(matches!(refused, Err(UserError::OutOfBounds)));
        }
        assert_eq!(called(&account()), (None, Some("The Countess")));
    }

    #[test]
    fn an_address_is_nobodys_username_unless_it_is_said() {
        for address in ["ada@example.com", "+1 555 555 0100"] {
            assert_eq!(called(&new(address).account), (None, None), "{address}");
            let said = new(address).username(address);
            assert_eq!(called(&said.account), (None, Some(address)));
        }
        // the longest that can find an account can be what its user is called
        assert!(Row::new(&new(&"x".repeat(320))).is_ok());
        assert!(matches!(Row::new(&new("ada").name("x".repeat(321))), Err(UserError::OutOfBounds)));
    }
}
