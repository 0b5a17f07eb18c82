use bytes::Bytes;
use http::{HeaderValue, Response, header};
use serde::Serialize;

use super::{
    Kind, Rejection, Respond,
    respond::{grpc, with_status},
};

/// Answers as OAuth endpoints do: `{"error":…,"error_description":…}` as in RFC
/// 6749 §5.2, not to be cached; to a gRPC client with trailers.
///
/// A redirect has no body.
///
/// It works with every body that comes from `Bytes`: `Full`, axum's.
#[derive(Clone, Copy, Debug, Default)]
pub struct OAuthJson;

impl<B: From<Bytes>> Respond<B> for OAuthJson {
    fn respond(&self, rejection: &Rejection) -> Response<B> {
        if rejection.is_grpc() {
            return grpc(rejection, B::from(Bytes::new()));
        }
        if rejection.kind() == Kind::Redirect {
            return with_status(rejection.status(), B::from(Bytes::new()));
        }
        let mut response = with_status(rejection.status(), B::from(document(rejection)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
        response
    }
}

#[derive(Serialize)]
struct Document {
    error: &'static str,
    error_description: String,
}

fn document(rejection: &Rejection) -> Bytes {
    // the characters that RFC 6749 §5.2 allows
    let allowed = |char: &char| matches!(char, '\x20'..='\x21' | '\x23'..='\x5b' | '\x5d'..='\x7e');
    let document = Document {
        error: rejection.error_code().unwrap_or(error_code(rejection.kind())),
        error_description: rejection.detail().chars().filter(allowed).collect(),
    };
    serde_json::to_vec(&document).unwrap_or_default().into()
}

fn error_code(kind: Kind) -> &'static str {
    match kind {
        Kind::InvalidRequest | Kind::TooLarge | Kind::UnsupportedMediaType => "invalid_request",
        Kind::Unauthenticated | Kind::Redirect => "login_required",
        Kind::Forbidden => "access_denied",
        Kind::RateLimited | Kind::QuotaImpossible => "rate_limit_exceeded",
        Kind::Unavailable => "temporarily_unavailable",
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::http::head::Head;

    fn answer(kind: Kind, detail: &'static str) -> Response<Bytes> {
        Rejection::new(kind, detail).into_response(Head::of(&Request::new(())), &OAuthJson)
    }

    #[test]
    fn c089_an_error_is_json_that_is_not_cached() {
        let response = answer(Kind::InvalidRequest, "code challenge required");
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["pragma"], "no-cache");
        assert_eq!(response.body(), r#"{"error":"invalid_request","error_description":"code challenge required"}"#);
    }

    #[test]
    fn every_kind_has_the_code_that_clients_know() {
        for (kind, status, error) in [
            (Kind::InvalidRequest, 400, "invalid_request"),
            (Kind::Unauthenticated, 401, "login_required"),
            (Kind::Forbidden, 403, "access_denied"),
            (Kind::TooLarge, 413, "invalid_request"),
            (Kind::UnsupportedMediaType, 415, "invalid_request"),
            (Kind::RateLimited, 429, "rate_limit_exceeded"),
            (Kind::QuotaImpossible, 429, "rate_limit_exceeded"),
            (Kind::Unavailable, 503, "temporarily_unavailable"),
        ] {
            let response = answer(kind, "words");
            assert_eq!(response.status(), status);
            assert_eq!(response.body(), &format!(r#"{{"error":"{error}","error_description":"words"}}"#));
        }
    }

    #[test]
    fn c016_a_description_has_only_allowed_characters() {
        let response = answer(Kind::Forbidden, "a \"b\" \\ c\r\n\té~");
        assert_eq!(response.body(), r#"{"error":"access_denied","error_description":"a b  c~"}"#);
    }

    #[test]
    fn a_grpc_client_gets_trailers() {
        let request = Request::builder().header("content-type", "application/grpc").body(()).unwrap();
        let rejection = Rejection::new(Kind::TooLarge, "too long");
        let response: Response<Bytes> = rejection.into_response(Head::of(&request), &OAuthJson);
        assert_eq!((response.status().as_u16(), &response.headers()["grpc-status"]), (200, &"8".parse().unwrap()));
        assert!(response.body().is_empty());
    }
}
