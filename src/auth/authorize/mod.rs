//! The authorization request, its checks, and the code.

pub(crate) mod claims_parameter;
pub(crate) mod oidc;
pub(crate) mod request;
pub(crate) mod query;
mod sharing;
pub(crate) mod expected_user;
pub(crate) mod session;
pub(crate) mod completed;
pub(crate) mod proved_logins;
mod consent;
pub(crate) mod code;
pub(crate) mod endpoint;
pub(crate) mod par;
