//! How each method proves a user.

pub(crate) mod attempt;
pub(crate) mod otp;
pub(crate) mod password;
