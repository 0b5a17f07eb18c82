use std::{
    convert::Infallible,
    fmt,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response, StatusCode};
use tower_service::Service;

use super::{Access, EventLog, Query, Viewer, answer, json, pump, query, stream::Live, stream_seat::StreamSeat};
use crate::{
    http::{
        body::{Body, without_body},
        head::Head,
    },
    tenant::Tenant,
    util::error::ConfigError,
};

/// Serves an [`EventLog`] over HTTP.
///
/// | request | answer |
/// |---|---|
/// | `GET /` | a page that shows the log live |
/// | `GET /log?since=&tenant=&kind=&limit=` | `{"events":[…],"next":N,"lost":N}`; `next` is the `since` of the next request |
/// | `GET /stream?since=&tenant=&kind=` | server-sent events, from now on or after `since` or `Last-Event-ID` |
///
/// [`Access`] tells who asks: a tenant reads its own events (asking for
/// another's is a 403), an operator reads all, others get a 401. The page asks
/// for a key and is the same for everybody.
///
/// Mounted under a prefix that is stripped, as by axum's `nest_service`, it
/// works as it is (open the page with the slash: `/events/`). Where the prefix
/// is left in place, name it with [`base_path`](Self::base_path).
///
/// A stream sends a comment every 15 s. A reader that does not keep up gets an
/// event `lost` that says how many it missed. Streams end with the log; since
/// this service holds the log, a graceful shutdown has to drop it, or to cut them off.
#[derive(Clone)]
#[must_use]
pub struct EventService(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    log: EventLog,
    access: Arc<dyn Access>,
    base: String,
    max_streams: usize,
}

impl EventService {
    /// Serves this log to those whom `access` knows.
    pub fn new(log: EventLog, access: impl Access) -> Self {
        Self(Arc::new(Inner { log, access: Arc::new(access), base: String::new(), max_streams: 64 }))
    }

    /// The prefix of all paths, where nobody strips it: `/events`.
    pub fn base_path(self, path: &str) -> Result<Self, ConfigError> {
        let base = path.strip_suffix('/').unwrap_or(path);
        let whole = base.is_empty() || base.starts_with('/');
        if !whole || base.contains("//") || !base.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
        {
            return Err(ConfigError::new("base path", path.escape_debug(), "must be a path that starts with a slash"));
        }
        Ok(Self(Arc::new(Inner { base: String::from(base), ..Inner::clone(&self.0) })))
    }

    /// How many streams may be open at once on this log: 64 by default. One
    /// tenant gets at most a quarter of them, and all tenants together leave one
    /// to operators, unless there is only one; who comes later gets a 503.
    pub fn max_streams(self, streams: usize) -> Result<Self, ConfigError> {
        if streams == 0 {
            return Err(ConfigError::new("event streams", streams, "must be at least 1"));
        }
        Ok(Self(Arc::new(Inner { max_streams: streams, ..Inner::clone(&self.0) })))
    }
}

impl Inner {
    fn answer(&self, head: Head<'_>) -> Response<Body> {
        let Some(route) = head.uri().path().strip_prefix(self.base.as_str()).and_then(Route::of) else {
            return answer::error(StatusCode::NOT_FOUND, "not_found");
        };
        if let Some(response) = answer::to_method(head.method()) {
            return response;
        }
        let response = match route {
            // without the slash, the parts of the page would be looked for one level up
            Route::Page if !head.uri().path().ends_with('/') => answer::moved(&self.base),
            Route::Page => answer::asset("text/html; charset=utf-8", include_str!("page.html")),
            Route::Script => answer::asset("text/javascript; charset=utf-8", include_str!("page.js")),
            Route::Style => answer::asset("text/css; charset=utf-8", include_str!("page.css")),
            Route::Log | Route::Stream => match self.authorized(head) {
                Ok((_, query)) if route == Route::Log => answer::json(json::page(&self.log.read(&query))),
                Ok((own, query)) => self.stream(head, own, query),
                Err((status, name)) => answer::error(status, name),
            },
        };
        match *head.method() {
            Method::HEAD => without_body(response),
            _ => response,
        }
    }

    /// Which tenant asks (none for an operator), and the query cut down to what it may read.
    fn authorized(&self, head: Head<'_>) -> Result<(Option<Tenant>, Query), (StatusCode, &'static str)> {
        let own = match self.access.viewer(head) {
            Viewer::Nobody => return Err((StatusCode::UNAUTHORIZED, "unauthenticated")),
            Viewer::Tenant(own) => Some(own),
            Viewer::Operator => None,
        };
        let query = Query::parse(head.uri().query().unwrap_or_default());
        let query = query.map_err(|_| (StatusCode::BAD_REQUEST, "invalid_request"))?;
        match own {
            None => Ok((None, query)),
            Some(own) if query.tenant.as_ref().is_none_or(|asked| *asked == own) => {
                Ok((Some(own.clone()), query.tenant(own)))
            }
            Some(_) => Err((StatusCode::FORBIDDEN, "forbidden")),
        }
    }

    fn stream(&self, head: Head<'_>, own: Option<Tenant>, mut query: Query) -> Response<Body> {
        if let Some(id) = head.headers().get("last-event-id") {
            let Some(id) = id.to_str().ok().and_then(|id| query::number(id).ok()) else {
                return answer::error(StatusCode::BAD_REQUEST, "invalid_request");
            };
            query.since = Some(id);
        }
        if head.method() == Method::HEAD {
            return answer::stream(Body::empty());
        }
        let shared = self.log.shared();
        match StreamSeat::take(shared, own, self.max_streams) {
            Some(seat) if pump::ensure(shared) => answer::stream(Body::stream(Live::new(seat, query))),
            _ => answer::too_many(),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Route {
    Page,
    Script,
    Style,
    Log,
    Stream,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "" | "/" => Self::Page,
            "/page.js" => Self::Script,
            "/page.css" => Self::Style,
            "/log" => Self::Log,
            "/stream" => Self::Stream,
            _ => return None,
        })
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
        ready(Ok(self.0.answer(Head::of(&request))))
    }
}

impl fmt::Debug for EventService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventService").field("log", &self.0.log).field("base", &self.0.base).finish_non_exhaustive()
    }
}
