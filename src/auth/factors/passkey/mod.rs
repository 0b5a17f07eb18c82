//! The method `passkey`.

pub(crate) mod account;
pub(crate) mod enrol;
pub(crate) mod login;
pub(crate) mod settings;
