//! Finds the endpoints and the keys of a remote issuer: its metadata, its key set, and when both are fetched again.
//!
//! `BearerLayer` and the single sign-on providers share it.

mod fetch;
mod key_cache;
mod lifetime;
mod metadata;
mod source;

#[cfg(feature = "login")]
pub(crate) use self::metadata::Endpoints;
pub(crate) use self::{
    fetch::{Fetch, KeysLocation},
    metadata::DescribedIssuer,
    source::RemoteIssuer,
};
