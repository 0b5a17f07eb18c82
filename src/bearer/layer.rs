use std::{any::type_name, fmt, sync::Arc};

use tower_layer::Layer;

use super::{gate::BearerGate, rejections::BearerRejections, verifier::Verifier};
use crate::{gate::Gated, limit::AnyLimiter, reject::StatusOnly, util::error::ConfigError};

/// Requires a valid access token, and provides it as [`AccessToken`](super::AccessToken).
///
/// The [module documentation](super) lists the responses to rejected requests. Around an `InterceptorLayer` of tonic, it needs
/// one more line: see [`StatusOnly`](crate::reject::StatusOnly#interceptors-of-tonic).
#[must_use]
pub struct BearerLayer<R = StatusOnly> {
    gate: BearerGate,
    respond: R,
}

impl BearerLayer {
    /// Creates a layer that admits requests with a token that the verifier accepts.
    pub fn new(verifier: Verifier) -> Self {
        let rejections = Arc::new(BearerRejections::new(verifier.possession().is_on()));
        let gate = BearerGate { verifier, optional: false, rejections, limit: None };
        Self { gate, respond: StatusOnly }
    }
}

impl<R> BearerLayer<R> {
    /// Requires a scope, such as `orders:read`. Can be called several times to require several
    /// scopes. By default any valid token is sufficient.
    ///
    /// # Errors
    ///
    /// Returns an error unless `scope` is a valid scope name.
    pub fn require_scope(mut self, scope: &str) -> Result<Self, ConfigError> {
        Arc::make_mut(&mut self.gate.rejections).require(scope)?;
        Ok(self)
    }

    /// Admits requests without a token. Requests with an invalid token are still rejected, because
    /// the caller did not intend to be anonymous.
    pub fn optional(mut self) -> Self {
        self.gate.optional = true;
        self
    }

    /// Charges each request with a verified token to the token's tenant. Requests beyond the budget get a 429.
    ///
    /// Callers can't forge this tenant. The charge comes before a DPoP proof is remembered, so the budget also bounds the
    /// memory for proofs, which an inner [`RateLimitLayer`](crate::RateLimitLayer) can't. Tokens without a tenant share
    /// the budget of [`LimitKey::anonymous`](crate::LimitKey::anonymous). Requests without a valid token are not charged:
    /// limit them by address in an outer layer.
    ///
    /// ```
    /// # use tollgate::{BearerLayer, Limiter, Quota, Plans, testing::TestIssuer};
    /// # let issuer = TestIssuer::new("https://auth.example", "https://api.example");
    /// let limiter = Limiter::memory(Plans::new(Quota::per_minute(600)?));
    /// let layer = BearerLayer::new(issuer.verifier()).limit(limiter);
    /// # Ok::<_, tollgate::ConfigError>(())
    /// ```
    pub fn limit(mut self, limiter: impl Into<AnyLimiter>) -> Self {
        self.gate.set_limiter(limiter);
        self
    }

    /// Sets the realm in `WWW-Authenticate`. Defaults to `api`.
    ///
    /// # Errors
    ///
    /// Returns an error unless `realm` is printable ASCII without quotes.
    pub fn realm(mut self, realm: &str) -> Result<Self, ConfigError> {
        Arc::make_mut(&mut self.gate.rejections).set_realm(realm)?;
        Ok(self)
    }

    /// Sets how rejections are answered; see [`Respond`](crate::reject::Respond).
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
