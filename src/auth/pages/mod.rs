//! The HTML that people see.

pub(crate) mod built;
pub(crate) mod colors;
pub(crate) mod consent;
pub(crate) mod custom;
mod logo;
pub(crate) mod logout;
pub(crate) mod page;
