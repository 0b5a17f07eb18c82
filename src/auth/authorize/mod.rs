//! The authorization request, its checks, and the code.

pub(crate) mod claims;
pub(crate) mod code;
pub(crate) mod endpoint;
pub(crate) mod hint;
pub(crate) mod par;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod signed_in;
pub(crate) mod wishes;
