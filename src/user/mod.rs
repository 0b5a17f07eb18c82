//! Who can sign in: the app's own accounts behind [`Users`], or
//! [`StoredUsers`], which keeps them in a store.
//!
//! ```
//! use tollgate::{Identifier, StoredUsers, Tenant, UserId, Users, store::Memory};
//! use tollgate::user::{Contact, EmailAddress, NewUser, UserError};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let (acme, mailbox) = (Tenant::parse("acme")?, Contact::from(EmailAddress::parse("ada@example.com")?));
//! let users = StoredUsers::new(Memory::new());
//! let ada = NewUser::new(UserId::parse("u-1815")?, Identifier::parse("ada")?)
//!     .identifier(Identifier::parse("ada@example.com")?)
//!     .contact(mailbox.clone());
//! let id = users.create(&acme, ada).await?;
//!
//! // whatever she types, it is her account
//! let found = users.find(&acme, &Identifier::parse(" Ada@Example.com")?).await?.ok_or("nobody")?;
//! assert_eq!(found.id(), &id);
//! assert!(found.has_verified(&mailbox));
//!
//! // and nobody else can have her name
//! let other = NewUser::new(UserId::parse("u-2")?, Identifier::parse("ADA")?);
//! assert!(matches!(users.create(&acme, other).await, Err(UserError::Taken)));
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Accounts of your own
//!
//! ```
//! use tollgate::{Account, Identifier, PasswordHash, Tenant, UserId, Users, store::{StoreError, StoreErrorKind}};
//! # struct Database;
//! # struct Person { id: String, password: String, locked: bool }
//! # impl Database {
//! #     async fn person_by_any_name(&self, _: &str, _: &str) -> Result<Option<Person>, std::io::Error> { Ok(None) }
//! # }
//!
//! struct People(Database);
//!
//! impl Users for People {
//!     async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
//!         let unreadable = |error| StoreError::new(StoreErrorKind::Unavailable, error);
//!         // one query, the same for names that are known and names that are not
//!         let person = self.0.person_by_any_name(tenant.as_str(), identifier.as_str()).await.map_err(unreadable)?;
//!         let Some(person) = person else { return Ok(None) };
//!         let corrupt = |_| StoreError::from(StoreErrorKind::Corrupt);
//!         let account = Account::new(UserId::parse(person.id).map_err(corrupt)?).disabled(person.locked);
//!         Ok(Some(match PasswordHash::parse(person.password) {
//!             Ok(hash) => account.password(hash),
//!             Err(_) => account, // of another kind: no password is right
//!         }))
//!     }
//! }
//! ```

mod account;
mod decoy;
mod email;
mod error;
mod identifier;
#[cfg(test)]
mod model;
mod names;
mod new;
mod phone;
#[cfg(test)]
mod races;
mod row;
mod stored;
mod users;

pub use self::{
    account::{Account, Contact},
    email::EmailAddress,
    error::{IdentifierError, UserError},
    identifier::Identifier,
    new::NewUser,
    phone::PhoneNumber,
    stored::StoredUsers,
    users::{AnyUsers, Users},
};
