//! Passwords: hashed with argon2id, off the async threads, and checked at the
//! same cost whoever asks.
//!
//! ```
//! use tollgate::{Password, Passwords, password::Verdict};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let passwords = Passwords::new();
//! # let passwords = passwords.insecure_fast();
//! let stored = passwords.hash(Password::new("correct horse battery staple")).await?;
//! assert!(stored.as_str().starts_with("$argon2id$v=19$"));
//!
//! let right = passwords.verify(Password::new("correct horse battery staple"), Some(stored.clone())).await?;
//! assert!(matches!(right, Verdict::Right { rehashed: None, .. }));
//! let wrong = passwords.verify(Password::new("Correct Horse Battery Staple"), Some(stored)).await?;
//! assert!(matches!(wrong, Verdict::Wrong));
//! // nobody is known by this name: the same work, and the answer is no
//! let nobody = passwords.verify(Password::new("correct horse battery staple"), None).await?;
//! assert!(matches!(nobody, Verdict::Wrong));
//! # Ok::<_, tollgate::password::PasswordError>(()) }).unwrap();
//! ```
//!
//! # What an answer tells by its time
//!
//! A check is one run of argon2. Where there is no hash it is one of a decoy, at
//! the cost of today. Where the hash is of weaker parameters, a wrong password
//! costs as much more as is missing; a right one is hashed anew, which may take
//! longer, but by then the caller knows that it is right. Only a hash of
//! *stronger* parameters than those set takes longer than the decoy: don't lower
//! them while such are stored.

mod cost;
mod engine;
mod error;
mod hash;
#[expect(clippy::module_inception, reason = "it is what the module is about")]
mod password;
mod passwords;
#[cfg(test)]
mod proofs;

pub use self::{
    error::{PasswordError, PasswordErrorKind, PasswordHashError},
    hash::PasswordHash,
    password::Password,
    passwords::{Passwords, Verdict},
};
