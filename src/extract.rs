//! What layers leave in a request, as extractors of axum (feature `axum`).

use std::{convert::Infallible, fmt};

use axum_core::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header, request::Parts};

#[cfg(feature = "bearer")]
use crate::bearer::{self, AccessToken};
use crate::{
    limit::RateLimit,
    pkce::CodeChallenge,
    session::{Session, Slot},
    tenant::Tenant,
};

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
left_by_a_layer!(RateLimit, "no RateLimitLayer is before this route, or it was told to leave no extensions");

/// An authenticated tenant, or else the one that a rate limit has charged.
impl<S: Sync> FromRequestParts<S> for Tenant {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingLayer> {
        Self::from_extensions(&parts.extensions).cloned().ok_or(MissingLayer {
            detail: "no RateLimitLayer is before this route, or it was told to leave no extensions",
        })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Tenant {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::from_extensions(&parts.extensions).cloned())
    }
}

/// Why a handler gets no [`Session`].
#[derive(Clone, Debug)]
pub enum SessionRejection {
    /// No `SessionLayer` is before the route: 500.
    MissingLayer(MissingLayer),
    /// The request has no session: 401, with what its `WWW-Authenticate` asks for.
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

const NO_SESSION_LAYER: MissingLayer = MissingLayer { detail: "no SessionLayer is before this route" };

impl<S: Sync> FromRequestParts<S> for Session {
    type Rejection = SessionRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, SessionRejection> {
        match parts.extensions.get() {
            Some(Slot::Taken(session)) => Ok(session.clone()),
            Some(Slot::Empty(challenge)) => Err(SessionRejection::NoSession(challenge.clone())),
            None => Err(SessionRejection::MissingLayer(NO_SESSION_LAYER)),
        }
    }
}

/// Without the layer it is no `None`: a forgotten layer would make everyone anonymous.
impl<S: Sync> OptionalFromRequestParts<S> for Session {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, MissingLayer> {
        match parts.extensions.get() {
            Some(Slot::Taken(session)) => Ok(Some(session.clone())),
            Some(Slot::Empty(_)) => Ok(None),
            None => Err(NO_SESSION_LAYER),
        }
    }
}

/// Why a handler gets no [`AccessToken`].
#[cfg(feature = "bearer")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AccessTokenRejection {
    /// No `BearerLayer` is before the route: 500.
    MissingLayer(MissingLayer),
    /// The request has no token: 401, with what its `WWW-Authenticate` asks for.
    NoToken(HeaderValue),
}

#[cfg(feature = "bearer")]
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

#[cfg(feature = "bearer")]
const NO_BEARER_LAYER: MissingLayer = MissingLayer { detail: "no BearerLayer is before this route" };

#[cfg(feature = "bearer")]
impl<S: Sync> FromRequestParts<S> for AccessToken {
    type Rejection = AccessTokenRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AccessTokenRejection> {
        match parts.extensions.get() {
            Some(bearer::Slot::Taken { token, .. }) => Ok(token.clone()),
            Some(bearer::Slot::Empty(challenge)) => Err(AccessTokenRejection::NoToken(challenge.clone())),
            None => Err(AccessTokenRejection::MissingLayer(NO_BEARER_LAYER)),
        }
    }
}

/// Without the layer it is no `None`: a forgotten layer would make everyone anonymous.
#[cfg(feature = "bearer")]
impl<S: Sync> OptionalFromRequestParts<S> for AccessToken {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, MissingLayer> {
        match parts.extensions.get() {
            Some(bearer::Slot::Taken { token, .. }) => Ok(Some(token.clone())),
            Some(bearer::Slot::Empty(_)) => Ok(None),
            None => Err(NO_BEARER_LAYER),
        }
    }
}
