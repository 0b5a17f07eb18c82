//! The stored form of an account.

use serde_json::{Map, Value as Json};

use super::error::UserError;
use crate::{
    password::{PasswordHash, PasswordMark, StoredPassword},
    session::UserId,
    store::{
        StoreError, StoreErrorKind,
        compact::{Reader, RowPart, Writer, row_enum, row_struct, row_text, stored_row},
    },
    user::{
        account::{Account, NewUser, OwnContact},
        contact::{Contact, EmailAddress, PhoneNumber},
        identifier::Identifier,
    },
    util::secret::{Secret, SecretDigest},
};

/// The maximum number of names, and of contacts, of an account.
pub(super) const MOST: usize = 16;

/// The maximum length of a displayed name. Any identifier fits.
const LONGEST: usize = Identifier::MAX_LEN;

/// The SHA-256 of an identifier, as used in keys and rows. It makes all names the same size. It does not hide them,
/// because names can be guessed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name([u8; 32]);

impl Name {
    pub(super) fn from_identifier(identifier: &Identifier) -> Self {
        Self(*SecretDigest::of_secret(identifier.as_str()).as_bytes())
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// An account. Compact instead of JSON, because each call of a login reads one.
#[derive(Clone)]
pub(super) struct Row {
    /// A random number that distinguishes this account from an earlier or later one with the same id.
    pub(super) instance: u64,
    /// Sorted, so that if two accounts claim the same names concurrently, one of them gets the first name and then all.
    pub(super) names: Vec<Name>,
    pub(super) password: Option<PasswordHash>,
    /// Changes with the password and not with its hash.
    pub(super) password_mark: Option<PasswordMark>,
    pub(super) contacts: Vec<OwnContact>,
    pub(super) disabled: bool,
    /// The full name.
    pub(super) name: Option<String>,
    pub(super) username: Option<String>,
    /// The claims that the application has set in the user's invitation.
    pub(super) claims: Option<Map<String, Json>>,
}

stored_row!(Row, 2, "not the row of an account");
row_struct!(Row { instance, names, password, password_mark, contacts, disabled, name, username, claims });
row_struct!(Name(digest));
row_struct!(OwnContact { contact, verified });
row_enum!(Contact { 0 => Email(EmailAddress), 1 => Phone(PhoneNumber) });

row_text! {
    PasswordHash: as_str, |reader| PasswordHash::parse(reader.text()?).ok();
    // they were checked before they were stored
    EmailAddress: as_str, |reader| Some(EmailAddress::restore(reader.text()?));
    PhoneNumber: as_str, |reader| Some(PhoneNumber::restore(reader.text()?));
}

/// As JSON.
impl RowPart for Map<String, Json> {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        writer.text(&serde_json::to_string(self).map_err(|_| StoreErrorKind::Corrupt)?)
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        serde_json::from_str(reader.text()?).ok()
    }
}

impl Row {
    pub(super) fn new(new: &NewUser) -> Result<Self, UserError> {
        let mut names: Vec<Name> = new.identifiers.iter().map(Name::from_identifier).collect();
        names.sort_unstable();
        names.dedup();
        let mut row = Self {
            instance: random(),
            names,
            password: None,
            password_mark: None,
            contacts: Vec::new(),
            disabled: new.account.is_disabled(),
            name: None,
            username: None,
            claims: new.account.claims.clone(),
        };
        row.set_password(new.account.password_hash().cloned());
        row.set_names(new.account.display_name(), new.account.preferred_username())?;
        for (contact, verified) in new.account.contacts() {
            row.put(&OwnContact { contact: contact.clone(), verified })?;
        }
        if row.names.len() > MOST { Err(UserError::OutOfBounds) } else { Ok(row) }
    }

    pub(super) fn lists(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    /// Replaces the password. The new one has a new mark, even if the hash is the same.
    pub(super) fn set_password(&mut self, hash: Option<PasswordHash>) {
        self.password_mark = hash.as_ref().map(|_| PasswordMark::generate());
        self.password = hash;
    }

    /// Replaces the hash with another one of the same password. A derived mark is kept from now on.
    pub(super) fn rehash(&mut self, hash: PasswordHash) {
        self.password = Some(hash);
    }

    /// Adds a name.
    pub(super) fn list(&mut self, name: Name) -> Result<(), UserError> {
        if !self.lists(&name) {
            if self.names.len() >= MOST {
                return Err(UserError::OutOfBounds);
            }
            self.names.push(name);
        }
        Ok(())
    }

    /// Removes a name, also as the displayed username, because another user may get it next.
    pub(super) fn unlist(&mut self, name: &Name) {
        self.names.retain(|listed| listed != name);
        let is_removed =
            |username: &String| Identifier::parse(username).is_ok_and(|own| Name::from_identifier(&own) == *name);
        self.username = self.username.take().filter(|username| !is_removed(username));
    }

    /// Adds a contact, or updates it: a verified contact stays verified.
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

    /// Sets the displayed names.
    pub(super) fn set_names(&mut self, name: Option<&str>, username: Option<&str>) -> Result<(), UserError> {
        if [name, username].into_iter().flatten().any(|text| text.is_empty() || text.len() > LONGEST) {
            return Err(UserError::OutOfBounds);
        }
        self.name = name.map(str::to_owned);
        self.username = username.map(str::to_owned);
        Ok(())
    }

    pub(super) fn into_account(self, id: UserId) -> Account {
        Account {
            id,
            password: self.password.map(StoredPassword::Argon2),
            password_mark: self.password_mark,
            has_external_password: false,
            contacts: self.contacts,
            disabled: self.disabled,
            name: self.name,
            username: self.username,
            claims: self.claims,
        }
    }
}

fn random() -> u64 {
    let digest = Secret::generate().digest();
    digest.as_bytes().first_chunk().copied().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::Memory,
        tenant::Tenant,
        testing::block_on,
        user::{StoredUsers, Users},
    };

    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";
    const BETTER: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";

    fn hash(text: &str) -> PasswordHash {
        PasswordHash::parse(text).unwrap()
    }

    fn identifier(text: &str) -> Identifier {
        Identifier::parse(text).unwrap()
    }

    fn new(text: &str) -> NewUser {
        NewUser::new(UserId::parse("u-1").unwrap(), identifier(text))
    }

    fn names(account: &Account) -> (Option<&str>, Option<&str>) {
        (account.display_name(), account.preferred_username())
    }

    #[test]
    fn displayed_names_are_stored() {
        let (users, acme) = (StoredUsers::new(Memory::new()), Tenant::parse("acme").unwrap());
        let id =
            block_on(users.create(&acme, new("Ada").identifier(identifier("countess")).name("Ada Lovelace"))).unwrap();
        let account = || block_on(users.find(&acme, &identifier("countess"))).unwrap().unwrap();
        assert_eq!(names(&account()), (Some("Ada Lovelace"), Some("ada")));
        // another user may get the name next
        block_on(users.remove_identifier(&acme, &id, &identifier("ada"))).unwrap();
        assert_eq!(names(&account()), (Some("Ada Lovelace"), None));
        block_on(users.set_names(&acme, &id, None, Some("The Countess"))).unwrap();
        block_on(users.add_identifier(&acme, &id, &identifier("ada"))).unwrap();
        block_on(users.remove_identifier(&acme, &id, &identifier("ada"))).unwrap();
        assert_eq!(names(&account()), (None, Some("The Countess")));
        for bad in [String::new(), "x".repeat(321)] {
            let refused = block_on(users.set_names(&acme, &id, Some(&bad), None));
            assert!(matches!(refused, Err(UserError::OutOfBounds)));
        }
        assert_eq!(names(&account()), (None, Some("The Countess")));
    }

    #[test]
    fn an_address_becomes_the_username_only_if_it_is_set() {
        for address in ["ada@example.com", "+1 555 555 0100"] {
            assert_eq!(names(&new(address).account), (None, None), "{address}");
            let set = new(address).username(address);
            assert_eq!(names(&set.account), (None, Some(address)));
        }
        // the longest identifier fits
        assert!(Row::new(&new(&"x".repeat(320))).is_ok());
        assert!(matches!(Row::new(&new("ada").name("x".repeat(321))), Err(UserError::OutOfBounds)));
    }

    #[test]
    fn a_new_password_gets_a_new_mark_and_a_rehash_keeps_it() {
        let mut row = Row::new(&new("ada").password(hash(HASH))).unwrap();
        let first = row.password_mark.unwrap();
        row.rehash(hash(BETTER));
        assert_eq!(row.password_mark, Some(first));
        // the same password, and the same hash
        row.set_password(Some(hash(BETTER)));
        assert_ne!(row.password_mark, Some(first));
        row.set_password(None);
        assert_eq!(row.password_mark, None);
    }
}
