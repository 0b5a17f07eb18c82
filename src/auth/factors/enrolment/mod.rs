//! Enrols credentials: on the account page, and within a login.

pub(crate) mod call;
pub(crate) mod factors;
pub(crate) mod fresh_proofs;
pub(crate) mod freshness;
pub(crate) mod in_login;
pub(crate) mod new_credential;
pub(crate) mod pending;
