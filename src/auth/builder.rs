//! Assembles an [`AuthService`].

use std::{sync::Arc, time::Duration};

use crate::{
    auth::{abuse_limits::AbuseLimits, factors::settings::FactorSettings, pages::custom::Pages, service::AuthService},
    client::{AnyClients, ClientTable},
    delivery::{AnySender, Channel, Queue},
    event::EventLog,
    limit::AnyLimiter,
    login::{Keyed, LoginLimits},
    password::{PasswordRules, Passwords},
    policy::Policies,
    store::AnyStore,
    tenant::{ClientIp, Tenant, TenantSource},
    tokens::Tokens,
    user::{
        AnyUsers,
        sign_up::{SignUp, SignUpRules},
    },
    util::{
        builder::setters,
        clock::{Clock, SystemClock},
        secret::Secret,
    },
};

/// Assembles an [`AuthService`] from one issuer, one store, one clock and one event log.
///
/// [`users`](Self::users) and [`client_ip`](Self::client_ip) are required. [`build`](Self::build) reports invalid
/// settings.
#[must_use]
pub struct AuthServiceBuilder {
    pub(super) issuer: String,
    pub(super) store: AnyStore,
    pub(super) clients: AnyClients,
    pub(super) users: Option<AnyUsers>,
    pub(super) policies: Policies,
    pub(super) factors: FactorSettings,
    pub(super) passwords: Passwords,
    pub(super) password_rules: PasswordRules,
    pub(super) queue: Queue,
    pub(super) session_idle: Option<Duration>,
    pub(super) session_lifetime: Option<Duration>,
    pub(super) session_cookie: Option<String>,
    pub(super) remember: Option<Duration>,
    pub(super) login_limits: LoginLimits,
    pub(super) limiter: Option<AnyLimiter>,
    pub(super) abuse_limits: AbuseLimits,
    pub(super) client_ip: Option<ClientIp>,
    pub(super) log: Option<EventLog>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) key: Option<Keyed>,
    pub(super) pages: Pages,
    pub(super) first_party: Option<Arc<dyn TenantSource>>,
    pub(super) tenant_origins: Vec<(Tenant, String)>,
    pub(super) insecure_loopback: bool,
    pub(super) sign_up: SignUpRules,
    pub(super) without_password_reset: bool,
    pub(super) tokens: Option<Tokens>,
    pub(super) introspectors: Vec<crate::util::secret::SecretDigest>,
    pub(super) nonces: Option<crate::dpop::Nonces>,
}

impl AuthService {
    /// Starts to assemble a login service.
    ///
    /// `issuer` is the URL under which it is reached, such as `https://auth.example.com` or `https://example.com/auth`;
    /// every URL that the service returns starts with it. Requests may come with the issuer's path, or without it if a
    /// router has stripped it. Plain `http` is accepted for loopback addresses only, where you also need
    /// [`insecure_loopback`](AuthServiceBuilder::insecure_loopback). All state lives in `store`.
    pub fn builder(issuer: &str, store: impl Into<AnyStore>) -> AuthServiceBuilder {
        AuthServiceBuilder {
            issuer: issuer.to_owned(),
            store: store.into(),
            clients: AnyClients::from(ClientTable::default()),
            users: None,
            policies: Policies::default(),
            factors: FactorSettings::default(),
            passwords: Passwords::new(),
            password_rules: PasswordRules::new(),
            queue: Queue::new(),
            session_idle: None,
            session_lifetime: None,
            session_cookie: None,
            remember: None,
            login_limits: LoginLimits::default(),
            limiter: None,
            abuse_limits: AbuseLimits::new(),
            client_ip: None,
            log: None,
            clock: Arc::new(SystemClock::new()),
            key: None,
            pages: Pages::new(),
            first_party: None,
            tenant_origins: Vec::new(),
            insecure_loopback: false,
            sign_up: SignUpRules::default(),
            without_password_reset: false,
            tokens: None,
            introspectors: Vec::new(),
            nonces: None,
        }
    }
}

impl AuthServiceBuilder {
    setters! {
        /// Sets the accounts: [`StoredUsers`](crate::StoredUsers), or your own behind [`Users`](crate::Users). Required.
        pub fn users(users: impl Into<AnyUsers>) { users: Some(users.into()) }

        /// Sets the applications that may send users here. Defaults to none.
        pub fn clients(clients: impl Into<AnyClients>) { clients: clients.into() }

        /// Sets how the client's address is found: [`ClientIp::peer`], [`ClientIp::behind`] or, to do without limits on
        /// single addresses, `ClientIp::unknown`. Required.
        pub fn client_ip(client_ip: ClientIp) { client_ip: Some(client_ip) }

        /// Sets which steps a login needs. Defaults to one step by any method, plus the second factor if the user has
        /// enrolled one.
        pub fn policies(policies: Policies) { policies: policies }
    }

    /// Sends one-time codes as text messages, which enables the method `sms`.
    pub fn sms(self, sender: impl Into<AnySender>) -> Self {
        self.channel(Channel::Sms, sender.into())
    }

    /// Sends one-time codes by e-mail, which enables the method `email`.
    pub fn email(self, sender: impl Into<AnySender>) -> Self {
        self.channel(Channel::Email, sender.into())
    }

    /// Sends one-time codes by WhatsApp, which enables the method `whatsapp`.
    pub fn whatsapp(self, sender: impl Into<AnySender>) -> Self {
        self.channel(Channel::Whatsapp, sender.into())
    }

    fn channel(mut self, channel: Channel, sender: AnySender) -> Self {
        self.queue = self.queue.with_channel(channel, sender);
        self
    }

    /// Removes the senders that were set before, and sends this many messages of a channel concurrently.
    #[cfg(any(test, feature = "test-util"))]
    #[doc(hidden)]
    pub fn queue_for_tests(mut self, workers: usize) -> Self {
        self.queue = Queue::new().with_workers(workers);
        self
    }

    setters! {
        /// Sets who can create an account: serves `/sign-up`, and offers it on the login page. Defaults to
        /// [`SignUp::Closed`](super::SignUp::Closed).
        ///
        /// Requires [`users`](Self::users) that [offer](crate::Users::offers) to create accounts, and an e-mail sender.
        pub fn sign_up(sign_up: SignUp) { sign_up.kind: sign_up }
    }

    /// Limits sign-up without an invitation to e-mail addresses of these domains. Defaults to all domains.
    pub fn sign_up_domains<D: AsRef<str>>(mut self, domains: impl IntoIterator<Item = D>) -> Self {
        self.sign_up.domains = domains.into_iter().map(|domain| domain.as_ref().to_ascii_lowercase()).collect();
        self
    }

    setters! {
        /// Turns off `/reset-password`. By default, users can reset a forgotten password if the accounts
        /// [offer](crate::Users::offers) it and a code or a passkey can prove who they are.
        pub fn without_password_reset() { without_password_reset: true }

        /// Sets the cost and the concurrency of password checks.
        pub fn passwords(passwords: Passwords) { passwords: passwords }

        /// Sets the rules for passwords that users choose at sign-up, on the account page, and after a reset. Defaults to those
        /// of [`PasswordRules`] without a service of breached passwords.
        pub fn password_rules(rules: PasswordRules) { password_rules: rules }

        /// Disables the method `password`.
        pub fn without_passwords() { factors.without_passwords: true }

        /// Ends signed-in sessions that are not used for this long. Defaults to one hour.
        pub fn session_idle(idle: Duration) { session_idle: Some(idle) }

        /// Ends signed-in sessions this long after the login. Defaults to 24 hours.
        pub fn session_lifetime(lifetime: Duration) { session_lifetime: Some(lifetime) }

        /// Names the session cookie, without its prefix. Defaults to `session`.
        pub fn session_cookie(name: &str) { session_cookie: Some(name.to_owned()) }

        /// Lets users stay signed in for this long ("remember me"): the login page offers it, and `start` accepts `remember`.
        /// Off by default. At most 30 days; after a login of several steps, 24 hours at most.
        pub fn remember_me(lifetime: Duration) { remember: Some(lifetime) }

        /// Sets the lifetimes of logins and one-time codes, and how failed attempts are slowed down.
        pub fn login_limits(limits: LoginLimits) { login_limits: limits }

        /// Charges requests to their tenant's budget in this limiter, which other APIs can share. Defaults to 600 requests a
        /// minute for this service alone.
        ///
        /// Requests with a valid access token, introspection secret, session or refresh token may spend what a quota
        /// [reserves](crate::Quota::reserve). Others may not. A session or a refresh token is looked up only when
        /// nothing but the reserve is left. The service does not wait for the lookup of a plan: it uses the default
        /// until the plan is found.
        ///
        /// If several processes share the limiter, they also share the per-address limits, under separate keys: requests,
        /// failures, messages, unverified work, and the styles and scripts of pages. While Redis does not answer, each
        /// process counts these on its own, regardless of the fallback of the limiter.
        pub fn limiter(limiter: impl Into<AnyLimiter>) { limiter: Some(limiter.into()) }

        /// Limits the work that anonymous callers can cause. Set at least
        /// [`requests_per_address`](AbuseLimits::requests_per_address), for example to a tenth of a tenant's budget.
        pub fn abuse_limits(limits: AbuseLimits) { abuse_limits: limits }

        /// Records logins, sessions and tokens in this event log.
        pub fn events(log: EventLog) { log: Some(log) }

        /// Takes the time from this clock.
        pub fn clock(clock: impl Clock) { clock: Arc::new(clock) }

        /// Hashes one-time codes, identifiers and addresses under this key, which all nodes must share. Defaults to a key
        /// that is kept in the store.
        ///
        /// A different key invalidates open codes, throttle counts, device cookies, and passwords that were proved in open logins
        /// and sessions.
        pub fn key(key: &Secret) { key: Some(Keyed::new(key)) }

        /// Sets the logo, the colors and the words of the pages and messages, or replaces pages with your own.
        pub fn pages(pages: Pages) { pages: pages }

        /// Lets users sign in to this site itself, without a client application: serves `/sign-in` and `/sign-out`.
        ///
        /// `source` finds the tenant of a request, such as [`HostTenant`](crate::tenant::HostTenant). A [`Tenant`](crate::Tenant)
        /// is also a source: pass it if the site has only one. [`AuthService::session_layer`] protects the routes of the site.
        pub fn first_party(source: impl TenantSource) { first_party: Some(Arc::new(source)) }

        /// Sends cookies over plain HTTP, without `__Host-` and `Secure`. For development only; the issuer must be a loopback
        /// address.
        ///
        /// Without it, curl and some browsers do not return the cookies over plain HTTP, and each call after the start of a login
        /// gets the error `invalid_session`.
        pub fn insecure_loopback() { insecure_loopback: true }

        /// Issues tokens: serves `/token`, `/jwks`, `/userinfo`, `/revoke`, `/introspect`, `/logout` and both metadata
        /// documents under `/.well-known/`.
        pub fn tokens(tokens: Tokens) { tokens: Some(tokens) }
    }

    /// Sets the origin at which the users of a tenant sign in, such as `https://acme.example.com`, if the site has a host for
    /// each tenant. Links in messages to these users start with it, followed by the issuer's path. Defaults to the
    /// origin of the issuer. The `Host` header of a request is never used.
    pub fn tenant_origin(mut self, tenant: &Tenant, origin: &str) -> Self {
        self.tenant_origins.push((tenant.clone(), origin.to_owned()));
        self
    }

    /// Lets an API that sends this secret as a bearer token introspect any token at `/introspect`. Machine clients
    /// can introspect the tokens of their own tenant.
    pub fn introspector(mut self, secret: &Secret) -> Self {
        self.introspectors.push(secret.digest());
        self
    }

    /// Requires a nonce in DPoP proofs, so that they cannot be prepared in advance. Nonces are made with this secret,
    /// which all nodes must share. The first request of each client has to be sent twice.
    pub fn dpop_nonces(mut self, secret: &Secret) -> Self {
        self.nonces = Some(crate::dpop::Nonces::new(secret));
        self
    }
}

crate::util::fmt::debug_fields!(AuthServiceBuilder { issuer });
