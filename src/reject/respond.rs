use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::{Kind, Rejection};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Turns a [`Rejection`] into a response with the body type of your service.
///
/// A closure is one too:
///
/// ```
/// use http::Response;
/// use tollgate::{Rejection, Respond};
///
/// fn page() -> impl Respond<String> {
///     |rejection: &Rejection| {
///         let mut response = Response::new(format!("<h1>{}</h1>", rejection.detail()));
///         *response.status_mut() = rejection.status();
///         response
///     }
/// }
/// # page();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't make a response with the body `{B}`",
    note = "`StatusOnly` needs `{B}: Default`, `ProblemJson` and `OAuthJson` need `{B}: From<bytes::Bytes>`; for any other body pass a closure `|rejection: &Rejection| -> Response<{B}>`"
)]
pub trait Respond<B>: Clone {
    /// Makes the response. The rejection's own headers are added afterwards.
    fn respond(&self, rejection: &Rejection) -> Response<B>;
}

impl<F, B> Respond<B> for F
where
    F: Fn(&Rejection) -> Response<B> + Clone,
{
    fn respond(&self, rejection: &Rejection) -> Response<B> {
        self(rejection)
    }
}

/// Answers with the status and an empty body; to a gRPC client with trailers.
///
/// It works with every body that has a default: `Full`, `Empty`, axum's,
/// tonic's, `BoxBody`.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusOnly;

impl<B: Default> Respond<B> for StatusOnly {
    fn respond(&self, rejection: &Rejection) -> Response<B> {
        if rejection.is_grpc() {
            return grpc(rejection, B::default());
        }
        with_status(rejection.status(), B::default())
    }
}

/// Answers with a problem document (RFC 9457); to a gRPC client with trailers.
/// A redirect is no problem and has no body.
///
/// It works with every body that comes from `Bytes`: `Full`, axum's.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<B: From<Bytes>> Respond<B> for ProblemJson {
    fn respond(&self, rejection: &Rejection) -> Response<B> {
        if rejection.is_grpc() {
            return grpc(rejection, B::from(Bytes::new()));
        }
        if rejection.kind() == Kind::Redirect {
            return with_status(rejection.status(), B::from(Bytes::new()));
        }
        let mut response = with_status(rejection.status(), B::from(problem(rejection)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

/// The members of RFC 9457, and `violated-policies` of the IETF draft on rate limits.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Problem {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    violated_policies: Option<[&'static str; 1]>,
}

fn problem(rejection: &Rejection) -> Bytes {
    let (r#type, title) = match rejection.kind() {
        Kind::RateLimited | Kind::QuotaImpossible => {
            ("https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota exceeded")
        }
        kind => ("about:blank", kind.status().canonical_reason().unwrap_or_default()),
    };
    let problem = Problem {
        r#type,
        title,
        status: rejection.status().as_u16(),
        detail: rejection.detail(),
        kind: rejection.kind().as_str(),
        violated_policies: rejection.violated_policy().map(|policy| [policy]),
    };
    serde_json::to_vec(&problem).unwrap_or_default().into()
}

/// A trailers-only answer: the status stands in the headers of a response without a body.
pub(super) fn grpc<B>(rejection: &Rejection, body: B) -> Response<B> {
    let mut response = with_status(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from_static(rejection.kind().grpc_code()));
    if let Ok(message) = HeaderValue::from_str(rejection.detail()) {
        headers.insert(GRPC_MESSAGE, message);
    }
    response
}

pub(super) fn with_status<B>(status: StatusCode, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
