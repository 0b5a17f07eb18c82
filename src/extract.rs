//! Extractors for axum (feature `axum`).

use std::{convert::Infallible, fmt};

use axum_core::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, IntoResponseParts, Response, ResponseParts},
};
use http::{Extensions, HeaderValue, StatusCode, header, request::Parts};

#[cfg(feature = "bearer")]
use crate::bearer::{self, AccessToken};
#[cfg(feature = "session")]
use crate::pkce::CodeChallenge;
use crate::{http::cookie::SetCookie, limit::RateLimit, tenant::Tenant};
#[cfg(feature = "session")]
use crate::{
    session::{Session, SessionExtension},
    store::StoreError,
};

/// The rejection of an extractor whose layer does not cover the route. This is a bug of the server,
/// so the response is a 500.
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

/// Implements an extractor for a value that a layer inserts into the request extensions.
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

#[cfg(feature = "session")]
left_by_a_layer!(CodeChallenge, "no PkceLayer or PkceBodyLayer protects this route");
left_by_a_layer!(RateLimit, "no RateLimitLayer covers this route, or its extensions are disabled");

/// Returns the tenant that the application has put into a request, or the tenant of its access token or session. Without
/// both, it is the one that a rate limit has charged and the request has proved.
fn tenant_of(extensions: &Extensions) -> Option<&Tenant> {
    if let Some(own) = extensions.get() {
        return Some(own);
    }
    #[cfg(feature = "session")]
    if let Some(proved) = proved_tenant(extensions) {
        return proved;
    }
    Tenant::from_extensions(extensions)
}

/// Returns the tenant of a token, a session or both, if the request has one of them.
#[cfg(feature = "session")]
fn proved_tenant(extensions: &Extensions) -> Option<Option<&Tenant>> {
    let session = Session::from_extensions(extensions).map(Session::tenant);
    #[cfg(feature = "bearer")]
    if let Some(token) = AccessToken::from_extensions(extensions) {
        return Some(token.tenant().filter(|own| session.is_none_or(|session| session == *own)));
    }
    session.map(Some)
}

/// Extracts the tenant that the application has put into the request, or the tenant of the access token or session. Without
/// a token and a session, it is the tenant of the rate limit, if its source proves tenants, as API keys do.
///
/// There is no tenant if the token names none, if the token and the session are of different tenants, or if the limit has
/// charged an address or a name that the caller only claims. Then `Tenant` answers 500, and `Option<Tenant>` is `None`.
impl<S: Sync> FromRequestParts<S> for Tenant {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingLayer> {
        let missing =
            MissingLayer { detail: "no layer of this route proves the tenant, or its extensions are disabled" };
        tenant_of(&parts.extensions).cloned().ok_or(missing)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Tenant {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(tenant_of(&parts.extensions).cloned())
    }
}

/// A store that fails is a 503 without details, so that handlers can use `?` on the methods of `Sessions`.
#[cfg(feature = "session")]
impl IntoResponse for StoreError {
    fn into_response(self) -> Response {
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    }
}

/// The rejection of the [`Session`] extractor.
#[cfg(feature = "session")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionRejection {
    /// No `SessionLayer` covers the route. The response is a 500.
    MissingLayer(MissingLayer),
    /// The request has no session. The response is a 401 with this `WWW-Authenticate` challenge.
    NoSession(HeaderValue),
}

#[cfg(feature = "session")]
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

#[cfg(feature = "session")]
const NO_SESSION_LAYER: MissingLayer = MissingLayer { detail: "no SessionLayer covers this route" };

#[cfg(feature = "session")]
impl<S: Sync> FromRequestParts<S> for Session {
    type Rejection = SessionRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, SessionRejection> {
        match parts.extensions.get() {
            Some(SessionExtension::Present(session)) => Ok(session.clone()),
            Some(SessionExtension::Absent(challenge)) => Err(SessionRejection::NoSession(challenge.clone())),
            None => Err(SessionRejection::MissingLayer(NO_SESSION_LAYER)),
        }
    }
}

/// A missing layer is an error and not `None`, because it would make every caller anonymous.
#[cfg(feature = "session")]
impl<S: Sync> OptionalFromRequestParts<S> for Session {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, MissingLayer> {
        match parts.extensions.get() {
            Some(SessionExtension::Present(session)) => Ok(Some(session.clone())),
            Some(SessionExtension::Absent(_)) => Ok(None),
            None => Err(NO_SESSION_LAYER),
        }
    }
}

/// Adds the cookie to the response: `(cookie, Redirect::to("/"))`.
impl IntoResponseParts for SetCookie {
    type Error = Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Infallible> {
        self.append_to(response.headers_mut());
        Ok(response)
    }
}

/// The rejection of the [`AccessToken`] extractor.
#[cfg(feature = "bearer")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AccessTokenRejection {
    /// No `BearerLayer` covers the route. The response is a 500.
    MissingLayer(MissingLayer),
    /// The request has no token. The response is a 401 with this `WWW-Authenticate` challenge.
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
const NO_BEARER_LAYER: MissingLayer = MissingLayer { detail: "no BearerLayer covers this route" };

#[cfg(feature = "bearer")]
impl<S: Sync> FromRequestParts<S> for AccessToken {
    type Rejection = AccessTokenRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AccessTokenRejection> {
        match parts.extensions.get() {
            Some(bearer::TokenSlot::Taken { token, .. }) => Ok(token.clone()),
            Some(bearer::TokenSlot::Empty(challenge)) => Err(AccessTokenRejection::NoToken(challenge.clone())),
            None => Err(AccessTokenRejection::MissingLayer(NO_BEARER_LAYER)),
        }
    }
}

/// A missing layer is an error and not `None`, because it would make every caller anonymous.
#[cfg(feature = "bearer")]
impl<S: Sync> OptionalFromRequestParts<S> for AccessToken {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, MissingLayer> {
        match parts.extensions.get() {
            Some(bearer::TokenSlot::Taken { token, .. }) => Ok(Some(token.clone())),
            Some(bearer::TokenSlot::Empty(_)) => Ok(None),
            None => Err(NO_BEARER_LAYER),
        }
    }
}
