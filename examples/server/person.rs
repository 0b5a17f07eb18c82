//! A user of the demo or of the file.

use std::{error::Error, path::Path};

use serde::Deserialize;
use tollgate::{
    Identifier, NewUser, Password, Passwords, Tenant, UserId, Users,
    password::PasswordHash,
    user::{Contact, EmailAddress, PhoneNumber, UserError},
};

use crate::{secret_text::SecretText, users::AccountTable};

/// An entry of `[[users]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenUser {
    pub(crate) tenant: String,
    pub(crate) id: String,
    name: Option<String>,
    identifiers: Vec<String>,
    password_hash: Option<SecretText>,
    email: Option<String>,
    phone: Option<String>,
}

/// A user.
pub(crate) struct Person {
    pub(crate) tenant: Tenant,
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) identifiers: Vec<String>,
    pub(crate) password: Option<Proof>,
    pub(crate) email: Option<String>,
    pub(crate) phone: Option<String>,
    /// Where the file has the user.
    pub(crate) line: Option<usize>,
}

pub(crate) enum Proof {
    Password(&'static str),
    Hash(PasswordHash),
}

impl WrittenUser {
    pub(crate) fn read(&self, line: usize, directory: &Path) -> Result<Person, Box<dyn Error>> {
        let hash = self.password_hash.as_ref().map(|hash| hash.read(directory)).transpose()?;
        let person = Person {
            tenant: Tenant::parse(&self.tenant).map_err(|error| format!("tenant: {:?}: {error}", self.tenant))?,
            id: self.id.clone(),
            name: self.name.clone(),
            identifiers: self.identifiers.clone(),
            password: hash.map(PasswordHash::parse).transpose()?.map(Proof::Hash),
            email: self.email.clone(),
            phone: self.phone.clone(),
            line: Some(line),
        };
        person.without_password().map(|_| person)
    }
}

impl Person {
    /// Creates the account, unless the store has it from an earlier run or from another server.
    pub(crate) async fn add_to(&self, users: &AccountTable) -> Result<(), Box<dyn Error>> {
        let id = UserId::parse(&self.id)?;
        if users.by_id(&self.tenant, &id).await?.is_some() {
            return Ok(());
        }
        match users.create(&self.tenant, self.account().await?).await {
            // another server, which has started at the same time, may have created it
            Ok(_) => Ok(()),
            Err(UserError::Exists) if users.by_id(&self.tenant, &UserId::parse(&self.id)?).await?.is_some() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the account to create.
    pub(crate) async fn account(&self) -> Result<NewUser, Box<dyn Error>> {
        let user = self.without_password()?;
        Ok(match &self.password {
            Some(Proof::Password(password)) => user.password(Passwords::new().hash(Password::new(*password)).await?),
            Some(Proof::Hash(hash)) => user.password(hash.clone()),
            None => user,
        })
    }

    fn without_password(&self) -> Result<NewUser, Box<dyn Error>> {
        let mut identifiers = self.identifiers.iter().map(Identifier::parse);
        let first = identifiers.next().ok_or("has no identifier")??;
        let mut user = NewUser::new(UserId::parse(&self.id)?, first);
        for identifier in identifiers {
            user = user.identifier(identifier?);
        }
        if let Some(name) = &self.name {
            user = user.name(name);
        }
        for contact in contacts(self.email.as_deref(), self.phone.as_deref())? {
            user = user.contact(contact);
        }
        Ok(user)
    }

    /// Names the user in a message, with the line of the file.
    pub(crate) fn place(&self) -> String {
        let line = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("{line}users: {:?}", self.id)
    }
}

/// Returns the contacts of a user.
pub(crate) fn contacts(email: Option<&str>, phone: Option<&str>) -> Result<Vec<Contact>, Box<dyn Error>> {
    let email = email.map(EmailAddress::parse).transpose()?.map(Contact::Email);
    let phone = phone.map(PhoneNumber::parse).transpose()?.map(Contact::Phone);
    Ok(email.into_iter().chain(phone).collect())
}
