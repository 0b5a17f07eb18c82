use std::{any::type_name, fmt, sync::Arc};

use tower_layer::Layer;

use super::{gate::BearerGate, rejections::BearerRejections, verifier::Verifier};
use crate::{gate::Gated, reject::StatusOnly, util::error::ConfigError};

/// Lets only requests with a valid access token through, each with its [`AccessToken`](super::AccessToken).
///
/// See the [module docs](super) for what is refused and why.
#[must_use]
pub struct BearerLayer<R = StatusOnly> {
    gate: BearerGate,
    respond: R,
}

impl BearerLayer {
    /// A layer that lets requests with a token through that the verifier accepts.
    pub fn new(verifier: Verifier) -> Self {
        let rejections = Arc::new(BearerRejections::new(verifier.possession().is_on()));
        let gate = BearerGate { verifier, optional: false, rejections };
        Self { gate, respond: StatusOnly }
    }
}

impl<R> BearerLayer<R> {
    /// Lets only tokens through that have this scope, such as `orders:read`. Called several times, a token needs all of
    /// them. Without, any valid token is enough.
    pub fn require_scope(mut self, scope: &str) -> Result<Self, ConfigError> {
        Arc::make_mut(&mut self.gate.rejections).require(scope)?;
        Ok(self)
    }

    /// Lets requests without a token through too. One with a token that is not valid is refused all the same: it would be
    /// served as nobody's.
    pub fn optional(mut self) -> Self {
        self.gate.optional = true;
        self
    }

    /// The realm in `WWW-Authenticate`, otherwise `api`.
    pub fn realm(mut self, realm: &str) -> Result<Self, ConfigError> {
        Arc::make_mut(&mut self.gate.rejections).set_realm(realm)?;
        Ok(self)
    }

    /// Chooses how refusals are answered; see [`Respond`](crate::Respond).
    pub fn respond_with<R2>(self, respond: R2) -> BearerLayer<R2> {
        BearerLayer { gate: self.gate, respond }
    }
}

impl<S, R: Clone> Layer<S> for BearerLayer<R> {
    type Service = Gated<S, BearerGate, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::new(self.gate.clone()), self.respond.clone())
    }
}

impl<R: Clone> Clone for BearerLayer<R> {
    fn clone(&self) -> Self {
        Self { gate: self.gate.clone(), respond: self.respond.clone() }
    }
}

impl<R> fmt::Debug for BearerLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerLayer").field("gate", &self.gate).field("respond", &type_name::<R>()).finish()
    }
}
