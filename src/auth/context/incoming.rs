//! A request before it is charged: its address, who may read the answer, and the charge.

use std::{mem, time::Duration};

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};

use super::RequestContext;
use crate::{
    auth::{
        core::{Core, Limits},
        http::{
            answer,
            bodies::{RequestBody, TooManyBodies},
            cors::{self, Caller},
            problem::{Code, EndpointResult, Problem},
            route::{Path, Route},
        },
        pages::page,
        state::{token_endpoints::TokenEndpoints, unverified::CountedWork},
    },
    client::Client,
    event::EventKind,
    gate::Pass,
    http::{
        body::{Body, without_body},
        head::Head,
    },
    limit::{RateLimitGate, RateLimitPass},
    tenant::{LimitKey, Tenant, TenantName},
    user::OfferedChange,
};

/// A request that is not charged yet. Endpoints get from here to the stage that they need, and only that stage gives them the
/// settings and the state of the service.
pub(crate) struct IncomingRequest<'a> {
    pub(super) core: &'a Core,
    pub(crate) parts: &'a Parts,
    /// The client's address, if it is known.
    pub(crate) address: Option<LimitKey>,
    pass: Option<RateLimitPass>,
    unverified: Unverified,
    /// A refresh token that came with the request. Like a session, it shows that the request is a user's.
    pub(crate) refresh_token: Option<String>,
    /// The foreign origin whose scripts may read the answer.
    pub(crate) reader: Option<HeaderValue>,
}

/// The work that is done before it is known whose budget a request spends.
enum Unverified {
    None,
    Counted(CountedWork),
    /// The request was charged to its tenant.
    Settled,
}

impl<'a> IncomingRequest<'a> {
    pub(crate) fn new(core: &'a Core, parts: &'a Parts) -> Self {
        let address = core.client_ip.limit_key(Head::from(parts));
        core.limits.addresses.saw(address.is_some(), &core.journal);
        Self { core, parts, address, pass: None, unverified: Unverified::None, refresh_token: None, reader: None }
    }

    /// Checks whether a path is served. Some endpoints need settings, such as tokens or a logo, or accounts that offer a change.
    pub(crate) fn serves(&self, path: &Path) -> bool {
        path.routes().all(|route| self.has_settings_of(route))
    }

    fn has_settings_of(&self, route: Route) -> bool {
        let (core, has_site) = (self.core, self.core.first_party.is_some());
        match route {
            Route::Token(_) => core.tokens.is_some(),
            Route::SsoCallback => core.factors.has_providers(),
            Route::Logo => core.pages.logo.is_some(),
            Route::SignUp(_) => core.offers_sign_up(),
            Route::Reset(_) => core.offers_reset,
            Route::Account(route) => has_site && route.needed_change().is_none_or(|change| core.users.offers(change)),
            Route::ChangePassword => has_site && core.users.offers(OfferedChange::SetPassword),
            Route::PasskeyEndpoints => has_site && core.factors.methods.contains(crate::policy::Method::Passkey),
            Route::SignIn
            | Route::FinishSignIn
            | Route::SignOut
            | Route::SignOutPage
            | Route::AccountPage
            | Route::AccountScript => has_site,
            _ => true,
        }
    }

    /// Returns whether users sign in to the site itself.
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
        match body.ensure_body_place(&self.core.bodies, self.address.clone()) {
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

    /// Lets scripts of the calling origin read the response until the client of the call is known, if any client allows that
    /// origin.
    pub(crate) async fn let_any_client_read(&mut self, path: &Path) {
        let origin = Caller::from_cors_headers(&self.parts.headers).origin();
        if let Some(origin) = origin.filter(|origin| path.is_for_scripts() && *origin != self.core.issuer.origin())
            && self.begin_lookup().await.is_ok()
            && self.core.clients.allows_origin(origin).await.unwrap_or_default()
        {
            self.reader = self.parts.headers.get(header::ORIGIN).cloned();
        }
        // a body that is slow to come must not hold a permit for lookups
        self.release_lookup();
    }

    /// Lets scripts of this client's pages read the answer, even if the answer is a refusal. Our own origin is never such a page, even if
    /// the client lists it.
    pub(crate) fn let_read(&mut self, client: Option<&Client>) {
        let origin = Caller::from_cors_headers(&self.parts.headers).origin();
        let origin = origin.filter(|origin| *origin != self.core.issuer.origin());
        let is_known = origin.zip(client).is_some_and(|(origin, client)| client.allows_origin(origin));
        self.reader = self.parts.headers.get(header::ORIGIN).filter(|_| is_known).cloned();
    }

    /// Answers OPTIONS: the methods of a path and, to scripts of an allowed origin, that they may call.
    pub(crate) async fn options(&mut self, path: &Path) -> EndpointResult {
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
    pub(crate) fn finish(self, outcome: EndpointResult) -> Response<Body> {
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
        cors::write_cors_headers(self.reader, self.parts.headers.contains_key(header::ORIGIN), headers);
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

    /// Charges the request to its tenant, or to the client's address if no tenant is known.
    pub(crate) async fn charge(&mut self, tenant: Option<&Tenant>) -> Result<RequestContext<'a>, Problem> {
        self.charge_share(tenant).await?;
        self.charge_payer(tenant, false).await
    }

    /// Charges a request with a valid token or secret to this tenant. It can also spend what is reserved.
    pub(crate) async fn charge_proved(&mut self, tenant: &Tenant) -> Result<RequestContext<'a>, Problem> {
        self.charge_share(Some(tenant)).await?;
        self.charge_payer(Some(tenant), true).await
    }

    /// Charges the client address for a request that names no tenant. If the address is unknown, nothing is charged: with
    /// one budget for all callers, anyone could use it up.
    pub(crate) async fn charge_asset(&mut self) -> Result<RequestContext<'a>, Problem> {
        self.charge_address(|limits| &limits.tenants).await
    }

    /// Charges the client address in the same way, but a budget of its own: without its style and its script, a page could
    /// not even say that its reader has to wait.
    pub(crate) async fn charge_page_part(&mut self) -> Result<RequestContext<'a>, Problem> {
        self.charge_address(|limits| &limits.page_parts).await
    }

    async fn charge_address(&mut self, gate: fn(&Limits) -> &RateLimitGate) -> Result<RequestContext<'a>, Problem> {
        if let Some(address) = self.address.clone() {
            self.pass = Some(gate(&self.core.limits).charge(&address.into(), self.head()).wait().await?);
        }
        Ok(self.charged())
    }

    /// Returns the value, or charges the client's address for a request that cannot be read.
    pub(crate) async fn or_charge<T>(&mut self, read: Result<T, Problem>) -> Result<T, Problem> {
        if read.is_err() {
            self.charge(None).await?;
        }
        read
    }

    /// Counts a lookup or a signature check that is needed to find out whose budget the request spends. Charging the request
    /// to a tenant uncounts it.
    pub(crate) async fn begin_lookup(&mut self) -> Result<&'a Core, Problem> {
        if let Unverified::None = self.unverified {
            let work = self.core.limits.unverified.count_work(self.address.as_ref()).await?;
            self.unverified = Unverified::Counted(work);
        }
        Ok(self.core)
    }

    /// Uncounts unverified work that is counted only while it lasts.
    fn release_lookup(&mut self) {
        if matches!(self.unverified, Unverified::Counted(CountedWork::AtOnce { .. })) {
            self.unverified = Unverified::None;
        }
    }

    /// Creates the next stage. Call it only after a charge.
    fn charged(&self) -> RequestContext<'a> {
        RequestContext {
            core: self.core,
            parts: self.parts,
            address: self.address.clone(),
            is_read_elsewhere: self.reader.is_some(),
        }
    }

    /// Charges a request like [`charge`](Self::charge). If only the reserve is left, a session or a refresh token of this
    /// tenant can spend it. It is looked up only then.
    pub(super) async fn charge_with_reserve(&mut self, tenant: Option<&Tenant>) -> Result<RequestContext<'a>, Problem> {
        self.charge_share(tenant).await?;
        let charged = self.charge_payer(tenant, false).await;
        if let (Err(_), Some(tenant)) = (&charged, tenant)
            && self.core.limits.tenants.has_reserve(tenant)
            && self.begin_lookup().await.is_ok()
            && Box::pin(self.is_of_a_user(tenant)).await
        {
            return self.charge_payer(Some(tenant), true).await;
        }
        charged
    }

    /// Returns whether the request comes with a session or a refresh token of this tenant.
    async fn is_of_a_user(&self, tenant: &Tenant) -> bool {
        if let (Some(text), Some(tokens)) = (&self.refresh_token, &self.core.tokens)
            && let Ok(keyed) = self.core.keyed().await
            && let Ok(Some(presented)) = tokens.service.find_refresh_token(text, keyed).await
        {
            return tokens.service.is_usable(&presented)
                && presented.grant().who.tenant == *tenant
                && tokens.service.has_ended(presented.grant()).await.is_ok_and(|has_ended| !has_ended);
        }
        let session = self.core.sessions.presented(&self.parts.headers, tenant).await;
        session.is_ok_and(|session| session.is_some())
    }

    async fn charge_share(&self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        if let (Some(share), Some(_), Some(address)) = (&self.core.limits.per_address, tenant, &self.address) {
            share.charge(&address.clone().into(), self.head()).wait().await?;
        }
        Ok(())
    }

    async fn charge_payer(&mut self, tenant: Option<&Tenant>, is_proved: bool) -> Result<RequestContext<'a>, Problem> {
        let payer = match (tenant, is_proved) {
            (Some(tenant), true) => TenantName::from(tenant.clone()),
            (Some(tenant), false) => TenantName::from(LimitKey::from(tenant.clone())),
            (None, _) => TenantName::from(self.address.clone().unwrap_or_else(LimitKey::anonymous)),
        };
        // if this fails, the lookup stays counted: each refused request has cost one
        self.pass = Some(self.core.limits.tenants.charge(&payer, self.head()).wait().await?);
        if tenant.is_some()
            && let Unverified::Counted(work) = mem::replace(&mut self.unverified, Unverified::Settled)
        {
            self.core.limits.unverified.refund_work(work);
        }
        Ok(self.charged())
    }

    pub(super) fn head(&self) -> Head<'a> {
        Head::from(self.parts)
    }

    /// Refuses scripts of origins that are neither ours nor this client's.
    pub(super) fn check_origin(&mut self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        if Caller::from_cors_headers(&self.parts.headers).may_call(self.core.issuer.origin(), self.reader.is_some()) {
            return Ok(());
        }
        self.reader = None;
        Err(self.foreign_origin(tenant))
    }

    /// Records a call of a page that may not call.
    pub(crate) fn foreign_origin(&self, tenant: Option<&Tenant>) -> Problem {
        self.core.journal.tally(EventKind::ForeignOrigin, tenant, None);
        foreign_origin()
    }
}

fn foreign_origin() -> Problem {
    Problem::new(Code::OriginNotAllowed, "only programs and pages of allowed origins may call")
}
