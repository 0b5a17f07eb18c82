//! Rejected requests: a [`Rejection`] says why, and a [`Respond`] turns it into a response
//! of your body type.

mod oauth;
mod rejection;
mod respond;

pub use self::{
    oauth::OAuthJson,
    rejection::{Rejection, RejectionKind},
    respond::{ProblemJson, Respond, StatusOnly},
};
