//! Assembles an [`AuthService`].

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use http::HeaderValue;
use tokio::sync::OnceCell;

#[cfg(feature = "tokens")]
use crate::{
    auth::state::token_endpoints::{TokenEndpoints, TokenSettings},
    tokens::Tokens,
};
use crate::{
    auth::{
        core::{self, Core, HashKey, Limits},
        http::cookies::LoginCookies,
        service::AuthService,
        state::{
            accounts::Accounts, challenges::Challenges, codes::Codes, guard::Guard, journal::LoginJournal,
            logins::Logins, pushed::PushedRequests,
        },
    },
    client::{AnyClients, ClientTable},
    delivery::{AnySender, Channel, Queue},
    event::{EventKind, EventLog},
    http::{head::Head, issuer::Issuer},
    limit::{Limiter, Quota, Quotas, RateLimitGate},
    login::{Keyed, LoginLimits},
    password::Passwords,
    policy::{MethodSet, Policies},
    session::Sessions,
    store::AnyStore,
    tenant::{ClientIp, Tenant, TenantError},
    user::AnyUsers,
    util::{
        clock::{Clock, SystemClock},
        error::ConfigError,
        secret::Secret,
    },
};

/// Failed attempts of one address in a minute. Many people can share an address.
const FAILURES_PER_ADDRESS: u32 = 60;
/// Messages that one address may ask for in a minute: as many as logins fit into the default budget.
const MESSAGES_PER_ADDRESS: u32 = 120;
/// Logins that may begin with one identifier in a minute. Bounds storage, not people.
const STARTS_PER_IDENTIFIER: u32 = 600;
/// Requests of one tenant in a minute, as the interface promises.
const REQUESTS_PER_TENANT: u32 = 600;
/// Identifiers and addresses are invented by anyone. Beyond this many they share buckets.
const MOST_STRANGERS: usize = 100_000;
/// Bounds of "remember me".
const LONGEST_REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);
const SHORTEST_REMEMBERED: Duration = Duration::from_secs(3600);

/// Assembles an [`AuthService`] from one issuer, one store, one clock and one event log.
///
/// [`users`](Self::users) and [`client_ip`](Self::client_ip) are required. A setting that is wrong is reported by
/// [`build`](Self::build).
#[must_use]
pub struct AuthServiceBuilder {
    issuer: String,
    store: AnyStore,
    clients: AnyClients,
    users: Option<AnyUsers>,
    policies: Policies,
    without_passwords: bool,
    passwords: Passwords,
    queue: Queue,
    session_idle: Option<Duration>,
    session_lifetime: Option<Duration>,
    session_cookie: Option<String>,
    remember: Option<Duration>,
    login_limits: LoginLimits,
    limiter: Option<Limiter>,
    per_address: Option<Quota>,
    messages_per_address: Option<Quota>,
    client_ip: Option<ClientIp>,
    log: Option<EventLog>,
    clock: Arc<dyn Clock>,
    key: Option<Keyed>,
    login_url: Option<String>,
    insecure_loopback: bool,
    #[cfg(feature = "tokens")]
    tokens: Option<Tokens>,
    #[cfg(feature = "tokens")]
    introspectors: Vec<crate::util::secret::Digest>,
    #[cfg(feature = "tokens")]
    nonces: Option<crate::dpop::Nonces>,
}

impl AuthService {
    /// Starts to assemble a login service.
    ///
    /// `issuer` is the URL under which it is reached, such as `https://auth.example.com` or `https://example.com/auth`;
    /// every URL that it hands out starts with it. Requests may come with the issuer's path, or without it if a router has
    /// stripped it. Plain `http` is accepted for loopback addresses only. All state lives in `store`.
    pub fn builder(issuer: &str, store: impl Into<AnyStore>) -> AuthServiceBuilder {
        AuthServiceBuilder::new(issuer, store.into())
    }
}

impl AuthServiceBuilder {
    pub(crate) fn new(issuer: &str, store: AnyStore) -> Self {
        Self {
            issuer: issuer.to_owned(),
            store,
            clients: AnyClients::from(ClientTable::default()),
            users: None,
            policies: Policies::default(),
            without_passwords: false,
            passwords: Passwords::new(),
            queue: Queue::builder().build(),
            session_idle: None,
            session_lifetime: None,
            session_cookie: None,
            remember: None,
            login_limits: LoginLimits::default(),
            limiter: None,
            per_address: None,
            messages_per_address: None,
            client_ip: None,
            log: None,
            clock: Arc::new(SystemClock::new()),
            key: None,
            login_url: None,
            insecure_loopback: false,
            #[cfg(feature = "tokens")]
            tokens: None,
            #[cfg(feature = "tokens")]
            introspectors: Vec::new(),
            #[cfg(feature = "tokens")]
            nonces: None,
        }
    }

    /// Sets the accounts: [`StoredUsers`](crate::StoredUsers), or your own behind [`Users`](crate::Users). Required.
    pub fn users(mut self, users: impl Into<AnyUsers>) -> Self {
        self.users = Some(users.into());
        self
    }

    /// Sets the applications that may send users here. Defaults to none.
    pub fn clients(mut self, clients: impl Into<AnyClients>) -> Self {
        self.clients = clients.into();
        self
    }

    /// Sets how the client's address is found. Required, because without it nothing limits a single address:
    /// [`ClientIp::peer`], [`ClientIp::behind`] or, to do without, `ClientIp::unknown`.
    pub fn client_ip(mut self, client_ip: ClientIp) -> Self {
        self.client_ip = Some(client_ip);
        self
    }

    /// Sets which steps a login needs. Defaults to one step by any method.
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = policies;
        self
    }

    /// Sends one-time codes as text messages, which enables the method `sms`.
    pub fn sms(self, sender: impl Into<AnySender>) -> Self {
        self.lane(Channel::Sms, sender.into())
    }

    /// Sends one-time codes by e-mail, which enables the method `email`.
    pub fn email(self, sender: impl Into<AnySender>) -> Self {
        self.lane(Channel::Email, sender.into())
    }

    /// Sends one-time codes by WhatsApp, which enables the method `whatsapp`.
    pub fn whatsapp(self, sender: impl Into<AnySender>) -> Self {
        self.lane(Channel::Whatsapp, sender.into())
    }

    fn lane(mut self, channel: Channel, sender: AnySender) -> Self {
        self.queue = self.queue.with_lane(channel, sender);
        self
    }

    /// Sends one-time codes through this queue. Replaces senders that were set before.
    pub fn delivery(mut self, queue: Queue) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the cost and the concurrency of password checks.
    pub fn passwords(mut self, passwords: Passwords) -> Self {
        self.passwords = passwords;
        self
    }

    /// Disables the method `password`.
    pub fn without_passwords(mut self) -> Self {
        self.without_passwords = true;
        self
    }

    /// Ends signed-in sessions that are not used for this long. Defaults to one hour.
    pub fn session_idle(mut self, idle: Duration) -> Self {
        self.session_idle = Some(idle);
        self
    }

    /// Ends signed-in sessions this long after the login. Defaults to 24 hours.
    pub fn session_lifetime(mut self, lifetime: Duration) -> Self {
        self.session_lifetime = Some(lifetime);
        self
    }

    /// Names the session cookie, without its prefix. Defaults to `session`.
    pub fn session_cookie(mut self, name: &str) -> Self {
        self.session_cookie = Some(name.to_owned());
        self
    }

    /// Lets users stay signed in for this long ("remember me"): the login page offers it, and `start` accepts `remember`.
    /// Off by default. At most 30 days; after a login of several steps, 24 hours at most.
    pub fn remember_me(mut self, lifetime: Duration) -> Self {
        self.remember = Some(lifetime);
        self
    }

    /// Sets the lifetimes of logins and one-time codes, and how failed attempts are slowed down.
    pub fn login_limits(mut self, limits: LoginLimits) -> Self {
        self.login_limits = limits;
        self
    }

    /// Charges requests to their tenant's budget in this limiter, which other APIs can share. Defaults to 600 requests a
    /// minute for this service alone.
    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// Caps what one address may spend of the tenants' budgets, so that a stranger who knows a public client id cannot
    /// use up a tenant's budget. No cap by default. Counted in this process.
    pub fn per_address(mut self, quota: Quota) -> Self {
        self.per_address = Some(quota);
        self
    }

    /// Caps how many one-time codes one address can ask for. Defaults to 120 a minute; set less where messages cost
    /// money. Counted in this process.
    pub fn messages_per_address(mut self, quota: Quota) -> Self {
        self.messages_per_address = Some(quota);
        self
    }

    /// Records logins, sessions and tokens in this event log.
    pub fn events(mut self, log: EventLog) -> Self {
        self.log = Some(log);
        self
    }

    /// Takes the time from this clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Hashes one-time codes, identifiers and addresses under this key, which all nodes must share. Defaults to a key
    /// that is kept in the store.
    ///
    /// A different key invalidates open codes, throttle counts, and passwords that were proved in open logins and
    /// sessions.
    pub fn key(mut self, key: &Secret) -> Self {
        self.key = Some(Keyed::new(key));
        self
    }

    /// Sends browsers to your own login page instead of the built-in one. The page gets the query of the request. Takes a
    /// path of this site or an `https` URL.
    pub fn login_url(mut self, url: &str) -> Self {
        self.login_url = Some(url.to_owned());
        self
    }

    /// Sends cookies over plain HTTP, without `__Host-` and `Secure`. For development only; the issuer must be a loopback
    /// address.
    pub fn insecure_loopback(mut self) -> Self {
        self.insecure_loopback = true;
        self
    }

    /// Issues tokens: serves `/token`, `/jwks`, `/userinfo`, `/revoke`, `/introspect`, `/logout` and both documents below
    /// `/.well-known/`.
    #[cfg(feature = "tokens")]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Lets an API that shows this secret as a bearer token ask about any token at `/introspect`. Clients can always ask
    /// about their own.
    #[cfg(feature = "tokens")]
    pub fn introspector(mut self, secret: &Secret) -> Self {
        self.introspectors.push(secret.digest());
        self
    }

    /// Requires a nonce in DPoP proofs, made under this secret, which all nodes must share. Proofs cannot be prepared
    /// in advance then. Costs each client a second request at first.
    #[cfg(feature = "tokens")]
    pub fn dpop_nonces(mut self, secret: &Secret) -> Self {
        self.nonces = Some(crate::dpop::Nonces::new(secret));
        self
    }

    /// Assembles the service.
    ///
    /// # Errors
    ///
    /// Returns an error if a required setting is missing, if a setting is wrong, or if the policies or a listed client
    /// demand a login that the enabled methods cannot provide.
    pub fn build(self) -> Result<AuthService, ConfigError> {
        let issuer = Issuer::parse(&self.issuer)?;
        #[cfg(feature = "tokens")]
        crate::bearer::check_name("issuer", issuer.as_str())?;
        let missing = |setting, reason| ConfigError::new(setting, "", reason);
        let users = self.users.clone().ok_or(missing("users", "must be set"))?;
        let client_ip = self.client_ip.clone().ok_or(missing(
            "client_ip",
            "must be set: a rule that finds the client's address, or ClientIp::unknown()",
        ))?;
        if self.insecure_loopback && !issuer.is_loopback() {
            let reason = "is only for issuers on a loopback address";
            return Err(ConfigError::new("insecure_loopback", issuer.as_str(), reason));
        }
        if let Some(url) = &self.login_url {
            check_login_url(url)?;
        }
        self.login_limits.validate()?;
        if self.remember.is_some_and(|lifetime| lifetime > LONGEST_REMEMBERED || lifetime < SHORTEST_REMEMBERED) {
            let lifetime = format!("{:?}", self.remember.unwrap_or_default());
            return Err(ConfigError::new("remember_me", lifetime, "must be one hour to 30 days"));
        }
        self.check_policies()?;

        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        let journal = LoginJournal { log: self.log.clone(), clock: Arc::clone(&clock) };
        let undelivered = journal.clone();
        let queue = self.queue.clone().with_clock(Arc::clone(&clock)).also_on_undelivered(move |message, _| {
            undelivered.tally(EventKind::OtpUndelivered, Some(message.tenant()), Some(message.channel().as_str()));
        });
        let sessions = self.sessions()?;
        let limits = self.limits()?;
        #[cfg(feature = "tokens")]
        let tokens =
            token_endpoints(&self.clients, &issuer, &store, &clock, (self.tokens, self.introspectors, self.nonces))?;
        Ok(AuthService(Arc::new(Core {
            realm: HeaderValue::from_static(r#"Session realm="login""#),
            logins: Logins::new(store.clone(), Arc::clone(&clock)),
            codes: Codes::new(store.clone(), Arc::clone(&clock)),
            accounts: Accounts::new(users.clone(), sessions.generations().clone()),
            challenges: Challenges::new(store.clone(), Arc::clone(&clock)),
            pushed: PushedRequests::new(store.clone(), Arc::clone(&clock)),
            guard: Guard::new(store.clone(), Arc::clone(&clock), self.login_limits.clone()),
            login_limits: self.login_limits,
            remember: self.remember,
            key: HashKey { given: self.key, loaded: OnceCell::new() },
            cookies: LoginCookies { loopback: self.insecure_loopback },
            clients: self.clients,
            policies: self.policies,
            passwords: self.passwords,
            without_passwords: self.without_passwords,
            login_url: self.login_url,
            issuer,
            store,
            clock,
            users,
            queue,
            sessions,
            client_ip,
            journal,
            limits,
            #[cfg(feature = "tokens")]
            tokens,
        })))
    }

    /// Checks that every login that the policies and the listed clients lead to, with each known `acr_values`, can be
    /// finished with the enabled methods.
    fn check_policies(&self) -> Result<(), ConfigError> {
        let enabled: MethodSet = core::enabled(&self.queue, self.without_passwords);
        self.policies.check(enabled)?;
        for client in self.clients.listed() {
            self.policies
                .check_demands(client.tenant(), client.demands(), enabled)
                .map_err(|why| ConfigError::new("client", client.id(), why))?;
        }
        Ok(())
    }

    fn sessions(&self) -> Result<Sessions, ConfigError> {
        let mut sessions = Sessions::builder(self.store.clone()).clock(Arc::clone(&self.clock));
        if let Some(lifetime) = self.session_lifetime {
            sessions = sessions.absolute(lifetime);
        }
        if let Some(idle) = self.session_idle {
            sessions = sessions.idle(idle);
        }
        if let Some(name) = &self.session_cookie {
            sessions = sessions.cookie_name(name);
        }
        if self.insecure_loopback {
            sessions = sessions.insecure_loopback();
        }
        if let Some(log) = &self.log {
            sessions = sessions.events(log.clone());
        }
        sessions.build()
    }

    fn limits(&self) -> Result<Limits, ConfigError> {
        let with_log = |limiter: Limiter| match &self.log {
            Some(log) => limiter.events(log.clone()),
            None => Ok(limiter),
        };
        let limiter = |quota| Limiter::memory(Quotas::new(quota)).clock(Arc::clone(&self.clock));
        let strangers = |quota| limiter(quota)?.max_tenants(MOST_STRANGERS);
        let tenants = match &self.limiter {
            Some(limiter) => limiter.clone(),
            None => with_log(limiter(Quota::per_minute(REQUESTS_PER_TENANT)?)?)?,
        };
        let per_address = match &self.per_address {
            Some(quota) => Some(RateLimitGate::new(no_tenant, with_log(limiter(quota.clone())?)?)),
            None => None,
        };
        Ok(Limits {
            tenants: RateLimitGate::new(no_tenant, tenants),
            per_address,
            failures: strangers(Quota::per_minute(FAILURES_PER_ADDRESS)?)?,
            messages: match &self.messages_per_address {
                Some(quota) => limiter(quota.clone())?,
                None => strangers(Quota::per_minute(MESSAGES_PER_ADDRESS)?)?,
            },
            starts: strangers(Quota::per_minute(STARTS_PER_IDENTIFIER)?)?,
            no_address: Once::new(),
        })
    }
}

#[cfg(feature = "tokens")]
fn token_endpoints(
    clients: &AnyClients,
    issuer: &Issuer,
    store: &AnyStore,
    clock: &Arc<dyn Clock>,
    (tokens, introspectors, nonces): (Option<Tokens>, Vec<crate::util::secret::Digest>, Option<crate::dpop::Nonces>),
) -> Result<Option<TokenEndpoints>, ConfigError> {
    let Some(tokens) = tokens else {
        if !introspectors.is_empty() || nonces.is_some() {
            return Err(ConfigError::new("tokens", "", "must be set for introspectors and DPoP nonces"));
        }
        return Ok(None);
    };
    let settings = TokenSettings { tokens, introspectors, nonces };
    let endpoints = settings.build(issuer, store.clone(), Arc::clone(clock))?;
    for client in clients.listed() {
        endpoints.check(&client)?;
    }
    Ok(Some(endpoints))
}

/// The login service determines the tenant itself, from the client and the login.
fn no_tenant(_: Head<'_>) -> Result<Option<Tenant>, TenantError> {
    Ok(None)
}

fn check_login_url(url: &str) -> Result<(), ConfigError> {
    let error = |reason| ConfigError::new("login url", url, reason);
    let local = url.starts_with('/') && !matches!(url.as_bytes().get(1), Some(b'/' | b'\\'));
    if !local && !url.starts_with("https://") {
        return Err(error("must be a path of this site or start with https://"));
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['#', '\\', '?']) {
        return Err(error("must be visible ASCII without a query or a fragment"));
    }
    Ok(())
}

impl std::fmt::Debug for AuthServiceBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthServiceBuilder").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}
