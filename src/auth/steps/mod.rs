//! The steps of a login.

pub(crate) mod complete;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod step;
