//! The axum extractor of sessions.

use axum_core::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header, request::Parts};

use super::session::{Session, SessionExtension};
use crate::http::missing_layer::MissingLayer;

/// The rejection of the [`Session`] extractor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionRejection {
    /// No `SessionLayer` covers the route. The response is a 500.
    MissingLayer(MissingLayer),
    /// The request has no session. The response is a 401 with this `WWW-Authenticate` challenge.
    NoSession(HeaderValue),
}

impl IntoResponse for SessionRejection {
    fn into_response(self) -> Response {
        match self {
            Self::MissingLayer(missing) => missing.into_response(),
            Self::NoSession(challenge) => {
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
            }
        }
    }
}

const NO_LAYER: MissingLayer = MissingLayer::new("no SessionLayer covers this route");

impl<S: Sync> FromRequestParts<S> for Session {
    type Rejection = SessionRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, SessionRejection> {
        match parts.extensions.get() {
            Some(SessionExtension::Present(session)) => Ok(session.clone()),
            Some(SessionExtension::Absent(challenge)) => Err(SessionRejection::NoSession(challenge.clone())),
            None => Err(SessionRejection::MissingLayer(NO_LAYER)),
        }
    }
}

/// A missing layer is an error and not `None`, because it would make every caller anonymous.
impl<S: Sync> OptionalFromRequestParts<S> for Session {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, MissingLayer> {
        match parts.extensions.get() {
            Some(SessionExtension::Present(session)) => Ok(Some(session.clone())),
            Some(SessionExtension::Absent(_)) => Ok(None),
            None => Err(NO_LAYER),
        }
    }
}
