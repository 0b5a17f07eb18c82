//! The HTTP service of an event log.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use tower_service::Service;

use super::{
    access::{Access, Viewer},
    kind::EventKind,
    log::EventLog,
    page, pump,
    query::Query,
    stream::{LiveStream, OpenStream},
    usage::{self, Budgets},
};
use crate::{
    http::{
        body::{Body, without_body},
        connection::{announce_close, declares_body},
        head::Head,
        return_to::check_page_url,
    },
    tenant::Tenant,
    util::{error::ConfigError, scan::parse_digits},
};

/// Serves an [`EventLog`] over HTTP.
///
/// | request | response |
/// |---|---|
/// | `GET /` | a page that shows the log live, with charts, budgets and filters |
/// | `GET /log?since=&tenant=&kind=&limit=` | `{"events":[…],"next":N,"lost":N}`; `next` is the `since` of the next request |
/// | `GET /stream?since=&tenant=&kind=` | server-sent events, from now on or after `since` or `Last-Event-ID` |
/// | `GET /usage?tenant=` | `{"admitted":N,"at":N,"tenants":[…]}`, with a [`limiter`](EventServiceBuilder::limiter); otherwise a 404 |
///
/// [`Access`] identifies the caller. Tenants read their own events and get a 403 if they ask for those of another
/// tenant. Operators read everything. Other callers get a 401. The page is public. It asks for a key before it shows
/// events, unless [`Access`] recognizes the reader without one, for example by a cookie.
///
/// `/usage` has the budgets of tenants: `policy`, `x-ratelimit`, `x-ratelimit-remaining`, `x-ratelimit-reset`, and
/// `admitted`, the number of requests that were admitted since the first request for this tenant. The number can
/// restart at zero if many tenants are watched. A tenant sees its own budget. An operator sees the tenants in the query
/// and those with a plan of their own, at most 50, and the number of admitted requests of all tenants since the limiter
/// was created.
///
/// The service works unchanged under a prefix that is stripped, for example with axum's
/// `nest_service`. Open the page with a trailing slash: `/events/`. If nothing strips the prefix,
/// set it with [`base_path`](EventServiceBuilder::base_path).
///
/// A stream sends a comment every 15 seconds. A reader that falls behind receives a `lost` event
/// with the number of events it missed. Streams end with [`EventLog::close`], which a graceful
/// shutdown must call, because a server waits for its open responses.
///
/// # Security
///
/// Callers can try to guess keys here. Put a [`RateLimitLayer`](crate::RateLimitLayer) in front that counts the 401s of
/// each address, as the example `server` does. Each 401 is recorded in the log.
#[derive(Clone)]
#[must_use]
pub struct EventService(Arc<Inner>);

struct Inner {
    log: EventLog,
    access: Arc<dyn Access>,
    base: String,
    max_streams: usize,
    budgets: Option<Arc<dyn Budgets>>,
    home: Option<String>,
}

impl EventService {
    /// Creates a service with the default settings. See [`builder`](Self::builder).
    pub fn new(log: EventLog, access: impl Access) -> Self {
        Self::builder(log, access).build()
    }

    /// Returns a builder for a service that serves `log` to the callers that `access` identifies.
    pub fn builder(log: EventLog, access: impl Access) -> EventServiceBuilder {
        EventServiceBuilder(Inner {
            log,
            access: Arc::new(access),
            base: String::new(),
            max_streams: 64,
            budgets: None,
            home: None,
        })
    }
}

/// Settings of an [`EventService`].
#[must_use]
pub struct EventServiceBuilder(Inner);

impl EventServiceBuilder {
    /// Sets the prefix of all paths, such as `/events`. Needed only if nothing strips the prefix.
    ///
    /// # Errors
    ///
    /// Returns an error if `path` is not a path that starts with a slash.
    pub fn base_path(mut self, path: &str) -> Result<Self, ConfigError> {
        let base = path.strip_suffix('/').unwrap_or(path);
        let whole = base.is_empty() || base.starts_with('/');
        if !whole || base.contains("//") || !base.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
        {
            return Err(ConfigError::new("base path", path.escape_debug(), "must be a path that starts with a slash"));
        }
        self.0.base = String::from(base);
        Ok(self)
    }

    /// Sets how many streams may be open at the same time. Defaults to 64; further requests get a
    /// 503.
    ///
    /// One tenant can open at most a quarter of the streams. If there is more than one, the last is
    /// reserved for operators.
    ///
    /// # Errors
    ///
    /// Returns an error if `streams` is zero.
    pub fn max_streams(mut self, streams: usize) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(streams == 0, "event streams", streams, "must be at least 1")?;
        self.0.max_streams = streams;
        Ok(self)
    }

    /// Links the page to the start of your application: a path of this site, or an `https` URL. By default, it has no link.
    ///
    /// # Errors
    ///
    /// Returns an error if `url` is neither.
    pub fn home_url(mut self, url: &str) -> Result<Self, ConfigError> {
        check_page_url("home url", url)?;
        self.0.home = Some(url.to_owned());
        Ok(self)
    }

    /// Shows these budgets.
    pub(crate) fn budgets(mut self, budgets: impl Budgets) -> Self {
        self.0.budgets = Some(Arc::new(budgets));
        self
    }

    /// Creates the service.
    pub fn build(self) -> EventService {
        EventService(Arc::new(self.0))
    }
}

impl<B> Service<Request<B>> for EventService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let head = Head::of_request(&request);
        let mut response = self.0.serve_event_request(head);
        // no request has a use for a body, and none is read
        if declares_body(head) {
            announce_close(head.version(), response.headers_mut());
        }
        ready(Ok(response))
    }
}

crate::util::fmt::debug_fields!(EventService, |own| log: own.0.log, base: own.0.base);
crate::util::fmt::debug_fields!(EventServiceBuilder, |own| base: own.0.base);

impl Inner {
    fn serve_event_request(&self, head: Head<'_>) -> Response<Body> {
        let Some(route) = head.uri().path().strip_prefix(self.base.as_str()).and_then(Route::match_event_route) else {
            return event_error(StatusCode::NOT_FOUND, "not_found");
        };
        if let Some(response) = method_response(head.method()) {
            return response;
        }
        let response = match route {
            // without the slash, relative links of the page would resolve one level too high
            Route::Page if !head.uri().path().ends_with('/') => redirect_to_slash(&self.base),
            Route::Page => {
                let is_known = self.access.viewer(head) != Viewer::Nobody;
                event_page_asset(
                    "text/html; charset=utf-8",
                    page::html(is_known, self.budgets.is_some(), self.home.as_deref()),
                )
            }
            Route::File(content_type, text) => event_page_asset(content_type, text),
            Route::Usage => match &self.budgets {
                Some(budgets) => {
                    self.usage(head, &**budgets).unwrap_or_else(|(status, name)| event_error(status, name))
                }
                None => event_error(StatusCode::NOT_FOUND, "not_found"),
            },
            Route::Log | Route::Stream => match self.authorized(head) {
                Ok((_, query)) if route == Route::Log => event_json(self.log.read_events(&query).to_json()),
                Ok((own, query)) => self.stream(head, own, query),
                Err((status, name)) => event_error(status, name),
            },
        };
        match *head.method() {
            Method::HEAD => without_body(response),
            _ => response,
        }
    }

    /// Returns the tenant that asks (`None` for an operator), and the query restricted to what the
    /// caller may read.
    fn authorized(&self, head: Head<'_>) -> Result<(Option<Tenant>, Query), Refusal> {
        let own = self.reader(head)?;
        let query = Query::parse(head.uri().query().unwrap_or_default());
        let query = query.map_err(|_| (StatusCode::BAD_REQUEST, "invalid_request"))?;
        match own {
            None => Ok((None, query)),
            Some(own) if query.tenant.as_ref().is_none_or(|asked| *asked == *own) => {
                Ok((Some(own.clone()), query.tenant(own.into())))
            }
            Some(_) => Err((StatusCode::FORBIDDEN, "forbidden")),
        }
    }

    /// Returns the tenant that asks, or `None` for an operator.
    fn reader(&self, head: Head<'_>) -> Result<Option<Tenant>, Refusal> {
        match self.access.viewer(head) {
            Viewer::Nobody => {
                self.log.tally_now(EventKind::CredentialUnknown, Some("event_log"));
                Err((StatusCode::UNAUTHORIZED, "unauthenticated"))
            }
            Viewer::Tenant(own) => Ok(Some(own)),
            Viewer::Operator => Ok(None),
        }
    }

    fn usage(&self, head: Head<'_>, budgets: &dyn Budgets) -> Result<Response<Body>, Refusal> {
        let own = self.reader(head)?;
        let keys = usage::parse_tenants(head.uri().query().unwrap_or_default());
        let keys = keys.map_err(|_| (StatusCode::BAD_REQUEST, "invalid_request"))?;
        let clock = &self.log.shared().clock;
        let now = clock.unix(clock.now());
        match own {
            None => Ok(event_json(usage::budgets_of_all(budgets, keys, now))),
            Some(own) if keys.iter().all(|key| *key == *own) => {
                Ok(event_json(usage::budget_of_tenant(budgets, &own, now)))
            }
            Some(_) => Err((StatusCode::FORBIDDEN, "forbidden")),
        }
    }

    fn stream(&self, head: Head<'_>, own: Option<Tenant>, mut query: Query) -> Response<Body> {
        if let Some(id) = head.headers().get("last-event-id") {
            let Some(id) = id.to_str().ok().and_then(parse_digits) else {
                return event_error(StatusCode::BAD_REQUEST, "invalid_request");
            };
            query.since = Some(id);
        }
        if head.method() == Method::HEAD {
            return event_stream(Body::empty());
        }
        let shared = self.log.shared();
        match OpenStream::reserve_stream(shared, own, self.max_streams) {
            Some(stream) if pump::ensure(shared) => event_stream(Body::stream(LiveStream::new(stream, query))),
            _ => too_many(),
        }
    }
}

/// The status and the name of an error.
type Refusal = (StatusCode, &'static str);

#[derive(Clone, Copy, PartialEq)]
enum Route {
    Page,
    /// A file of the page: its type and its text.
    File(&'static str, &'static str),
    Usage,
    Log,
    Stream,
}

impl Route {
    fn match_event_route(path: &str) -> Option<Self> {
        Some(match path {
            "" | "/" => Self::Page,
            "/usage" => Self::Usage,
            "/log" => Self::Log,
            "/stream" => Self::Stream,
            _ => page::file(path).map(|(content_type, text)| Self::File(content_type, text))?,
        })
    }
}

// ---- responses

const JSON: &str = "application/json";

fn event_json(body: impl Into<Body>) -> Response<Body> {
    event_response(StatusCode::OK, JSON, body)
}

/// A JSON error with a fixed name. It never contains anything from the request.
fn event_error(status: StatusCode, name: &str) -> Response<Body> {
    let mut response = event_response(status, JSON, format!("{{\"error\":\"{name}\"}}"));
    if status == StatusCode::UNAUTHORIZED {
        // RFC 9110 requires a challenge on every 401; there is no registered scheme for keys in
        // headers
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey"));
    }
    response
}

fn too_many() -> Response<Body> {
    let mut response = event_error(StatusCode::SERVICE_UNAVAILABLE, "unavailable");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Answers methods other than GET and HEAD. Returns `None` for those two, which are served.
fn method_response(method: &Method) -> Option<Response<Body>> {
    let mut response = match *method {
        Method::GET | Method::HEAD => return None,
        Method::OPTIONS => {
            let mut response = event_response(StatusCode::NO_CONTENT, JSON, Body::empty());
            response.headers_mut().remove(header::CONTENT_TYPE);
            response
        }
        _ => event_error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
    Some(response)
}

/// A static file of the live page. It contains nothing confidential.
fn event_page_asset(content_type: &'static str, text: impl Into<Body>) -> Response<Body> {
    let mut response = event_response(StatusCode::OK, content_type, text);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Redirects a browser from `base` to `base/`.
fn redirect_to_slash(base: &str) -> Response<Body> {
    let mut response = event_error(StatusCode::PERMANENT_REDIRECT, "moved");
    if let Ok(location) = HeaderValue::try_from(format!("{base}/")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = event_response(StatusCode::OK, "text/event-stream", body);
    // keeps nginx and other proxies from buffering the stream
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

fn event_response(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
