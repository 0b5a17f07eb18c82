//! What layers leave in a request, as extractors of axum (feature `axum`).

use std::{convert::Infallible, fmt};

use axum_core::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};

use crate::{limit::RateLimit, pkce::CodeChallenge, tenant::Tenant};

/// A handler asks for what only a layer can give, and that layer is not before
/// it: the server's bug, so 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingLayer {
    detail: &'static str,
}

impl fmt::Display for MissingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail)
    }
}

impl std::error::Error for MissingLayer {}

impl IntoResponse for MissingLayer {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.detail).into_response()
    }
}

/// A value that a layer has left in the extensions of the request.
macro_rules! left_by_a_layer {
    ($value:ty, $missing:literal) => {
        impl<S: Sync> FromRequestParts<S> for $value {
            type Rejection = MissingLayer;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingLayer> {
                parts.extensions.get::<Self>().cloned().ok_or(MissingLayer { detail: $missing })
            }
        }

        impl<S: Sync> OptionalFromRequestParts<S> for $value {
            type Rejection = Infallible;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
                Ok(parts.extensions.get::<Self>().cloned())
            }
        }
    };
}

left_by_a_layer!(CodeChallenge, "no PkceLayer or PkceBodyLayer guards this route");
left_by_a_layer!(Tenant, "no RateLimitLayer is before this route, or it was told to leave no extensions");
left_by_a_layer!(
    RateLimit,
    "no RateLimitLayer with a quota is before this route, or it was told to leave no extensions"
);
