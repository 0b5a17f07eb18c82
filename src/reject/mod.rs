//! What a refused request gets: a [`Rejection`] says why, a [`Respond`] turns
//! it into a response of your body type.

mod oauth;
mod rejection;
mod respond;

pub use self::{
    oauth::OAuthJson,
    rejection::{Kind, Rejection},
    respond::{ProblemJson, Respond, StatusOnly},
};
