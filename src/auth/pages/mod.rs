//! The HTML that people see.

#[cfg(feature = "tokens")]
pub(crate) mod logout;
pub(crate) mod page;
