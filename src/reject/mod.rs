//! Rejected requests: a [`Rejection`] contains the reason, and a [`Respond`] turns it into a
//! response of your body type.

pub(crate) mod grpc;
mod rejection;
mod respond;

pub use self::{
    rejection::{Rejection, RejectionKind},
    respond::{ProblemJson, Respond, StatusOnly},
};
#[cfg(feature = "axum")]
pub use crate::http::missing_layer::{MissingCredential, MissingLayer};
