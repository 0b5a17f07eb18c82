//! Rejected requests: a [`Rejection`] contains the reason, and a [`Respond`] turns it into a
//! response of your body type.

pub(crate) mod grpc;
mod oauth;
mod rejection;
mod respond;

pub use self::{
    oauth::OAuthJson,
    rejection::{Rejection, RejectionKind},
    respond::{ProblemJson, Respond, StatusOnly},
};
#[cfg(feature = "axum")]
pub use crate::http::missing_layer::{MissingCredential, MissingLayer};
