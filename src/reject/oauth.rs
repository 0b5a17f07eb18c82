use bytes::Bytes;
use http::{HeaderValue, Response, header};

use super::{
    rejection::{Rejection, RejectionKind},
    respond::{Respond, with_status},
};
use crate::{http::head::Head, util::json_object::JsonObject};

/// Responds as OAuth endpoints do: an uncacheable document
/// `{"error":…,"error_description":…}` (RFC 6749 §5.2). Redirects and responses to gRPC
/// clients have no body.
///
/// Works with every body type that implements `From<Bytes>`, such as `Full` and the body
/// of axum.
#[derive(Clone, Copy, Debug, Default)]
pub struct OAuthJson;

impl<B: From<Bytes>> Respond<B> for OAuthJson {
    fn respond(&self, rejection: &Rejection, _: Head<'_>) -> Response<B> {
        if rejection.is_grpc() || rejection.kind() == RejectionKind::Redirect {
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

fn document(rejection: &Rejection) -> Bytes {
    // RFC 6749 §5.2 allows only these characters
    let allowed = |char: &char| matches!(char, '\x20'..='\x21' | '\x23'..='\x5b' | '\x5d'..='\x7e');
    let error = rejection.error_code().unwrap_or(error_code(rejection.kind()));
    let description: String = rejection.detail().chars().filter(allowed).collect();
    JsonObject::new().text("error", error).text("error_description", &description).end().into()
}

fn error_code(kind: RejectionKind) -> &'static str {
    match kind {
        RejectionKind::InvalidRequest => "invalid_request",
        RejectionKind::Unauthenticated | RejectionKind::Redirect => "login_required",
        RejectionKind::Forbidden => "access_denied",
        RejectionKind::RateLimited | RejectionKind::QuotaImpossible => "rate_limit_exceeded",
        RejectionKind::Unavailable => "temporarily_unavailable",
        // a document is not an error, and is never answered here
        RejectionKind::Internal | RejectionKind::Answered => "server_error",
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn oauth_response(kind: RejectionKind, detail: &'static str) -> Response<Bytes> {
        Rejection::new(kind, detail).into_response(Head::of_request(&Request::new(())), &OAuthJson)
    }

    #[test]
    fn c089_an_error_is_json_that_is_not_cached() {
        let response = oauth_response(RejectionKind::InvalidRequest, "code challenge required");
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["pragma"], "no-cache");
        assert_eq!(response.body(), r#"{"error":"invalid_request","error_description":"code challenge required"}"#);
    }

    #[test]
    fn every_kind_has_the_code_that_clients_know() {
        for (kind, status, error) in [
            (RejectionKind::InvalidRequest, 400, "invalid_request"),
            (RejectionKind::Unauthenticated, 401, "login_required"),
            (RejectionKind::Forbidden, 403, "access_denied"),
            (RejectionKind::RateLimited, 429, "rate_limit_exceeded"),
            (RejectionKind::QuotaImpossible, 429, "rate_limit_exceeded"),
            (RejectionKind::Unavailable, 503, "temporarily_unavailable"),
        ] {
            let response = oauth_response(kind, "words");
            assert_eq!(response.status(), status);
            assert_eq!(response.body(), &format!(r#"{{"error":"{error}","error_description":"words"}}"#));
        }
    }

    #[test]
    fn c016_a_description_has_only_allowed_characters() {
        let response = oauth_response(RejectionKind::Forbidden, "a \"b\" \\ c\r\n\té~");
        assert_eq!(response.body(), r#"{"error":"access_denied","error_description":"a b  c~"}"#);
    }

    #[test]
    fn a_grpc_client_gets_trailers() {
        let request = Request::builder().header("content-type", "application/grpc").body(()).unwrap();
        let rejection = Rejection::new(RejectionKind::Unavailable, "down");
        let response: Response<Bytes> = rejection.into_response(Head::of_request(&request), &OAuthJson);
        assert_eq!((response.status().as_u16(), &response.headers()["grpc-status"]), (200, &"14".parse().unwrap()));
        assert!(response.body().is_empty());
    }
}
