//! The method `password`.

pub(crate) mod login;
