use std::sync::Arc;

use tower_layer::Layer;

use super::{gate::PkceGate, scope::Scope};
use crate::{
    event::EventLog,
    gate::Gated,
    reject::StatusOnly,
    util::{builder::setters, error::ConfigError},
};

/// Requires an S256 code challenge in the query (RFC 7636 §4.3).
///
/// A request gets a 400 (`invalid_request`) and never reaches the service if its challenge is
/// missing or malformed, if it uses another method, or if a parameter is repeated. Admitted
/// requests have a [`CodeChallenge`](super::CodeChallenge) in their extensions.
///
/// CORS preflights pass without a challenge, because browsers send none with them.
///
/// The error is shown and not sent to the redirect URI, because only the service behind the layer
/// can tell whether the client has registered that URI.
#[derive(Clone)]
#[must_use]
pub struct PkceLayer<R = StatusOnly> {
    gate: PkceGate,
    respond: R,
}

impl PkceLayer {
    /// Creates a layer that protects all methods of one path, such as `/authorize`.
    ///
    /// The path is compared with the path that the layer sees, which may lack a prefix that a
    /// router has stripped. Trailing slashes and percent-encoding are ignored in the comparison,
    /// because some routers ignore them.
    ///
    /// # Errors
    ///
    /// Returns an error unless `path` is a plain path.
    pub fn new(path: &str) -> Result<Self, ConfigError> {
        Ok(Self::in_scope(Scope::path(path)?))
    }

    /// Creates a layer that protects all paths, for services that are mounted on a route of their
    /// own.
    pub fn everywhere() -> Self {
        Self::in_scope(Scope::EVERYWHERE)
    }

    fn in_scope(scope: Scope) -> Self {
        Self { gate: PkceGate { scope, log: None }, respond: StatusOnly }
    }
}

impl<R> PkceLayer<R> {
    setters! {
        /// Counts rejections in this log, as events of the kind
        /// [`PkceRefused`](crate::event::EventKind::PkceRefused).
        pub fn events(log: EventLog) { gate.log: Some(log) }
    }

    /// Sets how rejections are answered; see [`Respond`](crate::reject::Respond).
    pub fn respond_with<R2>(self, respond: R2) -> PkceLayer<R2> {
        PkceLayer { gate: self.gate, respond }
    }
}

impl<S, R: Clone> Layer<S> for PkceLayer<R> {
    type Service = Gated<S, PkceGate, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::new(self.gate.clone()), self.respond.clone())
    }
}

crate::util::fmt::debug_fields!(PkceLayer<R>, |own| scope: own.gate.scope);
