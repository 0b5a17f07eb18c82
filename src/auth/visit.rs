//! [`Visit`]: one request on its way through, from whose budget it spends to the headers of its answer.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};

use super::{
    answer,
    inner::Inner,
    problem::{Code, Problem},
    route::Path,
};
use crate::{
    body::Body,
    client::Client,
    event::EventKind,
    gate::Pass,
    head::Head,
    limit::RateLimitPass,
    store::StoreError,
    tenant::Tenant,
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// What scripts of another origin may read of an answer.
const EXPOSED: &str = "retry-after, x-ratelimit, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";

pub(super) struct Visit<'a> {
    pub(super) inner: &'a Inner,
    pub(super) parts: &'a Parts,
    pass: Option<RateLimitPass>,
    /// The foreign origin whose scripts may read the answer.
    reader: Option<HeaderValue>,
}

impl<'a> Visit<'a> {
    pub(super) fn new(inner: &'a Inner, parts: &'a Parts) -> Self {
        Self { inner, parts, pass: None, reader: None }
    }

    pub(super) fn head(&self) -> Head<'a> {
        Head::from(self.parts)
    }

    /// Whose address it comes from, as what is limited; all without one are one.
    pub(super) fn address(&self) -> Tenant {
        self.inner.config.client_ip.address(self.head()).map_or_else(Tenant::anonymous, Tenant::address)
    }

    /// Charges the request: to the tenant, where one is known by its client or its login, else to the address.
    pub(super) fn charge(&mut self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        if let (Some(share), Some(_)) = (&self.inner.running().share, tenant) {
            share.charge(self.address(), self.head())?;
        }
        let tenant = tenant.cloned().unwrap_or_else(|| self.address());
        self.pass = Some(self.inner.running().gate.charge(tenant, self.head())?);
        Ok(())
    }

    /// The client of this id, if there is one.
    pub(super) async fn client(&self, id: Option<&str>) -> Result<Option<Arc<Client>>, StoreError> {
        match id {
            Some(id) => self.inner.config.clients.find(id).await,
            None => Ok(None),
        }
    }

    /// Lets scripts call that run on our own pages or on those of this client, and programs that are no browsers.
    pub(super) fn check_origin(&mut self, client: Option<&Client>) -> Result<(), Problem> {
        let headers = &self.parts.headers;
        let only = |name: &HeaderName| {
            let mut values = headers.get_all(name).iter();
            (values.next(), values.next())
        };
        let foreign = || Problem::new(Code::OriginNotAllowed, "pages of this origin may not call");
        let allowed = match (only(&header::ORIGIN), only(&SEC_FETCH_SITE)) {
            ((_, Some(_)), _) | (_, (_, Some(_))) => false,
            // the browser says that the page is ours
            (_, (Some(site), _)) if site == "same-origin" => true,
            ((Some(origin), _), _) if origin.as_bytes() == self.inner.config.issuer.origin().as_bytes() => true,
            ((Some(origin), _), _) => {
                let known = origin.to_str().is_ok_and(|text| client.is_some_and(|client| client.allows_origin(text)));
                self.reader = known.then(|| origin.clone());
                known
            }
            ((None, _), (Some(site), _)) => site == "none",
            ((None, _), (None, _)) => true,
        };
        if allowed {
            return Ok(());
        }
        self.inner.journal().tally(EventKind::ForeignOrigin, client.map(Client::tenant), None);
        Err(foreign())
    }

    /// The answer to OPTIONS: what a path takes and, to scripts that some client allows, that they may call.
    pub(super) async fn options(&mut self, path: &Path) -> Result<Response<Body>, Problem> {
        let answer = answer::allow(StatusCode::NO_CONTENT, path.allow());
        if !self.head().is_preflight() {
            return Ok(answer);
        }
        let refused = || Problem::new(Code::OriginNotAllowed, "pages of this origin may not call");
        let origin = self.parts.headers.get(header::ORIGIN).filter(|_| path.is_for_scripts()).ok_or_else(refused)?;
        let text = origin.to_str().map_err(|_| refused())?;
        if !self.inner.config.clients.allows_origin(text).await? {
            return Err(refused());
        }
        self.reader = Some(origin.clone());
        let mut answer = answer;
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_METHODS, path.allow()),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type, accept"),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(answer)
    }

    /// The answer with all its headers.
    pub(super) fn finish(self, outcome: Result<Response<Body>, Problem>) -> Response<Body> {
        let mut response = match outcome {
            Ok(response) => response,
            Err(problem) => problem.into_response(&self.parts.headers, &self.inner.config.realm),
        };
        let status = response.status();
        let headers = response.headers_mut();
        answer::secure(headers);
        if self.reader.is_some() || self.parts.headers.contains_key(header::ORIGIN) {
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
        if let Some(origin) = self.reader {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
        if let Some(pass) = self.pass {
            pass.finish(status, headers);
        }
        if self.parts.method == Method::HEAD {
            return without_body(response);
        }
        response
    }
}

/// The same answer to HEAD: its length without its bytes.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(len) = http_body::Body::size_hint(&body).exact() {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    }
    Response::from_parts(parts, Body::empty())
}
