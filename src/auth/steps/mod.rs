//! The calls of a login, from its start to `complete`.

pub(crate) mod authenticate;
pub(crate) mod choices;
pub(crate) mod complete;
pub(crate) mod enrol;
pub(crate) mod login_page;
mod enter;
#[cfg(feature = "external-providers")]
pub(crate) mod sso_callback;
pub(crate) mod start;
pub(crate) mod status;
