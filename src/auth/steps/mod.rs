//! The calls of a login from its start to `complete`, except those that prove a step: they are in `factors/mod.rs`.

pub(crate) mod choices;
pub(crate) mod complete;
mod links;
pub(crate) mod login_page;
pub(crate) mod reset;
pub(crate) mod sign_up;
pub(crate) mod start;
