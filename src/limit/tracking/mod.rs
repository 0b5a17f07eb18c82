//! Layers that know when a call ends: with the body of its response, or with its upgraded connection.
//!
//! | file | holds |
//! |---|---|
//! | `layer.rs` | [`TrackingLayer`] and [`MeteredLayer`], the layers |
//! | `settings.rs` | what they share with the gate, which opens a call for each admitted request |
//! | `usage.rs` | [`Usage`], the handle of an open call |
//! | `service.rs` | the service between the gate and the inner service, which ends the call |
//! | `body.rs` | [`Tracked`], the body that ends it |

mod body;
mod layer;
mod service;
pub(super) mod settings;
pub(super) mod usage;

pub use self::{
    body::Tracked,
    layer::{MeteredLayer, Tracking, TrackingLayer},
    service::{TrackedCalls, TrackedFuture, WithoutCall},
    usage::Usage,
};
