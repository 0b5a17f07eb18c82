use axum_core::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// The rejection of an extractor whose layer does not cover the route. This is a bug of the server,
/// so the response is a 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingLayer {
    detail: &'static str,
}

impl MissingLayer {
    pub(crate) const fn new(detail: &'static str) -> Self {
        Self { detail }
    }
}

crate::util::fmt::text_error!(MissingLayer, |own| own.detail);

impl IntoResponse for MissingLayer {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.detail).into_response()
    }
}

/// The rejection of an extractor of a session or an access token.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MissingCredential {
    /// No layer covers the route. The response is a 500.
    Layer(MissingLayer),
    /// The request has none. The response is a 401 with this `WWW-Authenticate` challenge.
    Challenge(HeaderValue),
}

impl IntoResponse for MissingCredential {
    fn into_response(self) -> Response {
        match self {
            Self::Layer(missing) => missing.into_response(),
            Self::Challenge(challenge) => {
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
            }
        }
    }
}

/// Implements extractors of a credential that a layer inserts into the extensions of a request, or else the challenge for a
/// 401. A missing layer is an error and not `None`, because it would make every caller anonymous.
#[allow(unused_macros, reason = "the features that use it can be off")]
macro_rules! extract_credential {
    ($value:ident, $missing:literal, $present:pat => $found:ident, $absent:pat => $challenge:ident) => {
        impl<S: Sync> ::axum_core::extract::FromRequestParts<S> for $value {
            type Rejection = $crate::http::missing_layer::MissingCredential;

            async fn from_request_parts(
                parts: &mut ::http::request::Parts,
                _: &S,
            ) -> Result<Self, $crate::http::missing_layer::MissingCredential> {
                match parts.extensions.get() {
                    Some($present) => Ok($found.clone()),
                    Some($absent) => Err($crate::http::missing_layer::MissingCredential::Challenge($challenge.clone())),
                    None => Err($crate::http::missing_layer::MissingCredential::Layer(
                        $crate::http::missing_layer::MissingLayer::new($missing),
                    )),
                }
            }
        }

        impl<S: Sync> ::axum_core::extract::OptionalFromRequestParts<S> for $value {
            type Rejection = $crate::http::missing_layer::MissingLayer;

            async fn from_request_parts(
                parts: &mut ::http::request::Parts,
                _: &S,
            ) -> Result<Option<Self>, $crate::http::missing_layer::MissingLayer> {
                match parts.extensions.get() {
                    Some($present) => Ok(Some($found.clone())),
                    Some(_) => Ok(None),
                    None => Err($crate::http::missing_layer::MissingLayer::new($missing)),
                }
            }
        }
    };
}
#[allow(unused_imports, reason = "the features that use it can be off")]
pub(crate) use extract_credential;

/// Implements extractors of a value that a layer inserts into the extensions of a request.
macro_rules! extract_from_extensions {
    ($value:ty, $missing:literal) => {
        impl<S: Sync> ::axum_core::extract::FromRequestParts<S> for $value {
            type Rejection = $crate::http::missing_layer::MissingLayer;

            async fn from_request_parts(
                parts: &mut ::http::request::Parts,
                _: &S,
            ) -> Result<Self, $crate::http::missing_layer::MissingLayer> {
                let missing = $crate::http::missing_layer::MissingLayer::new($missing);
                Self::from_extensions(&parts.extensions).cloned().ok_or(missing)
            }
        }

        impl<S: Sync> ::axum_core::extract::OptionalFromRequestParts<S> for $value {
            type Rejection = ::std::convert::Infallible;

            async fn from_request_parts(
                parts: &mut ::http::request::Parts,
                _: &S,
            ) -> Result<Option<Self>, ::std::convert::Infallible> {
                Ok(Self::from_extensions(&parts.extensions).cloned())
            }
        }
    };
}
pub(crate) use extract_from_extensions;
