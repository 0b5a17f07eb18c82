//! The HTML that people see.

pub(crate) mod custom;
#[cfg(feature = "tokens")]
pub(crate) mod logout;
pub(crate) mod page;
