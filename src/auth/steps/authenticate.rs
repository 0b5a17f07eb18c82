//! `POST /authentication/authenticate` and `/authentication/verify-otp`.

use http::Response;

use super::enter::enter;
use crate::{
    auth::{
        context::stages::OwnLogin,
        http::{fields::Fields, problem::Problem},
        methods,
    },
    http::body::Body,
    policy::Method,
};

/// Proves a step, or opens a challenge.
pub(crate) async fn authenticate(own: &OwnLogin<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    let step = enter(own, fields).await?;
    let name = step.fields.method.as_deref().ok_or(Problem::invalid("method is missing"))?;
    match Method::from_name(name) {
        Some(method) => methods::begin(method, step).await,
        None => Err(step.unsupported("unknown method")),
    }
}

/// Proves a step with the code that was sent for it.
pub(crate) async fn verify_otp(own: &OwnLogin<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    methods::verify_otp(enter(own, fields).await?).await
}
