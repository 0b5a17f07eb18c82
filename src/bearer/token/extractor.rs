//! The axum extractor of access tokens.

use axum_core::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header, request::Parts};

use super::{AccessToken, TokenSlot};
use crate::http::missing_layer::MissingLayer;

/// The rejection of the [`AccessToken`] extractor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AccessTokenRejection {
    /// No `BearerLayer` covers the route. The response is a 500.
    MissingLayer(MissingLayer),
    /// The request has no token. The response is a 401 with this `WWW-Authenticate` challenge.
    NoToken(HeaderValue),
}

impl IntoResponse for AccessTokenRejection {
    fn into_response(self) -> Response {
        match self {
            Self::MissingLayer(missing) => missing.into_response(),
            Self::NoToken(challenge) => {
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
            }
        }
    }
}

const NO_LAYER: MissingLayer = MissingLayer::new("no BearerLayer covers this route");

impl<S: Sync> FromRequestParts<S> for AccessToken {
    type Rejection = AccessTokenRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AccessTokenRejection> {
        match parts.extensions.get() {
            Some(TokenSlot::Taken { token, .. }) => Ok(token.clone()),
            Some(TokenSlot::Empty(challenge)) => Err(AccessTokenRejection::NoToken(challenge.clone())),
            None => Err(AccessTokenRejection::MissingLayer(NO_LAYER)),
        }
    }
}

/// A missing layer is an error and not `None`, because it would make every caller anonymous.
impl<S: Sync> OptionalFromRequestParts<S> for AccessToken {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, MissingLayer> {
        match parts.extensions.get() {
            Some(TokenSlot::Taken { token, .. }) => Ok(Some(token.clone())),
            Some(TokenSlot::Empty(_)) => Ok(None),
            None => Err(NO_LAYER),
        }
    }
}
