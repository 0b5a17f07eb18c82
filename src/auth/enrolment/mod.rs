//! Enrols passkeys and authenticator apps, on the account page and within a login.

pub(crate) mod factors;
pub(crate) mod fresh_proofs;
pub(crate) mod new_credential;
pub(crate) mod new_passkey;
pub(crate) mod pending;
