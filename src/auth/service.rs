use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use tower_service::Service;

#[cfg(feature = "tokens")]
use super::token;
use super::{
    authorize, complete,
    cookies::LoginCookies,
    fields::Fields,
    inner::{Config, Inner},
    page,
    problem::{Code, Problem},
    pushed,
    route::{Path, Route},
    start, status, step,
    visit::Visit,
};
use crate::{
    client::{AnyClients, Client},
    delivery::{AnySender, Channel, Queue},
    event::EventLog,
    http::{body::Body, issuer::Issuer},
    limit::{Limiter, Quota},
    login::Keyed,
    password::Passwords,
    policy::{Explanation, Policies},
    session::Sessions,
    store::{AnyStore, StoreError},
    tenant::{ClientIp, Tenant},
    user::{AnyUsers, Identifier},
    util::{
        clock::{Clock, SystemClock},
        error::ConfigError,
        secret::Secret,
    },
};

/// The endpoints of a login, from `/authorize` to the authorization code.
///
/// It has no type parameters, answers any request whose body comes in [`Bytes`], and never fails, so it mounts unchanged
/// in axum (`nest_service`, `route_service`), hyper and tonic, on a tokio runtime with time enabled: without one no
/// password is checked and no code is sent. Clones are one, until something is set on one of them. The
/// [module docs](super) show it whole.
#[derive(Clone)]
#[must_use]
pub struct AuthService(pub(super) Arc<Inner>);

impl AuthService {
    /// Serves logins of these users for these clients.
    ///
    /// `issuer` is the URL under which the service is reached, such as `https://auth.example.com` or
    /// `https://example.com/auth`; every URL that it hands out is made of it. A request may come with its path or
    /// without, as a router has stripped it. Plain http is for loopback addresses alone.
    pub fn new(
        issuer: &str,
        store: impl Into<AnyStore>,
        clients: impl Into<AnyClients>,
        users: impl Into<AnyUsers>,
    ) -> Result<Self, ConfigError> {
        Ok(Self::of(Config {
            issuer: Issuer::parse(issuer)?,
            realm: HeaderValue::from_static(r#"Session realm="login""#),
            store: store.into(),
            clients: clients.into(),
            users: users.into(),
            policies: Policies::default(),
            without_passwords: false,
            passwords: Passwords::new(),
            queue: Queue::builder().build(),
            sessions: None,
            limiter: None,
            share: None,
            messages: None,
            client_ip: ClientIp::peer(),
            log: None,
            clock: Arc::new(SystemClock::new()),
            key: None,
            login_url: None,
            cookies: LoginCookies { loopback: false },
            #[cfg(feature = "tokens")]
            tokens: None,
        }))
    }

    #[cfg(test)]
    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    fn of(config: Config) -> Self {
        Self(Arc::new(Inner::new(config)))
    }

    pub(super) fn set(self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Arc::unwrap_or_clone(self.0).config;
        change(&mut config);
        Self::of(config)
    }

    /// Demands these steps; one step by any method, otherwise.
    pub fn policies(self, policies: Policies) -> Self {
        self.set(|config| config.policies = policies)
    }

    /// Sends one-time codes as text messages, and so enables the method `sms`.
    pub fn sms(self, sender: impl Into<AnySender>) -> Self {
        self.lane(Channel::Sms, sender.into())
    }

    /// Sends one-time codes by e-mail, and so enables the method `email`.
    pub fn email(self, sender: impl Into<AnySender>) -> Self {
        self.lane(Channel::Email, sender.into())
    }

    /// Sends one-time codes by WhatsApp, and so enables the method `whatsapp`.
    pub fn whatsapp(self, sender: impl Into<AnySender>) -> Self {
        self.lane(Channel::Whatsapp, sender.into())
    }

    fn lane(self, channel: Channel, sender: AnySender) -> Self {
        self.set(|config| config.queue = config.queue.clone().with_lane(channel, sender))
    }

    /// Sends one-time codes through this queue, in place of those that were set before.
    pub fn delivery(self, queue: Queue) -> Self {
        self.set(|config| config.queue = queue)
    }

    /// Checks passwords at this cost.
    pub fn passwords(self, passwords: Passwords) -> Self {
        self.set(|config| config.passwords = passwords)
    }

    /// Takes no passwords.
    pub fn without_passwords(self) -> Self {
        self.set(|config| config.without_passwords = true)
    }

    /// Begins the signed-in session of a login among these, which the app gives to its
    /// [`SessionLayer`](crate::SessionLayer) too. Otherwise they are in the store of the logins, with the defaults of
    /// [`Sessions`].
    pub fn sessions(self, sessions: Sessions) -> Self {
        self.set(|config| config.sessions = Some(sessions))
    }

    /// Charges every request to the budget of its tenant in this limiter, which the other APIs share. Otherwise a tenant
    /// has 600 requests in any minute for this service alone.
    pub fn limiter(self, limiter: Limiter) -> Self {
        self.set(|config| config.limiter = Some(limiter))
    }

    /// Lets one address spend no more than this here, of the budgets of all tenants together, so that a stranger who knows
    /// a public client id can't burn a tenant's. Otherwise one address may spend it all. It is counted in this process.
    pub fn per_address(self, quota: Quota) -> Self {
        self.set(|config| config.share = Some(quota))
    }

    /// Lets one address ask for so many one-time codes, whoever they are for: 120 in a minute, if nothing else is said.
    /// What a sender charges for wants less. Each login, each pair of name and address and each receiver have limits
    /// beside it. It is counted in this process.
    pub fn messages_per_address(self, quota: Quota) -> Self {
        self.set(|config| config.messages = Some(quota))
    }

    /// Tells clients' addresses apart by this; by [`PeerAddr`](crate::PeerAddr), otherwise. Where requests come without
    /// one, no limit of addresses holds, as of 60 failures a minute, and a warning says so once (feature `tracing`).
    pub fn client_ip(self, client_ip: ClientIp) -> Self {
        self.set(|config| config.client_ip = client_ip)
    }

    /// Records logins and what goes wrong in them in this log.
    pub fn events(self, log: EventLog) -> Self {
        self.set(|config| config.log = Some(log))
    }

    /// Takes the time from this clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        self.set(|config| config.clock = Arc::new(clock))
    }

    /// Hashes codes and identifiers under this key, which all nodes must share. Otherwise one is made and kept in the
    /// store, where whoever reads the store reads it too. Another key voids the codes that are out, what was counted, and
    /// passwords that were proved in logins under way.
    pub fn key(self, key: &Secret) -> Self {
        self.set(|config| config.key = Some(Keyed::new(key)))
    }

    /// Sends browsers to a login page of your own, with the query of the request, instead of to the one at
    /// `/authentication/start`. It is a path of this site, or begins with `https://`.
    pub fn login_url(self, url: &str) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::new("login url", url, reason);
        let local = url.starts_with('/') && !matches!(url.as_bytes().get(1), Some(b'/' | b'\\'));
        if !local && !url.starts_with("https://") {
            return Err(error("must be a path of this site, or begin with https://"));
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['#', '\\', '?']) {
            return Err(error("must be visible ASCII without a query or a fragment"));
        }
        Ok(self.set(|config| config.login_url = Some(url.to_owned())))
    }

    /// Sends cookies over plain HTTP, without `__Host-` and `Secure`: for development, where the issuer is a loopback
    /// address.
    pub fn insecure_loopback(self) -> Result<Self, ConfigError> {
        if !self.0.config.issuer.is_loopback() {
            let issuer = self.0.config.issuer.as_str();
            return Err(ConfigError::new("insecure_loopback", issuer, "is for issuers on a loopback address"));
        }
        Ok(self.set(|config| config.cookies = LoginCookies { loopback: true }))
    }

    /// Whether every login that the policies and the listed clients lead to, with each of the `acr_values` that are known,
    /// can be met by the methods that are enabled; and whether [`insecure_loopback`](Self::insecure_loopback) was called
    /// here and on the sessions, or on neither. To be asked when all is set. A login that can't be met is refused with
    /// `access_denied`.
    pub fn check(self) -> Result<Self, ConfigError> {
        let config = &self.0.config;
        let (policies, enabled) = (&config.policies, self.0.enabled());
        policies.check(enabled)?;
        for client in config.clients.listed() {
            policies
                .check_demands(client.tenant(), client.demands(), enabled)
                .map_err(|why| ConfigError::new("client", client.id(), why))?;
            #[cfg(feature = "tokens")]
            if let Some(tokens) = &config.tokens {
                tokens.check(&client)?;
            }
        }
        let secure = config.sessions.as_ref().is_none_or(|sessions| sessions.is_loopback() == config.cookies.loopback);
        if !secure {
            let reason = "must be called here and on the sessions, or on neither";
            return Err(ConfigError::new("insecure_loopback", config.issuer.as_str(), reason));
        }
        Ok(self)
    }

    /// Ends what failures before have locked for a person: an operator's act, and that of a page where a password is
    /// reset. Tries by this name, and by the addresses of its account, count from nothing again, and the account, if it had
    /// a hundred failures in a row, can be logged into. An account that has further names needs a call for each.
    pub async fn unlock(&self, tenant: &Tenant, identifier: &Identifier) -> Result<(), StoreError> {
        let account = self.0.config.users.find(tenant, identifier).await?;
        let keyed = self.0.keyed().await?;
        self.0.running().guard.unlock(tenant, identifier, account.as_ref(), keyed).await
    }

    /// What a login of this client would ask for, and why, in words for the operator.
    pub fn explain(&self, client: &Client, acr_values: Option<&str>) -> Explanation {
        self.0.config.policies.explain(client.tenant(), client.demands(), acr_values, self.0.enabled())
    }

    /// The description of all endpoints, as `GET /openapi.json` serves it.
    pub fn openapi() -> &'static str {
        page::OPENAPI
    }
}

impl<B> Service<Request<B>> for AuthService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = AuthFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> AuthFuture {
        let inner = Arc::clone(&self.0);
        AuthFuture(Box::pin(async move {
            let (parts, body) = request.into_parts();
            let mut visit = Visit::new(&inner, &parts);
            let outcome = serve(&mut visit, body).await;
            visit.finish(outcome)
        }))
    }
}

/// From the path to the endpoint.
async fn serve<B>(visit: &mut Visit<'_>, body: B) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let path = Path::of(visit.parts.uri.path(), visit.inner.config.issuer.path()).filter(|path| visit.serves(path));
    let method = &visit.parts.method;
    let route = path.and_then(|path| path.route(method));
    let Some(route) = route else {
        visit.charge(None)?;
        return match path {
            None => Err(Problem::new(Code::NotFound, "nothing is here")),
            Some(path) if *method == Method::OPTIONS => visit.options(path).await,
            Some(path) => Err(Problem::new(Code::MethodNotAllowedHere, "this method is not served here")
                .header(http::header::ALLOW, HeaderValue::from_static(path.allow()))),
        };
    };
    if let Some(path) = path {
        visit.let_any_read(path).await;
    }
    match route {
        Route::Authorize => authorize::authorize(visit).await,
        Route::AuthorizeForm => authorize::by_form(visit, body).await,
        Route::StartPage => page::start(visit).await,
        Route::Script | Route::Style | Route::OpenApi => {
            visit.charge_asset()?;
            Ok(page::asset(route))
        }
        #[cfg(feature = "tokens")]
        Route::Token(route) => token::serve(visit, route, body).await,
        Route::Status => status::status(visit).await,
        Route::Par => pushed::push(visit, body).await,
        Route::Start | Route::Authenticate | Route::VerifyOtp | Route::Complete => {
            let fields = match Fields::of(&visit.parts.headers, body).await {
                Ok(fields) => fields,
                Err(problem) => {
                    visit.charge(None)?;
                    return Err(problem);
                }
            };
            match route {
                Route::Start => start::start(visit, fields).await,
                Route::Complete => complete::complete(visit, fields).await,
                _ => step::step(visit, route, fields).await,
            }
        }
    }
}

/// The answer of an [`AuthService`], on its way.
pub struct AuthFuture(Pin<Box<dyn Future<Output = Response<Body>> + Send>>);

impl Future for AuthFuture {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

impl fmt::Debug for AuthFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthFuture").finish_non_exhaustive()
    }
}

impl fmt::Debug for AuthService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
