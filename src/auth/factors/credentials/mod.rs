//! The credentials that users have enrolled here: passkeys, authenticator apps, recovery codes and accounts at other identity
//! providers.
//!
//! One row holds everything of a user. Index rows lead from a passkey or an account at a provider to its user.

#[cfg(test)]
mod faults;
pub(crate) mod row;
pub(crate) mod credential;
pub(crate) mod table;
