//! `POST /authentication/authenticate` and `/authentication/verify-otp`.

use http::Response;

use super::enter::enter;
use crate::{
    auth::{
        context::RequestContext,
        factors,
        http::{fields::Fields, problem::Problem},
    },
    http::body::Body,
    policy::Method,
};

/// Proves a step, or opens a challenge.
pub(crate) async fn authenticate(cx: &mut RequestContext<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    let step = enter(cx, fields).await?;
    let name = step.fields.method.as_deref().ok_or(Problem::invalid("method is missing"))?;
    match Method::from_name(name) {
        Some(method) => factors::begin(method, step).await,
        None => Err(step.unsupported("unknown method")),
    }
}

/// Proves a step with the code that was sent for it.
pub(crate) async fn verify_otp(cx: &mut RequestContext<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    factors::otp::login::verify(enter(cx, fields).await?).await
}
