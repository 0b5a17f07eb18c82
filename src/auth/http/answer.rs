//! Builds responses and adds the headers that they all share.

use std::pin::Pin;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{http::body::Body, login::LoginView};

pub(crate) const JSON: &str = "application/json";

/// The state of a login, which every response about it contains.
#[derive(Serialize)]
pub(crate) struct LoginProgress {
    session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<&'static str>,
    completed_steps: usize,
    remaining_steps: usize,
    next_step: Option<usize>,
}

impl From<LoginView> for LoginProgress {
    fn from(view: LoginView) -> Self {
        Self {
            session_id: view.id.to_string(),
            status: Some(view.status.as_str()),
            completed_steps: view.completed,
            remaining_steps: view.remaining,
            next_step: view.next(),
        }
    }
}

/// A contact to which a code can be sent, as a user who proved a step can choose it.
#[derive(Serialize)]
pub(crate) struct ContactChoice {
    pub(crate) contact_id: String,
    pub(crate) method: &'static str,
    pub(crate) masked: String,
}

/// Another identity provider, as users see it.
#[derive(Serialize)]
pub(crate) struct OfferedProvider {
    pub(crate) name: String,
    pub(crate) label: String,
}

/// Creates a response with a JSON document.
pub(crate) fn json(status: StatusCode, document: &impl Serialize) -> Response<Body> {
    // serialization can't fail: these documents contain only text, numbers and lists
    let text = serde_json::to_vec(document).unwrap_or_default();
    response_with_body(status, JSON, text)
}

/// Creates the response to a call of a login: the state of the login, and the members of `more`.
pub(crate) fn login_progress(view: LoginView, more: impl Serialize) -> Response<Body> {
    #[derive(Serialize)]
    struct WithMore<T> {
        #[serde(flatten)]
        login: LoginProgress,
        #[serde(flatten)]
        more: T,
    }
    json(StatusCode::OK, &WithMore { login: LoginProgress::from(view), more })
}

/// Creates a response with a body of this type.
pub(crate) fn response_with_body(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = empty(status, body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Lets pages of every origin read a public response.
pub(crate) fn for_every_origin(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// Creates a response without a body that lists the methods of a path.
pub(crate) fn allow(status: StatusCode, methods: &'static str) -> Response<Body> {
    let mut response = empty(status, Body::empty());
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

/// Creates a response that says only that the call succeeded.
pub(crate) fn no_content() -> Response<Body> {
    empty(StatusCode::NO_CONTENT, Body::empty())
}

/// Creates a redirect. Returns `None` if the location is not a valid header, which is checked earlier.
pub(crate) fn redirect(location: &str) -> Option<Response<Body>> {
    to(StatusCode::FOUND, location)
}

/// Creates a redirect after a `POST`. The browser does not send the body again.
pub(crate) fn see_other(location: &str) -> Option<Response<Body>> {
    to(StatusCode::SEE_OTHER, location)
}

fn to(status: StatusCode, location: &str) -> Option<Response<Body>> {
    let location = HeaderValue::from_str(location).ok()?;
    let mut response = empty(status, Body::empty());
    response.headers_mut().insert(header::LOCATION, location);
    Some(response)
}

/// About as many headers as a response has, with those of the limits.
const USUAL: usize = 13;

fn empty(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().reserve(USUAL);
    response
}

const BARE: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const PAGE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The policy of a built-in page with the logo of the operator.
pub(crate) const PAGE_WITH_LOGO: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The policy of a page of the operator's own, which can also show images.
pub(crate) const OWN_PAGE: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Adds the headers that keep a response out of caches and frames, and that fix its type.
pub(crate) fn secure(headers: &mut HeaderMap) {
    let is_page = headers.get(header::CONTENT_TYPE).is_some_and(|it| it.as_bytes().starts_with(b"text/html"));
    let policy = if is_page { PAGE } else { BARE };
    // responses that may be cached have set this already
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    // pages with a form have set this already
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(policy));
    headers.entry(header::REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Puts a large future into a box. Unlike `Box::pin`, this creates the future inside the box: a future is as large as its
/// largest branch, and would be copied as a whole.
#[inline(always)]
pub(crate) fn in_box<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
