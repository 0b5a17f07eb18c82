use std::{fmt, sync::Arc};

use tower_layer::Layer;

use super::{gate::PkceGate, scope::Scope};
use crate::{gate::Gated, http::head::Head, reject::StatusOnly, util::error::ConfigError};

/// Demands a code challenge by `S256` in the query: RFC 7636 §4.3.
///
/// A request without one, with another method, with a malformed one or with any
/// parameter twice is answered 400 (`invalid_request`) and never reaches the
/// service. What comes through has a [`CodeChallenge`](super::CodeChallenge) in
/// its extensions.
///
/// The answer is shown, not sent to the redirect URI: only the service behind
/// knows whether that URI is the client's, and only then may it be used.
#[must_use]
pub struct PkceLayer<R = StatusOnly> {
    scope: Scope,
    respond: R,
}

impl PkceLayer {
    /// A layer that guards one path, such as `/authorize`, whatever the method.
    ///
    /// The path is compared with the one that the layer sees: a router may have
    /// stripped a prefix. A slash at the end and percent sequences make no
    /// difference, for they make none to some routers.
    pub fn new(path: &str) -> Result<Self, ConfigError> {
        Ok(Self { scope: Scope::path(path)?, respond: StatusOnly })
    }

    /// A layer that guards every path, for a service that stands on its own route.
    pub fn everywhere() -> Self {
        Self { scope: Scope::EVERYWHERE, respond: StatusOnly }
    }
}

impl<R> PkceLayer<R> {
    /// Guards only those requests of the path for which this is true, such as
    /// those of one method. A second call takes the place of the first.
    pub fn protect_if(self, condition: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { scope: self.scope.narrowed(condition), respond: self.respond }
    }

    /// Chooses how rejections are answered; see [`OAuthJson`](crate::OAuthJson).
    pub fn respond_with<R2>(self, respond: R2) -> PkceLayer<R2> {
        PkceLayer { scope: self.scope, respond }
    }
}

impl<S, R: Clone> Layer<S> for PkceLayer<R> {
    type Service = Gated<S, PkceGate, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::new(PkceGate::new(self.scope.clone())), self.respond.clone())
    }
}

impl<R: Clone> Clone for PkceLayer<R> {
    fn clone(&self) -> Self {
        Self { scope: self.scope.clone(), respond: self.respond.clone() }
    }
}

impl<R> fmt::Debug for PkceLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PkceLayer").field("scope", &self.scope).finish_non_exhaustive()
    }
}
