//! The credentials that users have enrolled here: passkeys, authenticator apps, recovery codes and accounts at other identity providers.
//!
//! One row holds everything of a user. Index rows lead from a passkey or an account at a provider to its user.

#[cfg(test)]
mod faults;
mod owners;
mod qr;
mod recovery;
mod row;
mod strength;
mod table;
mod totp;

pub(crate) use self::{
    recovery::{RECOVERY_CODES, RecoveryCode},
    row::{CodeDigest, Credentials, MOST_PASSKEYS, Passkey, RecoveryCodes, SsoLink, TotpAlgorithm, TotpKey, TotpKind},
    strength::Strength,
    table::{Added, CredentialTable, Removed},
    totp::{NewTotp, PendingTotp},
};
