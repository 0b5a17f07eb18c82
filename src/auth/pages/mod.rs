//! The HTML that people see.

pub(crate) mod custom;
pub(crate) mod logout;
pub(crate) mod page;
