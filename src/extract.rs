//! What layers leave in a request, as extractors of axum (feature `axum`).

use std::{convert::Infallible, fmt};

use axum_core::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};

use crate::pkce::CodeChallenge;

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

impl<S: Sync> FromRequestParts<S> for CodeChallenge {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingLayer> {
        Self::from_extensions(&parts.extensions)
            .copied()
            .ok_or(MissingLayer { detail: "no PkceLayer or PkceBodyLayer guards this route" })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for CodeChallenge {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::from_extensions(&parts.extensions).copied())
    }
}
