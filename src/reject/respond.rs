use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::rejection::{Rejection, RejectionKind};
use crate::{http::head::Head, util::json_object::JsonObject};

/// Turns a [`Rejection`] into a response with the body type of your service.
///
/// Closures are responders, too. They see the rejection, with the tenant and its
/// standing, and the head of the request:
///
/// ```
/// use http::Response;
/// use tollgate::{Head, reject::{Rejection, Respond}};
///
/// fn page() -> impl Respond<String> {
///     |rejection: &Rejection, head: Head<'_>| {
///         let text = format!("<h1>{}</h1> You asked for {}.", rejection.detail(), head.uri().path());
///         let mut response = Response::new(text);
///         *response.status_mut() = rejection.status();
///         response
///     }
/// }
/// # page();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't make a response with the body `{B}`",
    note = "`StatusOnly` needs `{B}: Default`, `ProblemJson` needs `{B}: From<bytes::Bytes>`; for any other body pass a closure `|rejection: &Rejection, head: Head<'_>| -> Response<{B}>`"
)]
pub trait Respond<B>: Clone {
    /// Makes the response to the request with this head.
    ///
    /// The headers of the rejection are added afterwards. For a gRPC client the engine
    /// also replaces the status, so return an empty body if
    /// [`is_grpc`](Rejection::is_grpc) is `true`.
    fn respond(&self, rejection: &Rejection, head: Head<'_>) -> Response<B>;
}

impl Rejection {
    /// Makes the response to the request with this head.
    pub(crate) fn into_response<B>(self, head: Head<'_>, respond: &impl Respond<B>) -> Response<B> {
        self.finish(head, |rejection| respond.respond(rejection, head))
    }
}

impl<F, B> Respond<B> for F
where
    F: Fn(&Rejection, Head<'_>) -> Response<B> + Clone,
{
    fn respond(&self, rejection: &Rejection, head: Head<'_>) -> Response<B> {
        self(rejection, head)
    }
}

/// Responds with the status and an empty body.
///
/// Works with every body type that implements `Default`, such as `Full`, `Empty`, `axum::body::Body` and
/// `tonic::body::Body`.
///
/// # Interceptors of tonic
///
/// Only tonic can create the body of its `InterceptorLayer`, so no responder works in a layer directly around one. Box
/// the bodies in between:
///
/// ```
/// use http::Response;
/// use tollgate::{ClientIp, Limiter, Plans, Quota, RateLimitLayer};
/// use tonic::{
///     Request, Status,
///     body::Body,
///     service::{InterceptorLayer, interceptor::ResponseBody},
///     transport::Server,
/// };
/// use tower::ServiceBuilder;
///
/// let limiter = Limiter::memory(Plans::new(Quota::per_minute(600)?));
/// let stack = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(ClientIp::peer(), limiter))
///     .map_response(|response: Response<ResponseBody<Body>>| response.map(Body::new))
///     .layer(InterceptorLayer::new(|request: Request<()>| Ok::<_, Status>(request)));
/// # let (_, health) = tonic_health::server::health_reporter();
/// let router = Server::builder().layer(stack).add_service(health);
/// # drop(router);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// An interceptor of a single service, such as one from `with_interceptor`, needs none of this.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusOnly;

impl<B: Default> Respond<B> for StatusOnly {
    fn respond(&self, rejection: &Rejection, _: Head<'_>) -> Response<B> {
        with_status(rejection.status(), B::default())
    }
}

/// Responds with a problem document (RFC 9457). Redirects and responses to gRPC clients
/// have no body.
///
/// Works with every body type that implements `From<Bytes>`, such as `Full` and the body
/// of axum.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<B: From<Bytes>> Respond<B> for ProblemJson {
    fn respond(&self, rejection: &Rejection, _: Head<'_>) -> Response<B> {
        if rejection.is_grpc() || rejection.kind() == RejectionKind::Redirect {
            return with_status(rejection.status(), B::from(Bytes::new()));
        }
        let mut response = with_status(rejection.status(), B::from(problem(rejection)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

/// Writes the members of RFC 9457, and `violated-policies` of the IETF draft on rate limits. While open calls block a request,
/// `reset-is-estimate` is true.
fn problem(rejection: &Rejection) -> Bytes {
    let (r#type, title) = match rejection.kind() {
        RejectionKind::RateLimited | RejectionKind::QuotaImpossible => {
            ("https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota exceeded")
        }
        kind => ("about:blank", kind.status().canonical_reason().unwrap_or_default()),
    };
    let problem = JsonObject::new()
        .text("type", r#type)
        .text("title", title)
        .number("status", rejection.status().as_u16().into())
        .text("detail", rejection.detail())
        .text("kind", rejection.kind().as_str());
    let problem = match rejection.violated_policy() {
        Some(policy) => problem.texts("violated-policies", &[policy]),
        None => problem,
    };
    let problem = match rejection.standing() {
        Some(standing) if !standing.is_exact() => problem.json("reset-is-estimate", "true"),
        _ => problem,
    };
    problem.end().into()
}

fn with_status<B>(status: StatusCode, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
