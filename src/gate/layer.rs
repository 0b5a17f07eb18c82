use std::{any::type_name, fmt, sync::Arc};

use tower_layer::Layer;

use super::{decision::Gate, service::Gated};
use crate::reject::StatusOnly;

/// Puts a [`Gate`] in front of a service.
#[must_use]
pub struct GateLayer<G, R = StatusOnly> {
    gate: Arc<G>,
    respond: R,
}

impl<G: Gate> GateLayer<G> {
    /// Creates a layer that answers rejected requests with a status and an empty body.
    pub fn new(gate: G) -> Self {
        Self { gate: Arc::new(gate), respond: StatusOnly }
    }
}

impl<G, R> GateLayer<G, R> {
    /// Sets how rejected requests are answered; see [`Respond`](crate::reject::Respond).
    pub fn respond_with<R2>(self, respond: R2) -> GateLayer<G, R2> {
        GateLayer { gate: self.gate, respond }
    }
}

impl<S, G, R: Clone> Layer<S> for GateLayer<G, R> {
    type Service = Gated<S, G, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::clone(&self.gate), self.respond.clone())
    }
}

impl<G, R: Clone> Clone for GateLayer<G, R> {
    fn clone(&self) -> Self {
        Self { gate: Arc::clone(&self.gate), respond: self.respond.clone() }
    }
}

impl<G, R> fmt::Debug for GateLayer<G, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateLayer").field("gate", &type_name::<G>()).field("respond", &type_name::<R>()).finish()
    }
}
