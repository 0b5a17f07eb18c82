//! One request on its way through the service: the budget it is charged to, the origin that may read the response, and its
//! login.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};

use crate::dpop::{self, DpopError, DpopProof, UnverifiedProof};
use crate::{
    auth::{
        core::Core,
        http::{
            answer,
            bodies::{RequestBody, TooManyBodies},
            cors::{self, Caller},
            problem::{Code, Problem},
            route::Path,
        },
        state::{logins::StoredLogin, unverified::CountedWork},
    },
    client::Client,
    event::EventKind,
    gate::Pass,
    http::{
        body::{Body, without_body},
        head::Head,
    },
    limit::RateLimitPass,
    login::LoginId,
    store::StoreError,
    tenant::{Tenant, TenantSource},
    util::secret::Digest,
};

/// Browsers mark a prefetch with one of these; the last two are used by older ones.
const PREFETCH: [HeaderName; 3] =
    [HeaderName::from_static("sec-purpose"), HeaderName::from_static("purpose"), HeaderName::from_static("x-moz")];

/// The result of looking up a client.
type FoundClient = Result<Option<Arc<Client>>, StoreError>;

/// Which clients a call can be about.
#[derive(Clone, Copy)]
pub(crate) enum ClientReach {
    /// Registered clients.
    Registered,
    /// The built-in client of this site too.
    Login,
}

/// A request and what is known about it so far.
pub(crate) struct RequestContext<'a> {
    pub(crate) core: &'a Core,
    pub(crate) parts: &'a Parts,
    /// The client's address, if it is known.
    address: Option<Tenant>,
    pass: Option<RateLimitPass>,
    unverified: Unverified,
    /// The refresh token of a call.
    pub(crate) refresh_token: Option<String>,
    /// The foreign origin whose scripts may read the answer.
    pub(crate) reader: Option<HeaderValue>,
}

/// The work for a request before it is known whose budget it spends.
enum Unverified {
    None,
    Counted(CountedWork),
    /// The request was charged to its tenant.
    Settled,
}

impl<'a> RequestContext<'a> {
    pub(crate) fn new(core: &'a Core, parts: &'a Parts) -> Self {
        let address = core.client_ip.find(Head::from(parts)).ok().flatten();
        core.limits.addresses.saw(address.is_some(), &core.journal);
        Self { core, parts, address, pass: None, unverified: Unverified::None, refresh_token: None, reader: None }
    }

    /// Checks whether a path is served: some exist only where tokens are issued, where there are other
    /// identity providers, or where users sign in to the site itself.
    pub(crate) fn serves(&self, path: &Path) -> bool {
        let has_tokens = self.core.tokens.is_some();
        #[cfg(feature = "external-providers")]
        let has_providers = !self.core.providers.is_empty();
        #[cfg(not(feature = "external-providers"))]
        let has_providers = false;
        (has_tokens || !path.needs_tokens())
            && (has_providers || !path.needs_providers())
            && (self.core.first_party.is_some() || !path.needs_first_party())
    }

    /// Refuses a prefetch of something that changes state. The browser drops the failed answer and asks again when the
    /// user really goes there. Must come after the request was charged.
    pub(crate) fn refuse_prefetch(&self) -> Result<(), Problem> {
        if PREFETCH.iter().any(|name| self.parts.headers.contains_key(name)) {
            return Err(Problem::new(Code::TemporarilyUnavailable, "prefetching this page is not allowed"));
        }
        Ok(())
    }

    pub(crate) fn head(&self) -> Head<'a> {
        Head::from(self.parts)
    }

    /// Returns the client's address as the key of a limit. Where addresses are unknown, per-address limits are off: a
    /// limit that all clients share would let anyone lock out everyone.
    pub(crate) fn known_address(&self) -> Option<Tenant> {
        self.address.clone()
    }

    /// Takes a place for the body of the request, before any of it is read. A request that gets none is charged like one
    /// that names no tenant.
    pub(crate) async fn count(&mut self, body: &mut RequestBody) -> Result<(), Problem> {
        // only forms and JSON are used
        if self.parts.method != Method::POST {
            return Ok(());
        }
        match body.enter(&self.core.bodies, self.known_address()) {
            Ok(()) => Ok(()),
            Err(too_many) => {
                self.charge(None).await?;
                Err(match too_many {
                    TooManyBodies::InTotal => Problem::unavailable(),
                    TooManyBodies::OfAddress => {
                        let detail = "this address is sending too many request bodies at the same time";
                        Problem::new(Code::RateLimitExceeded, detail).retry_in(Duration::from_secs(1))
                    }
                })
            }
        }
    }

    /// Charges the request to its tenant, or to the client's address if no tenant is known.
    pub(crate) async fn charge(&mut self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        self.charge_as(tenant, false).await
    }

    /// Charges a request with a valid token or secret to this tenant. It can also spend what is reserved.
    pub(crate) async fn charge_proved(&mut self, tenant: &Tenant) -> Result<(), Problem> {
        self.charge_as(Some(tenant), true).await
    }

    async fn charge_as(&mut self, tenant: Option<&Tenant>, is_proved: bool) -> Result<(), Problem> {
        let address = self.known_address();
        self.charge_share(tenant, address.as_ref()).await?;
        self.charge_payer(tenant, address.as_ref(), is_proved).await
    }

    /// Charges a request like [`charge`](Self::charge). If only the reserve is left, a session or a refresh token of this
    /// tenant can spend it. It is looked up only then.
    async fn charge_browser(&mut self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        let address = self.known_address();
        self.charge_share(tenant, address.as_ref()).await?;
        let charged = self.charge_payer(tenant, address.as_ref(), false).await;
        if let (Err(_), Some(tenant)) = (&charged, tenant)
            && self.core.limits.tenants.has_reserve(tenant)
            && Box::pin(self.is_of_a_user(tenant)).await
        {
            return self.charge_payer(Some(tenant), None, true).await;
        }
        charged
    }

    /// Returns whether the request comes with a session or a refresh token of this tenant.
    async fn is_of_a_user(&self, tenant: &Tenant) -> bool {
        if let (Some(text), Some(tokens)) = (&self.refresh_token, &self.core.tokens)
            && let Ok(keyed) = self.core.keyed().await
            && let Ok(Some(presented)) = tokens.service.presented(text, keyed).await
        {
            return tokens.service.is_usable(&presented)
                && presented.grant().who.tenant == *tenant
                && tokens.service.has_ended(presented.grant()).await.is_ok_and(|has_ended| !has_ended);
        }
        let session = self.core.sessions.presented(&self.parts.headers, tenant).await;
        session.is_ok_and(|session| session.is_some())
    }

    async fn charge_share(&self, tenant: Option<&Tenant>, address: Option<&Tenant>) -> Result<(), Problem> {
        if let (Some(share), Some(_), Some(address)) = (&self.core.limits.per_address, tenant, address) {
            share.charge(address.clone(), false, self.head()).wait().await?;
        }
        Ok(())
    }

    async fn charge_payer(
        &mut self,
        tenant: Option<&Tenant>,
        address: Option<&Tenant>,
        is_proved: bool,
    ) -> Result<(), Problem> {
        let payer = tenant.or(address).cloned().unwrap_or_else(Tenant::anonymous);
        // refused requests stay counted, because each of them costs a lookup
        self.pass = Some(self.core.limits.tenants.charge(payer, is_proved, self.head()).wait().await?);
        if tenant.is_some()
            && let Unverified::Counted(work) = std::mem::replace(&mut self.unverified, Unverified::Settled)
        {
            self.core.limits.unverified.refund(work);
        }
        Ok(())
    }

    /// Counts a lookup or a signature check that is needed to find out whose budget the request spends. Must come before
    /// such work. Charging the request to a tenant uncounts it.
    pub(crate) async fn count_unverified(&mut self) -> Result<(), Problem> {
        if let Unverified::None = self.unverified {
            let work = self.core.limits.unverified.begin(self.known_address().as_ref()).await?;
            self.unverified = Unverified::Counted(work);
        }
        Ok(())
    }

    /// Returns the value, or charges the client's address for a request that cannot be read.
    pub(crate) async fn or_charge<T>(&mut self, read: Result<T, Problem>) -> Result<T, Problem> {
        if read.is_err() {
            self.charge(None).await?;
        }
        read
    }

    /// Charges the client address for a request that names no tenant. If the address is unknown, nothing is charged.
    pub(crate) async fn charge_asset(&mut self) -> Result<(), Problem> {
        if let Some(address) = self.known_address() {
            self.pass = Some(self.core.limits.tenants.charge(address, false, self.head()).wait().await?);
        }
        Ok(())
    }

    /// Finds a registered client by its id. Never the built-in one, which has no codes and no tokens.
    pub(crate) async fn client(&self, id: Option<&str>) -> FoundClient {
        match id {
            Some(id) if id.len() <= Client::MAX_ID && id != Client::FIRST_PARTY => self.core.clients.find(id).await,
            _ => Ok(None),
        }
    }

    /// Finds the client of a login: a registered one, or the built-in one if users sign in to the site itself.
    async fn login_client(&self, id: Option<&str>) -> FoundClient {
        match (id, &self.core.first_party) {
            (Some(Client::FIRST_PARTY), Some(site)) => Ok(site.client(self.head()).map(Arc::new)),
            _ => self.client(id).await,
        }
    }

    /// Finds the client of a call and charges its tenant, or the address if the client is unknown.
    pub(crate) async fn charged_client(
        &mut self,
        id: Option<&str>,
        reach: ClientReach,
    ) -> Result<Option<Arc<Client>>, Problem> {
        let client = self.counted_client(id, reach).await?;
        self.charged(client).await
    }

    /// Finds the client of a script's call like [`charged_client`](Self::charged_client), and checks that the script's
    /// origin may call.
    pub(crate) async fn calling_client(
        &mut self,
        id: Option<&str>,
        reach: ClientReach,
    ) -> Result<Option<Arc<Client>>, Problem> {
        let client = self.counted_client(id, reach).await?;
        self.let_read(client.as_ref().ok().and_then(Option::as_deref));
        let client = self.charged(client).await?;
        self.check_origin(client.as_deref())?;
        Ok(client)
    }

    async fn counted_client(&mut self, id: Option<&str>, reach: ClientReach) -> Result<FoundClient, Problem> {
        self.count_unverified().await?;
        Ok(match reach {
            ClientReach::Registered => self.client(id).await,
            ClientReach::Login => self.login_client(id).await,
        })
    }

    async fn charged(&mut self, client: FoundClient) -> Result<Option<Arc<Client>>, Problem> {
        self.charge_browser(client.as_ref().ok().and_then(Option::as_deref).map(Client::tenant)).await?;
        Ok(client?)
    }

    /// Finds the login that a call is about, if it was begun in this browser. Charges the request and checks the origin.
    ///
    /// A missing cookie, a wrong cookie and an unknown login get the same answer.
    pub(crate) async fn own_login(
        &mut self,
        client_id: Option<&str>,
        session_id: Option<&str>,
    ) -> Result<(Digest, StoredLogin), Problem> {
        self.count_unverified().await?;
        let found = self.login(session_id).await;
        let own = found.as_ref().ok().and_then(Option::as_ref).map(|(_, stored)| &stored.value);
        // the login's client is proved, the client that the call names is not
        let client = self.login_client(own.map(|login| &*login.binding.client_id).or(client_id)).await;
        let known = client.as_ref().ok().and_then(Option::as_deref);
        self.let_read(known);
        self.charge_browser(own.map(|login| &login.tenant).or(known.map(Client::tenant))).await?;
        let (client, found) = (client?, found?);
        self.check_origin(client.as_deref())?;
        if session_id.is_none() {
            return Err(Problem::invalid("session_id is missing"));
        }
        found.ok_or_else(|| Problem::new(Code::InvalidSession, "this browser has no login with this session_id"))
    }

    /// Finds the login with which a user comes back from another site, and charges the request. The browser names that site
    /// as the origin, so the origin is not checked.
    #[cfg(feature = "external-providers")]
    pub(crate) async fn returning_login(
        &mut self,
        session_id: Option<&str>,
    ) -> Result<Option<(Digest, StoredLogin)>, Problem> {
        self.count_unverified().await?;
        let found = self.login(session_id).await;
        let own = found.as_ref().ok().and_then(Option::as_ref).map(|(_, stored)| &stored.value.tenant);
        self.charge_browser(own).await?;
        Ok(found?)
    }

    async fn login(&self, session_id: Option<&str>) -> Result<Option<(Digest, StoredLogin)>, StoreError> {
        let Some(id) = session_id.and_then(LoginId::parse) else { return Ok(None) };
        let Some(digest) = self.core.cookies.secret_of(&self.parts.headers, &id) else { return Ok(None) };
        Ok(self.core.logins.find(&digest).await?.map(|login| (digest, login)))
    }

    /// Lets scripts of any client's pages read the response while the client of the call is unknown.
    pub(crate) async fn let_any_client_read(&mut self, path: &Path) {
        let own = self.core.issuer.origin().as_bytes();
        let origin = Caller::of(&self.parts.headers).origin();
        let foreign = origin.filter(|origin| path.is_for_scripts() && origin.as_bytes() != own);
        if let Some((origin, text)) = foreign.and_then(|origin| Some((origin, origin.to_str().ok()?)))
            && self.count_unverified().await.is_ok()
            && self.core.clients.allows_origin(text).await.unwrap_or_default()
        {
            self.reader = Some(origin.clone());
        }
        // a body that is slow to come must not hold a place
        if matches!(self.unverified, Unverified::Counted(CountedWork::AtOnce { .. })) {
            self.unverified = Unverified::None;
        }
    }

    /// Lets scripts of this client's pages read the answer, even if the answer is a refusal.
    pub(crate) fn let_read(&mut self, client: Option<&Client>) {
        let is_known = |text| client.is_some_and(|client| client.allows_origin(text));
        let origin = Caller::of(&self.parts.headers).origin();
        self.reader = origin.filter(|origin| origin.to_str().is_ok_and(is_known)).cloned();
    }

    /// Refuses scripts of origins that are neither ours nor this client's.
    pub(crate) fn check_origin(&mut self, client: Option<&Client>) -> Result<(), Problem> {
        if Caller::of(&self.parts.headers).may_call(self.core.issuer.origin(), self.reader.is_some()) {
            return Ok(());
        }
        self.reader = None;
        self.core.journal.tally(EventKind::ForeignOrigin, client.map(Client::tenant), None);
        Err(foreign_origin())
    }

    /// Checks whether one of our own pages sent this request.
    pub(crate) fn is_of_own_page(&self) -> bool {
        Caller::of(&self.parts.headers).is_own_page(self.core.issuer.origin())
    }

    /// Answers OPTIONS: the methods of a path and, to scripts of an allowed origin, that they may call.
    pub(crate) async fn options(&mut self, path: &Path) -> Result<Response<Body>, Problem> {
        let mut response = answer::allow(StatusCode::NO_CONTENT, path.allow());
        if !self.head().is_preflight() {
            return Ok(response);
        }
        let origin = self.parts.headers.get(header::ORIGIN).filter(|_| path.is_for_scripts());
        let origin = origin.ok_or_else(foreign_origin)?;
        let text = origin.to_str().map_err(|_| foreign_origin())?;
        if self.known_address().is_none() {
            self.count_unverified().await?;
        }
        if !self.core.clients.allows_origin(text).await? {
            return Err(foreign_origin());
        }
        self.reader = Some(origin.clone());
        cors::write_preflight(path, response.headers_mut());
        Ok(response)
    }

    /// Returns the thumbprint of the key that the caller of this path proves to hold (DPoP), or `None` without a proof. Each
    /// proof counts once.
    pub(crate) async fn proved_key(&self, path: &str, access_token: Option<&str>) -> Result<Option<String>, Problem> {
        match self.read_proof(path, access_token)? {
            Some(proof) => Ok(Some(Box::pin(self.spend_proof(proof.verify()?)).await?)),
            None => Ok(None),
        }
    }

    /// Reads the proof of a key (DPoP) that came with a call of this path, without checking its signature.
    pub(crate) fn read_proof(
        &self,
        path: &str,
        access_token: Option<&str>,
    ) -> Result<Option<UnverifiedProof<'a>>, Problem> {
        let url = format!("{}{path}", self.core.issuer.as_str());
        let Some(endpoints) = &self.core.tokens else { return Ok(None) };
        Ok(endpoints.proofs.read(&self.parts.headers, &self.parts.method, &url, access_token)?)
    }

    /// Marks a proof as used, and returns the thumbprint of its key. The request must have been charged.
    pub(crate) async fn spend_proof(&self, proof: DpopProof) -> Result<String, Problem> {
        let endpoints = self.core.tokens.as_ref().ok_or_else(Problem::unavailable)?;
        Ok(endpoints.proofs.spend(proof).wait().await?.thumbprint)
    }

    /// Records what is behind a problem.
    pub(crate) fn log(&self, problem: &Problem) {
        if problem.log() {
            self.core.journal.store_failed();
        }
    }

    /// Returns the answer with all its headers.
    pub(crate) fn finish(self, outcome: Result<Response<Body>, Problem>) -> Response<Body> {
        let mut response = match outcome {
            Ok(response) => response,
            Err(problem) => {
                self.log(&problem);
                problem.into_response(&self.parts.headers, &self.core.realm)
            }
        };
        let status = response.status();
        let headers = response.headers_mut();
        answer::secure(headers);
        cors::write(self.reader, self.parts.headers.contains_key(header::ORIGIN), headers);
        // a cached answer must not show the budget of the client that fetched it first
        let is_cached = headers.get(header::CACHE_CONTROL).is_some_and(|value| value != "no-store");
        if let Some(pass) = self.pass.filter(|_| !is_cached) {
            pass.finish(status, headers);
        }
        if self.parts.method == Method::HEAD {
            return without_body(response);
        }
        response
    }
}

pub(crate) fn foreign_origin() -> Problem {
    Problem::new(Code::OriginNotAllowed, "pages of this origin are not allowed to call")
}

impl From<DpopError> for Problem {
    fn from(error: DpopError) -> Self {
        match error {
            DpopError::Invalid(detail) => Self::new(Code::InvalidDpopProof, detail),
            DpopError::UseNonce(nonce) => {
                let problem = Self::new(Code::UseDpopNonce, "the proof needs the nonce of this answer");
                match HeaderValue::try_from(nonce) {
                    Ok(nonce) => problem.header(dpop::NONCE, nonce),
                    Err(_) => problem,
                }
            }
            DpopError::Unavailable => Self::unavailable(),
        }
    }
}
