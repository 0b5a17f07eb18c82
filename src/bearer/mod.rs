//! Access tokens at an API.

mod cache;
mod claims;
mod gate;
mod keys;
mod layer;
mod presented;
mod refusal;
mod rules;
mod tenant;
mod token;
mod verifier;

#[cfg(feature = "axum")]
pub(crate) use self::token::Slot;
pub(crate) use self::{
    claims::{Audience, Claims, Confirmation, TYPE},
    keys::{KeySource, Unavailable},
    rules::check_name,
};
pub use self::{
    gate::{BearerGate, BearerPass},
    layer::BearerLayer,
    tenant::AccessTokenTenant,
    token::AccessToken,
    verifier::Verifier,
};
