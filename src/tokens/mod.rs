//! Tokens that a login service issues: [`Tokens`] has their keys and what becomes of them.

mod family;
mod issue;
mod keys;
mod mint;
#[cfg(test)]
mod nodes;
mod refresh;
mod revoked;
mod ring;
mod seal;
mod settings;
mod verify;

pub use self::settings::Tokens;
pub(crate) use self::{
    family::Authorized,
    issue::{Access, Denied, Issued, OFFLINE_ACCESS, Wish},
};
