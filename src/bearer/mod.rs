//! Access tokens at an API.

#[cfg(all(test, feature = "tokens"))]
mod attacks;
mod cache;
mod claims;
mod gate;
mod keys;
mod layer;
mod presented;
mod refusal;
#[cfg(feature = "jwks")]
mod remote;
mod rules;
mod tenant;
#[cfg(all(test, feature = "tokens"))]
mod times;
mod token;
mod verifier;

#[cfg(feature = "jwks")]
pub use self::remote::RemoteKeys;
#[cfg(feature = "axum")]
pub(crate) use self::token::Slot;
pub(crate) use self::{
    claims::{Audience, Claims, Confirmation, TYPE},
    keys::{KeySource, Unavailable},
    presented::{Presented, Scheme},
    rules::check_name,
};
pub use self::{
    gate::{BearerGate, BearerPass},
    layer::BearerLayer,
    tenant::AccessTokenTenant,
    token::AccessToken,
    verifier::Verifier,
};
