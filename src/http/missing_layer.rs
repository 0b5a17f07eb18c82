use axum_core::response::{IntoResponse, Response};
use http::StatusCode;

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
                parts.extensions.get::<Self>().cloned().ok_or(missing)
            }
        }

        impl<S: Sync> ::axum_core::extract::OptionalFromRequestParts<S> for $value {
            type Rejection = ::std::convert::Infallible;

            async fn from_request_parts(
                parts: &mut ::http::request::Parts,
                _: &S,
            ) -> Result<Option<Self>, ::std::convert::Infallible> {
                Ok(parts.extensions.get::<Self>().cloned())
            }
        }
    };
}
pub(crate) use extract_from_extensions;
