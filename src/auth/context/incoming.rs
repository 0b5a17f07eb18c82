//! A request before it is charged: the origin that may read the answer, its client, its login, and its site.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};

use super::{RequestContext, charging::Unverified};
use crate::{
    auth::{
        core::Core,
        first_party::site::FirstParty,
        http::{
            answer,
            bodies::{RequestBody, TooManyBodies},
            cors::{self, Caller},
            problem::{Code, Problem},
            route::Path,
        },
        pages::page,
        state::{logins::StoredLogin, token_endpoints::TokenEndpoints},
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

/// A request that is not charged yet. Endpoints get from here to the stage that they need; the settings and the state of the
/// service come with it.
pub(crate) struct IncomingRequest<'a> {
    pub(super) core: &'a Core,
    pub(super) parts: &'a Parts,
    /// The client's address, if it is known.
    pub(super) address: Option<Tenant>,
    pub(super) pass: Option<RateLimitPass>,
    pub(super) unverified: Unverified,
    /// A refresh token that shows that a user pays.
    pub(super) refresh_token: Option<String>,
    /// The foreign origin whose scripts may read the answer.
    reader: Option<HeaderValue>,
}

/// A call from an origin that may call for its client. The client is not known if the call names none, or an unknown one.
pub(crate) struct ClientCall<'a> {
    pub(crate) cx: RequestContext<'a>,
    pub(crate) client: Option<Arc<Client>>,
}

/// A call about a login that was begun in this browser, from an origin that may call.
pub(crate) struct OwnLogin<'a> {
    pub(crate) cx: RequestContext<'a>,
    /// The digest of the login's secret.
    pub(crate) digest: Digest,
    pub(crate) stored: StoredLogin,
}

/// A call to the site on which the service is mounted.
pub(crate) struct SiteCall<'a> {
    pub(crate) cx: RequestContext<'a>,
    pub(crate) site: &'a FirstParty,
    /// The built-in client of the request's tenant.
    pub(crate) client: Client,
}

impl<'a> IncomingRequest<'a> {
    pub(crate) fn new(core: &'a Core, parts: &'a Parts) -> Self {
        let address = core.client_ip.find(Head::from(parts)).ok().flatten();
        core.limits.addresses.saw(address.is_some(), &core.journal);
        Self { core, parts, address, pass: None, unverified: Unverified::None, refresh_token: None, reader: None }
    }

    pub(crate) fn parts(&self) -> &'a Parts {
        self.parts
    }

    /// Returns the client's address, if it is known.
    pub(crate) fn known_address(&self) -> Option<Tenant> {
        self.address.clone()
    }

    /// Finds the served path of a request. Some exist only where tokens are issued, where there are other identity
    /// providers, or where users sign in to the site itself.
    pub(crate) fn path(&self) -> Option<&'static Path> {
        let path = Path::of(self.parts.uri.path(), self.core.issuer.path())?;
        let has_tokens = self.core.tokens.is_some();
        #[cfg(feature = "sso")]
        let has_providers = !self.core.providers.is_empty();
        #[cfg(not(feature = "sso"))]
        let has_providers = false;
        let is_served = (has_tokens || !path.needs_tokens())
            && (has_providers || !path.needs_providers())
            && (self.core.first_party.is_some() || !path.needs_first_party());
        is_served.then_some(path)
    }

    /// Returns whether users sign in to the site itself.
    #[cfg(feature = "sso")]
    pub(crate) fn has_site(&self) -> bool {
        self.core.first_party.is_some()
    }

    /// Takes a place for the body of the request, before any of it is read. A request that gets none is charged like one
    /// that names no tenant.
    pub(crate) async fn admit_body(&mut self, body: &mut RequestBody) -> Result<(), Problem> {
        // only forms and JSON are used
        if self.parts.method != Method::POST {
            return Ok(());
        }
        match body.enter(&self.core.bodies, self.address.clone()) {
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

    /// Returns the parts of a service that issues tokens.
    pub(crate) fn token_endpoints(&self) -> Option<&'a TokenEndpoints> {
        self.core.tokens.as_ref()
    }

    /// Returns the core of the service for a caller that has shown a secret of the operator.
    pub(crate) fn operated(&self) -> &'a Core {
        self.core
    }

    /// Finds the client of a navigation and charges its tenant, or the address if the client is unknown.
    pub(crate) async fn charged_client(
        &mut self,
        id: Option<&str>,
        reach: ClientReach,
    ) -> Result<(RequestContext<'a>, Option<Arc<Client>>), Problem> {
        let client = self.find_client(id, reach).await?;
        let cx = self.charge_browser(tenant_of(&client)).await?;
        Ok((cx, client?))
    }

    /// Finds the client of a call like [`charged_client`](Self::charged_client), and checks that the origin may call.
    pub(crate) async fn calling_client(
        &mut self,
        id: Option<&str>,
        reach: ClientReach,
    ) -> Result<ClientCall<'a>, Problem> {
        let (cx, client) = self.charged_caller(id, reach).await?;
        Ok(ClientCall { cx, client: client? })
    }

    /// Finds the client of a call like [`calling_client`](Self::calling_client), but also returns the context of a charged
    /// request that is refused.
    pub(crate) async fn charged_caller(
        &mut self,
        id: Option<&str>,
        reach: ClientReach,
    ) -> Result<(RequestContext<'a>, Result<Option<Arc<Client>>, Problem>), Problem> {
        let found = self.find_client(id, reach).await?;
        self.let_read(found.as_ref().ok().and_then(Option::as_deref));
        let cx = self.charge_browser(tenant_of(&found)).await?;
        let client = match found {
            Ok(client) => self.check_origin(client.as_deref().map(Client::tenant)).map(|()| client),
            Err(error) => Err(error.into()),
        };
        Ok((cx, client))
    }

    /// Finds the client of a call that comes with a refresh token, like [`charged_caller`](Self::charged_caller). If only the
    /// reserve of the tenant is left, a usable token of that tenant can spend it.
    pub(crate) async fn charged_caller_with(
        &mut self,
        refresh_token: Option<&str>,
        id: Option<&str>,
    ) -> Result<(RequestContext<'a>, Result<Option<Arc<Client>>, Problem>), Problem> {
        self.refresh_token = refresh_token.map(str::to_owned);
        self.charged_caller(id, ClientReach::Registered).await
    }

    /// Finds the login that a call is about, if it was begun in this browser. Charges the request and checks the origin.
    ///
    /// A missing cookie, a wrong cookie and an unknown login get the same answer.
    pub(crate) async fn own_login(
        &mut self,
        client_id: Option<&str>,
        session_id: Option<&str>,
    ) -> Result<OwnLogin<'a>, Problem> {
        self.begin_lookup().await?;
        let found = self.login(session_id).await;
        let own = found.as_ref().ok().and_then(Option::as_ref).map(|(_, stored)| &stored.value);
        // the login's client is proved, the client that the call names is not
        let client = self.login_client(own.map(|login| &*login.binding.client_id).or(client_id)).await;
        let known = client.as_ref().ok().and_then(Option::as_deref);
        self.let_read(known);
        let cx = self.charge_browser(own.map(|login| &login.tenant).or(known.map(Client::tenant))).await?;
        let (client, found) = (client?, found?);
        self.check_origin(client.as_deref().map(Client::tenant))?;
        if session_id.is_none() {
            return Err(Problem::invalid("session_id is missing"));
        }
        let unknown = || Problem::new(Code::InvalidSession, "this browser has no login with this session_id");
        let (digest, stored) = found.ok_or_else(unknown)?;
        Ok(OwnLogin { cx, digest, stored })
    }

    /// Finds the login with which a user comes back from another site, and charges the request. The browser names that site
    /// as the origin, so the origin is not checked.
    #[cfg(feature = "sso")]
    pub(crate) async fn returning_login(
        &mut self,
        session_id: Option<&str>,
    ) -> Result<(RequestContext<'a>, Option<(Digest, StoredLogin)>), Problem> {
        self.begin_lookup().await?;
        let found = self.login(session_id).await;
        let own = found.as_ref().ok().and_then(Option::as_ref).map(|(_, stored)| &stored.value.tenant);
        let cx = self.charge_browser(own).await?;
        Ok((cx, found?))
    }

    /// Finds the built-in client of the request's tenant, and charges the request to that tenant.
    pub(crate) async fn of_this_site(&mut self) -> Result<SiteCall<'a>, Problem> {
        let (site, client) = self.core.first_party.as_ref().map(|site| (site, site.client(self.head()))).unzip();
        let client = client.flatten();
        let cx = self.charge(client.as_ref().map(Client::tenant)).await?;
        let (site, client) =
            site.zip(client).ok_or(Problem::invalid("no tenant could be determined for this request"))?;
        Ok(SiteCall { cx, site, client })
    }

    /// Like [`of_this_site`](Self::of_this_site), for calls that only pages of this site may send. Reading is also allowed to
    /// clients that are no browsers.
    pub(crate) async fn of_own_page(&mut self) -> Result<SiteCall<'a>, Problem> {
        let call = self.of_this_site().await?;
        let tenant = Some(call.client.tenant());
        if self.parts.method != Method::POST {
            self.check_origin(tenant)?;
        } else if !call.cx.is_of_own_page() {
            return Err(self.foreign_origin(tenant));
        }
        Ok(call)
    }

    /// Lets scripts of any client's pages read the response while the client of the call is unknown.
    pub(crate) async fn let_any_client_read(&mut self, path: &Path) {
        let own = self.core.issuer.origin().as_bytes();
        let origin = Caller::of(&self.parts.headers).origin();
        let foreign = origin.filter(|origin| path.is_for_scripts() && origin.as_bytes() != own);
        if let Some((origin, text)) = foreign.and_then(|origin| Some((origin, origin.to_str().ok()?)))
            && self.begin_lookup().await.is_ok()
            && self.core.clients.allows_origin(text).await.unwrap_or_default()
        {
            self.reader = Some(origin.clone());
        }
        // a body that is slow to come must not hold a place
        self.release_place();
    }

    /// Lets scripts of this client's pages read the answer, even if the answer is a refusal.
    pub(crate) fn let_read(&mut self, client: Option<&Client>) {
        let is_known = |text| client.is_some_and(|client| client.allows_origin(text));
        let origin = Caller::of(&self.parts.headers).origin();
        self.reader = origin.filter(|origin| origin.to_str().is_ok_and(is_known)).cloned();
    }

    /// Returns whether scripts of another origin may read the answer.
    pub(crate) fn is_read_elsewhere(&self) -> bool {
        self.reader.is_some()
    }

    /// Lets no page read the answer, because the endpoint is for programs.
    pub(crate) fn let_no_page_read(&mut self) {
        self.reader = None;
    }

    /// Answers OPTIONS: the methods of a path and, to scripts of an allowed origin, that they may call.
    pub(crate) async fn options(&mut self, path: &Path) -> Result<Response<Body>, Problem> {
        self.charge_asset().await?;
        let mut response = answer::allow(StatusCode::NO_CONTENT, path.allow());
        if !self.head().is_preflight() {
            return Ok(response);
        }
        let origin = self.parts.headers.get(header::ORIGIN).filter(|_| path.is_for_scripts());
        let origin = origin.ok_or_else(foreign_origin)?;
        let text = origin.to_str().map_err(|_| foreign_origin())?;
        if self.address.is_none() {
            self.begin_lookup().await?;
        }
        if !self.core.clients.allows_origin(text).await? {
            return Err(foreign_origin());
        }
        self.reader = Some(origin.clone());
        cors::write_preflight(path, response.headers_mut());
        Ok(response)
    }

    /// Returns the answer with all its headers.
    pub(crate) fn finish(self, outcome: Result<Response<Body>, Problem>) -> Response<Body> {
        let mut response = outcome.unwrap_or_else(|problem| {
            if problem.log() {
                self.core.journal.store_failed();
            }
            match problem.is_for_people(&self.parts.headers) {
                true => page::error(self.core, self.parts, problem),
                false => problem.into_response(&self.parts.headers, &self.core.realm),
            }
        });
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

    pub(super) fn head(&self) -> Head<'a> {
        Head::from(self.parts)
    }

    async fn find_client(&mut self, id: Option<&str>, reach: ClientReach) -> Result<FoundClient, Problem> {
        let core = self.begin_lookup().await?;
        Ok(match reach {
            ClientReach::Registered => core.registered_client(id).await,
            ClientReach::Login => self.login_client(id).await,
        })
    }

    /// Finds the client of a login: a registered one, or the built-in one if users sign in to the site itself.
    async fn login_client(&self, id: Option<&str>) -> FoundClient {
        match (id, &self.core.first_party) {
            (Some(Client::FIRST_PARTY), Some(site)) => Ok(site.client(self.head()).map(Arc::new)),
            _ => self.core.registered_client(id).await,
        }
    }

    async fn login(&self, session_id: Option<&str>) -> Result<Option<(Digest, StoredLogin)>, StoreError> {
        let Some(id) = session_id.and_then(LoginId::parse) else { return Ok(None) };
        let Some(digest) = self.core.cookies.secret_of(&self.parts.headers, &id) else { return Ok(None) };
        Ok(self.core.logins.find(&digest).await?.map(|login| (digest, login)))
    }

    /// Refuses scripts of origins that are neither ours nor this client's.
    fn check_origin(&mut self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        if Caller::of(&self.parts.headers).may_call(self.core.issuer.origin(), self.reader.is_some()) {
            return Ok(());
        }
        self.reader = None;
        Err(self.foreign_origin(tenant))
    }

    /// Records a call of a page that may not call.
    fn foreign_origin(&self, tenant: Option<&Tenant>) -> Problem {
        self.core.journal.tally(EventKind::ForeignOrigin, tenant, None);
        foreign_origin()
    }
}

fn tenant_of(found: &FoundClient) -> Option<&Tenant> {
    found.as_ref().ok().and_then(Option::as_deref).map(Client::tenant)
}

fn foreign_origin() -> Problem {
    Problem::new(Code::OriginNotAllowed, "pages of this origin are not allowed to call")
}
