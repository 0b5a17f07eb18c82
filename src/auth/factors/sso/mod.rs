//! The method `sso`: accounts at other identity providers.

#[cfg(feature = "sso")]
pub(crate) mod callback;
#[cfg(feature = "sso")]
pub(crate) mod linking;
pub(crate) mod links;
#[cfg(feature = "sso")]
pub(crate) mod login;
#[cfg(feature = "sso")]
mod refusal;
