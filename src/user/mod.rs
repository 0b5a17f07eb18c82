//! User accounts: your own behind the trait [`Users`], or [`StoredUsers`], which keeps them in a store.
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
//! // any of her identifiers finds the account, and so does the id
//! let found = users.find(&acme, &Identifier::parse(" Ada@Example.com")?).await?.ok_or("unknown")?;
//! assert_eq!(found.id(), &id);
//! assert!(found.has_verified(&mailbox));
//! assert!(users.by_id(&acme, &id).await?.is_some());
//!
//! // no other account can have her name
//! let other = NewUser::new(UserId::parse("u-2")?, Identifier::parse("ADA")?);
//! assert!(matches!(users.create(&acme, other).await, Err(UserError::Taken)));
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Accounts of your own
//!
//! Implement [`Users`] for your database, with its own error type:
//!
//! ```
//! use tollgate::{Identifier, Tenant, UserId, Users, password::PasswordHash, user::Account};
//! use tollgate::user::{Claims, ClaimsRequest};
//! # struct Database;
//! # struct Person { id: String, password: String, locked: bool }
//! # impl Database {
//! #     async fn person_by_any_name(&self, _: &str, _: &str) -> Result<Option<Person>, std::io::Error> { Ok(None) }
//! #     async fn person_by_id(&self, _: &str, _: &str) -> Result<Option<Person>, std::io::Error> { Ok(None) }
//! #     async fn roles_of(&self, _: &str, _: &str) -> Result<Vec<String>, std::io::Error> { Ok(Vec::new()) }
//! # }
//!
//! struct People(Database);
//!
//! #[derive(Debug)]
//! enum PeopleError {
//!     Database(std::io::Error),
//!     Invalid(Box<dyn std::error::Error + Send + Sync>),
//! }
//! # impl std::fmt::Display for PeopleError {
//! #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("people") }
//! # }
//! # impl std::error::Error for PeopleError {}
//! # impl From<std::io::Error> for PeopleError { fn from(error: std::io::Error) -> Self { Self::Database(error) } }
//!
//! fn account(person: Person) -> Result<Account, PeopleError> {
//!     let id = UserId::parse(person.id).map_err(|error| PeopleError::Invalid(error.into()))?;
//!     let hash = PasswordHash::parse(person.password).map_err(|error| PeopleError::Invalid(error.into()))?;
//!     Ok(Account::new(id).password(hash).disabled(person.locked))
//! }
//!
//! impl Users for People {
//!     type Error = PeopleError;
//!
//!     async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, PeopleError> {
//!         // one query, whether the name is known or not
//!         let person = self.0.person_by_any_name(tenant.as_str(), identifier.as_str()).await?;
//!         person.map(account).transpose()
//!     }
//!
//!     async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, PeopleError> {
//!         let person = self.0.person_by_id(tenant.as_str(), id.as_str()).await?;
//!         person.map(account).transpose()
//!     }
//!
//!     // optional: the user's roles, for clients with the scope `roles`
//!     async fn claims(
//!         &self,
//!         tenant: &Tenant,
//!         account: &Account,
//!         request: &ClaimsRequest,
//!     ) -> Result<Claims, PeopleError> {
//!         let mut claims = Claims::new();
//!         if request.has_scope("roles") {
//!             let roles = self.0.roles_of(tenant.as_str(), account.id().as_str()).await?;
//!             claims.insert("roles", roles).map_err(|error| PeopleError::Invalid(error.into()))?;
//!         }
//!         Ok(claims)
//!     }
//! }
//! ```
//!
//! # Other password hashes
//!
//! An account can carry a hash of another kind, such as bcrypt, as its [foreign hash](Account::foreign_hash). Override
//! [`Users::verify_password`] to check it. The example `bcrypt_users` shows this, and replaces each hash with argon2 at
//! the first successful login.

// Each module uses only modules listed above it.
mod contact;
mod identifier;
mod account;
mod password_attempt;
mod claims;
mod changes;
mod users;
mod any;
mod stored;
pub(crate) mod sign_up;

pub use self::{
    account::{Account, NewUser},
    any::AnyUsers,
    changes::{AccountChange, NewAccount, OfferedChange},
    claims::{ClaimError, ClaimTarget, Claims, ClaimsRequest},
    contact::{Contact, EmailAddress, IdentifierError, PhoneNumber},
    identifier::Identifier,
    password_attempt::{PasswordAttempt, PasswordCheck, PasswordUpgrade},
    stored::{StoredUsers, UserError},
    users::{AccountPage, Users},
};
