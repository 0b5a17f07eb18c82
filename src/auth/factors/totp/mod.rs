//! The method `totp`: codes of authenticator apps.

pub(crate) mod account;
pub(crate) mod code;
mod qr;
pub(crate) mod settings;
