//! [`Visit`]: one request on its way through, from whose budget it spends to the headers of its answer.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Response, header, request::Parts};

use crate::{
    auth::{
        http::{
            answer, cors,
            problem::{Code, Problem},
            route::Path,
        },
        inner::Inner,
    },
    client::Client,
    gate::Pass,
    http::{
        body::{Body, without_body},
        head::Head,
    },
    limit::RateLimitPass,
    login::{Login, LoginId},
    store::StoreError,
    tenant::Tenant,
    util::secret::Digest,
};

/// By one of these a browser says that it only fetches ahead; by the last two in the old days.
const AHEAD: [HeaderName; 3] =
    [HeaderName::from_static("sec-purpose"), HeaderName::from_static("purpose"), HeaderName::from_static("x-moz")];

pub(crate) struct Visit<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) parts: &'a Parts,
    pass: Option<RateLimitPass>,
    /// The foreign origin whose scripts may read the answer.
    pub(crate) reader: Option<HeaderValue>,
}

impl<'a> Visit<'a> {
    pub(crate) fn new(inner: &'a Inner, parts: &'a Parts) -> Self {
        Self { inner, parts, pass: None, reader: None }
    }

    /// Whether a path is there: some are only where there are tokens.
    #[cfg_attr(not(feature = "tokens"), expect(clippy::unused_self, reason = "all are there"))]
    pub(crate) fn serves(&self, path: &Path) -> bool {
        #[cfg(feature = "tokens")]
        if path.needs_tokens() {
            return self.inner.config.tokens.is_some();
        }
        let _ = path;
        true
    }

    /// Refuses a wish to fetch ahead what changes something: a browser that guesses drops an answer that failed, and asks
    /// again when it is sure.
    pub(crate) fn refuse_ahead(&self) -> Result<(), Problem> {
        if AHEAD.iter().any(|name| self.parts.headers.contains_key(name)) {
            return Err(Problem::new(Code::TemporarilyUnavailable, "this is not for fetching ahead"));
        }
        Ok(())
    }

    pub(crate) fn head(&self) -> Head<'a> {
        Head::from(self.parts)
    }

    /// Whose address it comes from, as what is limited. Where a server tells none, no limit of addresses holds: one that
    /// all share would let anybody lock out everybody.
    pub(crate) fn known_address(&self) -> Option<Tenant> {
        let address = self.inner.config.client_ip.address(self.head());
        if address.is_none() {
            self.inner.running().warn_of_no_address();
        }
        address.map(Tenant::address)
    }

    /// The same, for what has to be charged to somebody.
    fn address(&self) -> Tenant {
        self.known_address().unwrap_or_else(Tenant::anonymous)
    }

    /// Charges the request: to the tenant, where one is known by its client or its login, else to the address.
    pub(crate) fn charge(&mut self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        if let (Some(share), Some(_), Some(address)) = (&self.inner.running().share, tenant, self.known_address()) {
            share.charge(address, self.head())?;
        }
        let tenant = tenant.cloned().unwrap_or_else(|| self.address());
        self.pass = Some(self.inner.running().gate.charge(tenant, self.head())?);
        Ok(())
    }

    /// What is the same for everybody belongs to no tenant, and where addresses are unknown to nobody.
    pub(crate) fn charge_asset(&mut self) -> Result<(), Problem> {
        if let Some(address) = self.known_address() {
            self.pass = Some(self.inner.running().gate.charge(address, self.head())?);
        }
        Ok(())
    }

    /// The client of this id, if there is one.
    pub(crate) async fn client(&self, id: Option<&str>) -> Result<Option<Arc<Client>>, StoreError> {
        match id {
            // no client has a longer one
            Some(id) if id.len() <= Client::MAX_ID => self.inner.config.clients.find(id).await,
            _ => Ok(None),
        }
    }

    /// The same, with the request charged to its tenant; to the address where it can't be had.
    pub(crate) async fn charged_client(&mut self, id: Option<&str>) -> Result<Option<Arc<Client>>, Problem> {
        let client = self.client(id).await;
        self.charge(client.as_ref().ok().and_then(Option::as_deref).map(Client::tenant))?;
        Ok(client?)
    }

    /// The same for a call of a script, which is made from where it may be made.
    pub(crate) async fn calling_client(&mut self, id: Option<&str>) -> Result<Option<Arc<Client>>, Problem> {
        let client = self.client(id).await;
        let known = client.as_ref().ok().and_then(Option::as_deref);
        self.let_read(known);
        self.charge(known.map(Client::tenant))?;
        let client = client?;
        self.check_origin(client.as_deref())?;
        Ok(client)
    }

    /// The login that a call is about, if it was begun in this browser; with the request charged, and made from where it
    /// may be made.
    ///
    /// No cookie, a wrong one and no such login are one answer.
    pub(crate) async fn own_login(
        &mut self,
        client_id: Option<&str>,
        session_id: Option<&str>,
    ) -> Result<(Digest, Login), Problem> {
        let found = self.login(session_id).await;
        let own = found.as_ref().ok().and_then(Option::as_ref).map(|(_, login)| login);
        // whom a login is for was proved, whom a call names was not
        let client = self.client(own.map(|login| &*login.binding.client_id).or(client_id)).await;
        let known = client.as_ref().ok().and_then(Option::as_deref);
        self.let_read(known);
        self.charge(own.map(|login| &login.tenant).or(known.map(Client::tenant)))?;
        let (client, found) = (client?, found?);
        self.check_origin(client.as_deref())?;
        if session_id.is_none() {
            return Err(Problem::invalid("session_id is missing"));
        }
        found.ok_or_else(|| Problem::new(Code::InvalidSession, "there is no such login in this browser"))
    }

    async fn login(&self, session_id: Option<&str>) -> Result<Option<(Digest, Login)>, StoreError> {
        let Some(id) = session_id.and_then(LoginId::parse) else { return Ok(None) };
        let Some(digest) = self.inner.config.cookies.secret_of(&self.parts.headers, &id) else { return Ok(None) };
        Ok(self.inner.running().logins.find(&digest).await?.map(|login| (digest, login)))
    }

    /// The answer with all its headers.
    pub(crate) fn finish(self, outcome: Result<Response<Body>, Problem>) -> Response<Body> {
        let mut response = match outcome {
            Ok(response) => response,
            Err(problem) => problem.into_response(&self.parts.headers, &self.inner.config.realm),
        };
        let status = response.status();
        let headers = response.headers_mut();
        answer::secure(headers);
        cors::write(self.reader, self.parts.headers.contains_key(header::ORIGIN), headers);
        // what others may keep says nothing of the budget of who fetched it
        let is_kept = headers.get(header::CACHE_CONTROL).is_some_and(|value| value != "no-store");
        if let Some(pass) = self.pass.filter(|_| !is_kept) {
            pass.finish(status, headers);
        }
        if self.parts.method == Method::HEAD {
            return without_body(response);
        }
        response
    }
}
