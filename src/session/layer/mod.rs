//! The layer that finds the session of each request, and the gate behind it.

pub(crate) mod cached_claims;
pub(crate) mod requirements;
mod sign_in_required;

use std::{any::type_name, error::Error, sync::Arc, time::Duration};

use http::{Extensions, HeaderValue};
use serde::Serialize;
use tower_layer::Layer;

use self::{
    cached_claims::{CachedClaims, ClaimsSource},
    requirements::{ProofCheck, Requirements, Shortfall},
    sign_in_required::SignInRequired,
};
use super::{
    cookies::PresentedCookies,
    lookup::LookupResult,
    session::{Session, SessionExtension},
    sessions::Sessions,
};
use crate::{
    event::EventKind,
    gate::{Gate, Gated, MaybeReady, Pass},
    http::{
        cross_site::{self, TrustedOrigins},
        head::Head,
    },
    reject::{Rejection, RejectionKind, StatusOnly},
    store::BoxFuture,
    tenant::TenantSource,
    util::{builder::setters, error::ConfigError},
};

/// Finds the session of each request by its cookie.
///
/// Requests with a session carry a [`Session`] in their extensions. Requests without one
/// pass too, unless the layer is [`required`](Self::required).
///
/// The [module documentation](super) describes which requests are refused and why.
#[derive(Clone)]
#[must_use]
pub struct SessionLayer<R = StatusOnly> {
    gate: SessionGate,
    respond: R,
}

impl SessionLayer {
    /// Creates a layer that attaches the session, if there is one.
    ///
    /// A browser can have sessions at several tenants. Without [`tenant`](Self::tenant), the
    /// layer accepts a request with exactly one live session and treats a request with several
    /// as one without.
    pub fn new(sessions: Sessions) -> Self {
        let gate = SessionGate {
            sessions,
            required: false,
            sign_in: SignInRequired::new(),
            requirements: Requirements::default(),
            origins: TrustedOrigins::default(),
            tenant: None,
            claims: None,
        };
        Self { gate, respond: StatusOnly }
    }
}

impl<R> SessionLayer<R> {
    setters! {
        /// Rejects requests without a session with a 401 (UNAUTHENTICATED for gRPC clients), or redirects them to the
        /// [`login_url`](Self::login_url). The event log of the sessions counts them.
        pub fn required() { gate.required: true }

        /// Accepts only sessions of the tenant that `source` finds in the request, such as
        /// [`HostTenant`](crate::tenant::HostTenant). A [`Tenant`](crate::Tenant) is also a source:
        /// pass it if the service has only one tenant.
        ///
        /// Other sessions are ignored. All sessions are ignored if the request names no tenant.
        pub fn tenant(source: impl TenantSource) { gate.tenant: Some(Arc::new(source)) }
    }

    /// Requires a session whose user has proved at least this many different factors, for example a password and a
    /// passkey. Includes [`required`](Self::required).
    ///
    /// A person who opens a page is sent to the [`login_url`](Self::login_url), with `steps` and `max_age` in its query. A
    /// login page that reads them can ask only for what is missing. Programs get a
    /// 401 with `error="insufficient_user_authentication"` and what is needed.
    ///
    /// If your application creates sessions itself, the names in their [`amr`](Session::amr) are counted, without `mfa` and `mca`.
    /// Names of the same factor count once, such as `otp` and `sms`.
    ///
    /// # Errors
    ///
    /// Returns an error for zero steps, or for more than six.
    pub fn steps(mut self, steps: usize) -> Result<Self, ConfigError> {
        self.gate.requirements.set_steps(steps)?;
        Ok(self.requiring())
    }

    /// Requires that all proofs that the sign-in needs are at most this old. Responds like [`steps`](Self::steps), and
    /// includes [`required`](Self::required).
    ///
    /// The [`auth_time`](Session::auth_time) counts if your application creates sessions itself.
    ///
    /// # Errors
    ///
    /// Returns an error if the age is less than a minute, or not a whole number of seconds.
    pub fn max_age(mut self, age: Duration) -> Result<Self, ConfigError> {
        self.gate.requirements.set_max_age(age)?;
        Ok(self.requiring())
    }

    /// Requires that the user's claim of this name equals the value, or is a list that contains it, such as
    /// `.claim("roles", "editor")`. Other users get a 403, because no sign-in helps them. Includes
    /// [`required`](Self::required). If called several times, all of the claims are required.
    ///
    /// Claims are cached, see [`Session::claim`].
    ///
    /// # Errors
    ///
    /// Returns an error if the value can't be written as JSON, or if the layer has no source of claims.
    pub fn claim(mut self, name: &str, value: impl Serialize) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::new("session claim", name, reason);
        if self.gate.claims.is_none() {
            return Err(error("can't be required, because this layer has no source of claims"));
        }
        let value = serde_json::to_value(value).map_err(|_| error("must have a value that can be written as JSON"))?;
        self.gate.requirements.claims.push((name.to_owned(), value));
        Ok(self.requiring())
    }

    fn requiring(mut self) -> Self {
        self.gate.sign_in.query = self.gate.requirements.query();
        self.required()
    }

    /// Sets where [`required`](Self::required) redirects (303) a person who opens a page
    /// without a session: a path of this site or an `https` URL. Programs still get a 401.
    ///
    /// A navigation is recognized by `Sec-Fetch-Mode: navigate` or, in browsers that do not
    /// send that, by an `Accept` header that prefers HTML. Keep the login page itself
    /// outside of the layer.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is neither.
    pub fn login_url(mut self, url: &str) -> Result<Self, ConfigError> {
        self.gate.sign_in.set_page(url)?;
        Ok(self)
    }

    /// Passes the page that the person wanted to open to the login page, in the query parameter `name`. The value is a
    /// path of this site with its query. It is left out if returning makes no sense, for example after a form was
    /// submitted.
    ///
    /// The login page must check it with [`local_path`](super::local_path) before it redirects, because anyone can write a
    /// link to that page.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has other characters than letters, digits and `-._~`.
    pub fn return_parameter(mut self, name: &str) -> Result<Self, ConfigError> {
        self.gate.sign_in.set_parameter(name)?;
        Ok(self)
    }

    /// Sets the realm in `WWW-Authenticate`. Defaults to `app`.
    ///
    /// # Errors
    ///
    /// Returns an error if the realm has quotes or is not printable ASCII.
    pub fn realm(mut self, realm: &str) -> Result<Self, ConfigError> {
        self.gate.sign_in.set_realm(realm)?;
        Ok(self)
    }

    /// Allows pages of another origin, such as `https://admin.example`, to send requests that
    /// change something. If a proxy changes the `Host` header, add the site's own origin. Plain HTTP is accepted
    /// only on a loopback address.
    ///
    /// # Errors
    ///
    /// Returns an error if this is not an origin, or if it uses plain HTTP on any other address.
    pub fn trusted_origin(mut self, origin: &str) -> Result<Self, ConfigError> {
        self.gate.origins.trust(origin)?;
        Ok(self)
    }

    /// Sets how refusals are answered; see [`Respond`](crate::reject::Respond).
    pub fn respond_with<R2>(self, respond: R2) -> SessionLayer<R2> {
        SessionLayer { gate: self.gate, respond }
    }
}

impl<R> SessionLayer<R> {
    /// Adds the claims of this source to each session, for [`Session::claim`].
    pub(crate) fn claims(mut self, source: Arc<dyn ClaimsSource>) -> Self {
        let clock = Arc::clone(self.gate.sessions.clock());
        self.gate.claims = Some(Arc::new(CachedClaims::new(source, clock)));
        self
    }

    /// Sets who decides whether the proofs of a session suffice, if it has any.
    pub(crate) fn proof_check(mut self, check: Arc<dyn ProofCheck>) -> Self {
        self.gate.requirements.check = Some(check);
        self
    }
}

impl<S, R: Clone> Layer<S> for SessionLayer<R> {
    type Service = Gated<S, SessionGate, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::new(self.gate.clone()), self.respond.clone())
    }
}

crate::util::fmt::debug_fields!(SessionLayer<R>, |own| gate: own.gate, respond: type_name::<R>());

/// The [`Gate`] of a [`SessionLayer`]: finds the session of a request.
#[derive(Clone)]
pub struct SessionGate {
    sessions: Sessions,
    required: bool,
    sign_in: SignInRequired,
    requirements: Requirements,
    origins: TrustedOrigins,
    tenant: Option<Arc<dyn TenantSource>>,
    claims: Option<Arc<CachedClaims>>,
}

type PassResult = Result<SessionPass, Rejection>;

impl Gate for SessionGate {
    type Pass = SessionPass;
    type Future = BoxFuture<'static, PassResult>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        let format = self.sessions.cookies();
        let (cookies, tenant) = match &self.tenant {
            None => (format.of_all_tenants(head.headers()), None),
            Some(_) if !format.is_presented(head.headers()) => (PresentedCookies::Absent, None),
            Some(source) => match source.find(head).and_then(|name| name.map(|name| name.to_tenant()).transpose()) {
                Ok(Some(tenant)) => (format.of_tenant(head.headers(), &tenant), Some(tenant)),
                // the server's mistake must not make callers anonymous
                Err(error) if error.is_of_server() => {
                    crate::util::trace::warning!("the tenant of a session can't be determined: {error}");
                    return MaybeReady::Ready(Err(Rejection::new(RejectionKind::Internal, error.owned_detail())));
                }
                Ok(None) | Err(_) => (PresentedCookies::Absent, None),
            },
        };
        if matches!(cookies, PresentedCookies::Absent) {
            return MaybeReady::Ready(self.without_session(|| self.sign_in.location(head)));
        }
        if !self.origins.allow(head, self.sessions.is_loopback()) {
            self.sessions.tally_kind(EventKind::ForeignOrigin, None);
            let detail = match cross_site::names_its_site(head.headers()) {
                true => "the request comes from another site",
                false => "the request has neither Origin nor Sec-Fetch-Site, so its site is unknown",
            };
            return MaybeReady::Ready(Err(Rejection::new(RejectionKind::Forbidden, detail)));
        }
        let pending = match self.sessions.find(&cookies, tenant.as_ref()) {
            MaybeReady::Ready(found) => return self.settle(found, || self.sign_in.location(head)),
            MaybeReady::Pending(pending) => pending,
        };
        // the request is gone when the store answers
        let (gate, location) = (self.clone(), self.required.then(|| self.sign_in.location(head)).flatten());
        MaybeReady::Pending(Box::pin(async move {
            let found = pending.await;
            gate.settle(found, || location).wait().await
        }))
    }
}

impl SessionGate {
    /// Returns the answer to a request without a session. `location` finds where a person is sent to sign in.
    fn without_session(&self, location: impl FnOnce() -> Option<HeaderValue>) -> PassResult {
        if self.required {
            self.sessions.tally_kind(EventKind::SessionRefused, Some("no_session"));
            return Err(SignInRequired::redirect_or(location(), || self.sign_in.unauthenticated()));
        }
        Ok(SessionPass(Some(SessionExtension::Absent(self.sign_in.challenge.clone()))))
    }

    /// Adds the claims to the session that was found, and checks the requirements of the route.
    #[inline]
    fn settle(
        &self,
        found: LookupResult,
        location: impl FnOnce() -> Option<HeaderValue>,
    ) -> MaybeReady<BoxFuture<'static, PassResult>> {
        let session = match found {
            Ok(Some(session)) => session,
            Ok(None) => return MaybeReady::Ready(self.without_session(location)),
            Err(error) => return MaybeReady::Ready(Err(unavailable(&self.sessions, &error))),
        };
        let session = match &self.claims {
            None => MaybeReady::Ready(Ok(session)),
            Some(claims) => claims.add_to(session),
        };
        if !self.requirements.is_empty() {
            let (gate, location) = (self.clone(), location());
            return MaybeReady::Pending(Box::pin(async move {
                let session = session.wait().await;
                gate.check_requirements(session, location).await
            }));
        }
        let sessions = self.sessions.clone();
        let pass = move |found: Result<Session, Box<dyn Error + Send + Sync>>| match found {
            Ok(session) => Ok(SessionPass::from_session(session)),
            Err(error) => Err(unavailable(&sessions, &*error)),
        };
        session.map(pass)
    }

    /// Admits a session that meets all requirements of the route.
    async fn check_requirements(
        &self,
        session: Result<Session, Box<dyn Error + Send + Sync>>,
        location: Option<HeaderValue>,
    ) -> PassResult {
        let failed = |error: Box<dyn Error + Send + Sync>| unavailable(&self.sessions, &*error);
        let session = session.map_err(failed)?;
        let now = self.sessions.rows().now();
        let Some(shortfall) = self.requirements.shortfall(&session, now).await.map_err(failed)? else {
            return Ok(SessionPass::from_session(session));
        };
        let reason = if shortfall == Shortfall::Proofs { "proofs" } else { "claims" };
        self.sessions.tally_kind(EventKind::SessionRefused, Some(reason));
        // a sign-in adds proofs, and no claims
        let location = location.filter(|_| shortfall == Shortfall::Proofs);
        let refusal = || self.requirements.refusal(shortfall, &self.sign_in.challenge);
        Err(SignInRequired::redirect_or(location, refusal))
    }
}

fn unavailable(sessions: &Sessions, error: &(dyn Error + 'static)) -> Rejection {
    crate::util::trace::failure!("sessions cannot be read", error);
    sessions.store_failed();
    Rejection::new(RejectionKind::Unavailable, "sessions cannot be read at the moment")
}

crate::util::fmt::debug_fields!(SessionGate { sessions, required });

/// The session of an admitted request, if it has one.
#[derive(Debug)]
pub struct SessionPass(Option<SessionExtension>);

impl SessionPass {
    fn from_session(session: Session) -> Self {
        Self(Some(SessionExtension::Present(session)))
    }
}

impl Pass for SessionPass {
    fn admit(&mut self, extensions: &mut Extensions) {
        if let Some(extension) = self.0.take() {
            extensions.insert(extension);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{
        Method, Request,
        header::{COOKIE, HOST, ORIGIN},
    };

    use super::*;
    use crate::{
        session::{NewSession, model::proved},
        store::Memory,
        tenant::{TenantError, TenantName},
        testing::block_on,
    };

    /// A source that finds no tenant.
    struct Failing(TenantError);

    impl TenantSource for Failing {
        fn find<'a>(&self, _head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
            Err(self.0.clone())
        }
    }

    /// Returns why a request is refused, if it is.
    fn refusal(layer: &SessionLayer, request: &Request<()>) -> Option<RejectionKind> {
        block_on(layer.gate.inspect(Head::of_request(request)).wait()).err().map(|rejection| rejection.kind())
    }

    /// Returns a request with the cookie of a new session.
    fn signed_in(sessions: &Sessions) -> Request<()> {
        let new = NewSession::authenticated(proved("acme", "ada", 0, &["password"]));
        let (cookie, _) = block_on(sessions.create(new)).unwrap();
        let header = cookie.header_value();
        let pair = header.to_str().unwrap().split(';').next().unwrap();
        Request::builder().header(COOKIE, pair).body(()).unwrap()
    }

    #[test]
    fn a_mistake_about_tenants_refuses_requests_with_a_cookie_and_no_others() {
        let sessions = Sessions::new(Memory::new());
        let layer = SessionLayer::new(sessions.clone()).tenant(Failing(TenantError::internal("no source")));
        assert_eq!(refusal(&layer, &signed_in(&sessions)), Some(RejectionKind::Internal));
        assert_eq!(refusal(&layer, &Request::new(())), None);
        // a mistake of the caller makes the request anonymous
        let layer = SessionLayer::new(sessions.clone()).tenant(Failing(TenantError::invalid("two names")));
        assert_eq!(refusal(&layer, &signed_in(&sessions)), None);
    }

    #[test]
    fn pages_over_plain_http_change_something_only_on_loopback() {
        let secure = Sessions::builder(Memory::new());
        for (builder, expected) in
            [(secure.clone(), Some(RejectionKind::Forbidden)), (secure.insecure_loopback(), None)]
        {
            let sessions = builder.build().unwrap();
            let mut request = signed_in(&sessions);
            *request.method_mut() = Method::POST;
            request.headers_mut().insert(HOST, "localhost:8080".parse().unwrap());
            request.headers_mut().insert(ORIGIN, "http://localhost:8080".parse().unwrap());
            assert_eq!(refusal(&SessionLayer::new(sessions), &request), expected);
        }
    }
}
