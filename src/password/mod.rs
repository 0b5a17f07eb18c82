//! Passwords: hashing them with argon2id and checking them with constant work, away from the async threads.
//!
//! ```
//! use tollgate::{Password, Passwords, password::Verdict};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let passwords = Passwords::new();
//! # let passwords = Passwords::insecure_fast();
//! let stored = passwords.hash(Password::new("correct horse battery staple")).await?;
//! assert!(stored.as_str().starts_with("$argon2id$v=19$"));
//!
//! let right = passwords.verify(Password::new("correct horse battery staple"), Some(stored.clone())).await?;
//! assert!(matches!(right, Verdict::Right { rehashed: None, .. }));
//! let wrong = passwords.verify(Password::new("Correct Horse Battery Staple"), Some(stored)).await?;
//! assert!(matches!(wrong, Verdict::Wrong));
//! // unknown user: the same work, and the password is wrong
//! let unknown = passwords.verify(Password::new("correct horse battery staple"), None).await?;
//! assert!(matches!(unknown, Verdict::Wrong));
//! # Ok::<_, tollgate::password::PasswordError>(()) }).unwrap();
//! ```
//!
//! The login service checks passwords through [`Users::verify_password`](crate::Users::verify_password), which also
//! supports other kinds of hashes.
//!
//! # Timing
//!
//! A check is one run of argon2. Without a hash, a decoy is checked at the current cost. If the hash has weaker
//! parameters, a wrong password costs a second run that makes up for the difference. A right one is hashed again, which
//! may take longer, but the caller learns anyway that it is right. Only a hash with *stronger* parameters than the
//! current ones takes longer than the decoy, so don't lower the parameters while such hashes are stored.

// Each module uses only modules listed above it.
mod recipe;
mod hash;
mod mark;
#[expect(clippy::module_inception, reason = "it is the subject of the module")]
mod password;
mod memory;
mod turns;
mod engine;
mod passwords;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use self::hash::{ForeignHash, StoredPassword};
pub use self::{
    engine::Verdict,
    hash::{PasswordHash, PasswordHashError},
    mark::PasswordMark,
    password::Password,
    passwords::{PasswordError, PasswordErrorKind, Passwords, PasswordsBuilder},
    rules::{BreachedPasswords, PasswordFault, PasswordRules},
};
