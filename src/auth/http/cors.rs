//! Whose pages may call, and read what is answered.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::{
    auth::{
        http::{
            answer,
            problem::{Code, Problem},
            route::Path,
        },
        visit::Visit,
    },
    client::Client,
    event::EventKind,
    http::body::Body,
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// What scripts of another origin may read of an answer.
const EXPOSED: &str = "retry-after, www-authenticate, dpop-nonce, x-ratelimit, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";

impl<'a> Visit<'a> {
    /// Lets scripts of any client's pages read, as long as it is not known whose call it is.
    pub(crate) async fn let_any_read(&mut self, path: &Path) {
        let own = self.inner.config.issuer.origin().as_bytes();
        let foreign = |origin: &&HeaderValue| path.is_for_scripts() && origin.as_bytes() != own;
        let origin = self.only(&header::ORIGIN).unwrap_or_default().filter(foreign);
        if let Some((origin, text)) = origin.and_then(|origin| Some((origin, origin.to_str().ok()?)))
            && self.inner.config.clients.allows_origin(text).await.unwrap_or_default()
        {
            self.reader = Some(origin.clone());
        }
    }

    /// Lets scripts of this client's pages read the answer, be it that there is no budget left.
    pub(crate) fn let_read(&mut self, client: Option<&Client>) {
        let origin = self.only(&header::ORIGIN).unwrap_or_default();
        let is_known = |text| client.is_some_and(|client| client.allows_origin(text));
        self.reader = origin.filter(|origin| origin.to_str().is_ok_and(is_known)).cloned();
    }

    /// The value of a header; an error where it is given twice.
    fn only(&self, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ()> {
        let mut values = self.parts.headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(()),
        }
    }

    /// Lets scripts call that run on our own pages or on those of this client, and programs that are no browsers.
    pub(crate) fn check_origin(&mut self, client: Option<&Client>) -> Result<(), Problem> {
        let allowed = match (self.only(&header::ORIGIN), self.only(&SEC_FETCH_SITE)) {
            (Err(()), _) | (_, Err(())) => false,
            // the browser says that the page is ours
            (_, Ok(Some(site))) if site == "same-origin" => true,
            (Ok(Some(origin)), _) if origin.as_bytes() == self.inner.config.issuer.origin().as_bytes() => true,
            (Ok(Some(_)), _) => self.reader.is_some(),
            (Ok(None), Ok(Some(site))) => site == "none",
            (Ok(None), Ok(None)) => true,
        };
        if allowed {
            return Ok(());
        }
        self.reader = None;
        self.inner.journal().tally(EventKind::ForeignOrigin, client.map(Client::tenant), None);
        Err(Problem::new(Code::OriginNotAllowed, "pages of this origin may not call"))
    }

    /// Whether a browser says that one of our own pages sends this.
    #[cfg(feature = "tokens")]
    pub(crate) fn is_of_own_page(&self) -> bool {
        match (self.only(&SEC_FETCH_SITE), self.only(&header::ORIGIN)) {
            (Ok(Some(site)), Ok(_)) => site == "same-origin",
            (Ok(None), Ok(Some(origin))) => origin.as_bytes() == self.inner.config.issuer.origin().as_bytes(),
            _ => false,
        }
    }

    /// The answer to OPTIONS: what a path takes and, to scripts that some client allows, that they may call.
    pub(crate) async fn options(&mut self, path: &Path) -> Result<Response<Body>, Problem> {
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
            (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type, accept, authorization, dpop"),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(answer)
    }
}

/// Lets the pages of this origin read the answer.
pub(crate) fn write(reader: Option<HeaderValue>, has_origin: bool, headers: &mut HeaderMap) {
    // pages of every origin may read it, so it does not depend on the origin
    if headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    let varies = headers.get_all(header::VARY).iter().any(|value| value == "origin");
    if has_origin && !varies {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = reader {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
}
