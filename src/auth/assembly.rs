//! From the settings of a builder to the service.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use http::HeaderValue;

use crate::{
    auth::{
        builder::AuthServiceBuilder,
        core::{self, Core, Limits},
        factors::credentials::table::CredentialTable,
        first_party::site::FirstParty,
        http::{cookies::LoginCookies, route::SIGN_IN},
        pages::built::BuiltPages,
        service::AuthService,
        state::{
            accounts::{Accounts, SessionClaims},
            codes::Codes,
            consents::Consents,
            devices::Devices,
            guard::Guard,
            journal::LoginJournal,
            key::HashKey,
            logins::Logins,
            pushed::PushedRequests,
            redeemed_challenges::RedeemedChallenges,
            tickets::Tickets,
            token_endpoints::TokenEndpoints,
            unverified::UnverifiedWork,
        },
    },
    event::EventKind,
    http::head::Head,
    limit::{AnyLimiter, Limiter, Plans, Quota, RateLimitGate},
    policy::{LoginPlan, Method},
    session::{SessionLayer, Sessions},
    support::issuer::Issuer,
    tenant::{Tenant, TenantError},
    user::OfferedChange,
    util::error::ConfigError,
};

/// Failed attempts of one address in a minute. Many people can share an address.
const FAILURES_PER_ADDRESS: u32 = 60;
/// Messages that one address may ask for in a minute: as many as logins fit into the default budget.
const MESSAGES_PER_ADDRESS: u32 = 120;
/// Codes to new contacts that one address may ask for in an hour.
const NEW_CONTACT_CODES_PER_ADDRESS: u32 = 30;
/// Bad requests of one address in a minute that cause work before a tenant is charged.
const UNVERIFIED_PER_ADDRESS: u32 = 600;
/// Requests of one tenant in a minute, as the interface promises.
const REQUESTS_PER_TENANT: u32 = 600;
/// Anyone can have many addresses. Beyond this many they share buckets.
const MOST_ADDRESSES: usize = 100_000;
/// Bounds of "remember me".
const LONGEST_REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);
const SHORTEST_REMEMBERED: Duration = Duration::from_secs(3600);

impl AuthServiceBuilder {
    /// Assembles the service.
    ///
    /// # Errors
    ///
    /// Returns an error if a required setting is missing, if a setting is invalid, or if the policies or a listed
    /// client require a login that the enabled methods cannot provide.
    pub fn build(mut self) -> Result<AuthService, ConfigError> {
        let issuer = Issuer::parse(&self.issuer)?;
        crate::bearer::check_name("issuer", issuer.as_str())?;
        let missing = |setting, reason| ConfigError::new(setting, "", reason);
        let users = self.users.clone().ok_or(missing("users", "must be set, for example to StoredUsers"))?;
        let client_ip = self.client_ip.clone().ok_or(missing(
            "client_ip",
            "must be set, for example to ClientIp::peer(), or to ClientIp::behind(…) behind a proxy",
        ))?;
        if self.insecure_loopback && !issuer.is_loopback() {
            let reason = "is only for issuers on a loopback address";
            return Err(ConfigError::new("insecure_loopback", issuer.as_str(), reason));
        }
        if !self.insecure_loopback && issuer.as_str().starts_with("http:") {
            crate::util::trace::warning!(
                "the issuer {} is plain HTTP: curl and some browsers return its cookies only with `insecure_loopback()`",
                issuer.as_str()
            );
        }
        let tenant_urls = tenant_urls(&issuer, &self.tenant_origins)?;
        let pages = BuiltPages::new(std::mem::take(&mut self.pages))?;
        self.login_limits.validate()?;
        if let Some(lifetime) = self.remember {
            let range = SHORTEST_REMEMBERED..=LONGEST_REMEMBERED;
            ConfigError::check_range("remember_me", lifetime, range, "must be one hour to 30 days")?;
        }
        self.factors.sso.check()?;
        self.check_policies()?;
        let (seal, is_persistent) =
            (self.tokens.as_ref().map(|tokens| tokens.seal.clone()), self.store.is_persistent());
        let seal = (&seal.unwrap_or_default(), is_persistent);
        let factors = std::mem::take(&mut self.factors).build((&issuer, &self.queue), seal)?;

        let can_mail = self.queue.has(crate::delivery::Channel::Email);
        self.sign_up.check((users.offers(OfferedChange::Create), can_mail))?;
        let offers_reset = !self.without_password_reset
            && factors.methods.contains(Method::Password)
            && users.offers(OfferedChange::SetPassword)
            && LoginPlan::of_reset(factors.methods).is_some();
        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        let journal = LoginJournal { log: self.log.clone(), clock: Arc::clone(&clock) };
        let undelivered = journal.clone();
        let queue = self.queue.clone().with_clock(Arc::clone(&clock)).on_undelivered(move |message, _| {
            let kind = match message.notice() {
                None => EventKind::OtpUndelivered,
                Some(_) => EventKind::NoticeUndelivered,
            };
            undelivered.tally(kind, Some(message.tenant()), Some(message.channel().as_str()));
        });
        let sessions = self.sessions()?;
        let credentials = CredentialTable::new(&store, &clock);
        let first_party = self.first_party.clone().map(|source| FirstParty::new(source, &issuer));
        let mut session_layer = SessionLayer::new(sessions.clone())
            .claims(Arc::new(SessionClaims(users.clone())))
            .trusted_origin(issuer.origin())?;
        if let Some(site) = &first_party {
            session_layer = session_layer
                .tenant(Arc::clone(&site.source))
                .login_url(&format!("{}{SIGN_IN}", issuer.path()))?
                .return_parameter("return_to")?;
        }
        let (limits, bodies) = (self.limits()?, Arc::new(self.abuse_limits.body_limits()?));
        let longest_session = self.remember.unwrap_or_default().max(sessions.absolute_lifetime());
        let tokens = match self.tokens.map(|tokens| tokens.longest_session(longest_session)) {
            Some(tokens) => {
                let (store, clock) = (store.clone(), Arc::clone(&clock));
                Some(TokenEndpoints::new(tokens, self.introspectors, self.nonces, &issuer, store, clock)?)
            }
            None if !self.introspectors.is_empty() || self.nonces.is_some() => {
                let reason =
                    "must be set with AuthServiceBuilder::tokens, because introspectors or DPoP nonces need it";
                return Err(missing("tokens", reason));
            }
            None => None,
        };
        if let Some(endpoints) = &tokens {
            self.clients.listed().iter().try_for_each(|client| endpoints.check(client))?;
        }

        Ok(AuthService(Arc::new(Core {
            realm: HeaderValue::from_static(r#"Session realm="login""#),
            logins: Logins::new(store.clone(), Arc::clone(&clock)),
            codes: Codes::new(store.clone(), Arc::clone(&clock)),
            consents: Consents::new(store.clone(), Arc::clone(&clock)),
            accounts: Accounts::new(users.clone(), sessions.generations().clone()),
            credentials,
            factors,
            redeemed_challenges: RedeemedChallenges::new(store.clone(), Arc::clone(&clock)),
            pushed: PushedRequests::new(store.clone(), Arc::clone(&clock)),
            tickets: Tickets::new(store.clone(), Arc::clone(&clock)),
            guard: Guard::new(store.clone(), Arc::clone(&clock), self.login_limits.clone()),
            devices: Devices { loopback: self.insecure_loopback, lifetime: self.login_limits.device_lifetime },
            login_limits: self.login_limits,
            remember: self.remember,
            key: HashKey::new(self.key),
            cookies: LoginCookies { loopback: self.insecure_loopback },
            clients: self.clients,
            policies: self.policies,
            passwords: self.passwords,
            password_rules: self.password_rules,
            pages,
            tenant_urls,
            issuer,
            store,
            clock,
            users,
            queue,
            sessions,
            session_layer,
            route_steps: AtomicUsize::new(1),
            first_party,
            sign_up: self.sign_up,
            offers_reset,
            client_ip,
            journal,
            limits,
            bodies,
            tokens,
        })))
    }

    /// Checks that every login that the policies and the listed clients lead to, with each known `acr_values`, can be
    /// finished with the enabled methods.
    fn check_policies(&self) -> Result<(), ConfigError> {
        let enabled = self.factors.methods(&self.queue);
        // a provider for some tenants is enough here, because a policy may be theirs
        let with_any = if self.factors.sso.is_empty() { enabled } else { enabled.with(Method::Sso) };
        self.policies.check(with_any)?;
        for client in self.clients.listed().iter().filter(|client| !client.is_machine()) {
            let enabled = match self.factors.sso.iter_for_tenant(client.tenant()).next() {
                Some(_) => enabled.with(Method::Sso),
                None => enabled,
            };
            self.policies
                .check_demands(Some(client.tenant()), client.demands(), enabled)
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
            if name.starts_with("auth_session") {
                return Err(ConfigError::new("session cookie name", name, "the cookies of logins have this name"));
            }
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
        let builder = |quota| Limiter::builder(Plans::new(quota)).clock(Arc::clone(&self.clock));
        let logged = |quota| match &self.log {
            Some(log) => builder(quota).events(log.clone()),
            None => builder(quota),
        };
        let by_address = |quota| builder(quota).max_tenants(MOST_ADDRESSES).build();
        let tenants: AnyLimiter = match &self.limiter {
            Some(limiter) => limiter.clone(),
            None => logged(Quota::per_minute(REQUESTS_PER_TENANT)?).build()?.into(),
        };
        // counted where the tenants are, under keys of their own
        let per_address = match &self.abuse_limits.requests_per_address {
            Some(quota) => {
                Some(RateLimitGate::new(no_tenant, tenants.beside("address-requests", logged(*quota).build()?)))
            }
            None => None,
        };
        let failures = by_address(Quota::per_minute(FAILURES_PER_ADDRESS)?)?;
        let messages = match &self.abuse_limits.messages_per_address {
            Some(quota) => builder(*quota).build()?,
            None => by_address(Quota::per_minute(MESSAGES_PER_ADDRESS)?)?,
        };
        let new_contact_codes = self.abuse_limits.new_contact_codes_per_address;
        let new_contact_codes = new_contact_codes.map_or_else(|| Quota::per_hour(NEW_CONTACT_CODES_PER_ADDRESS), Ok)?;
        let unverified =
            self.abuse_limits.unverified_per_address.map_or_else(|| Quota::per_minute(UNVERIFIED_PER_ADDRESS), Ok)?;
        let unverified = logged(unverified).max_tenants(MOST_ADDRESSES).build()?;
        let unverified = tenants.beside("address-unverified", unverified);
        let page_parts = logged(Quota::per_minute(REQUESTS_PER_TENANT)?).max_tenants(MOST_ADDRESSES).build()?;
        Ok(Limits {
            page_parts: RateLimitGate::new(no_tenant, tenants.beside("address-pages", page_parts)),
            unverified: UnverifiedWork::new(unverified, self.abuse_limits.unverified_at_once),
            failures: tenants.beside("address-failures", failures),
            messages: tenants.beside("address-messages", messages),
            new_contact_codes: tenants.beside("address-new-contact-codes", by_address(new_contact_codes)?),
            per_address,
            provider_outages: tenants.beside("address-outages", by_address(Quota::per_minute(FAILURES_PER_ADDRESS)?)?),
            tenants: RateLimitGate::new(no_tenant, tenants),
            addresses: core::Addresses::default(),
        })
    }
}

/// Returns the URL of each tenant with an origin of its own.
fn tenant_urls(issuer: &Issuer, origins: &[(Tenant, String)]) -> Result<BTreeMap<Tenant, String>, ConfigError> {
    let url = |(tenant, origin): &(Tenant, String)| {
        let parsed = Issuer::parse_setting("tenant origin", origin)?;
        match parsed.path() {
            "" => Ok((tenant.clone(), format!("{origin}{}", issuer.path()))),
            _ => Err(ConfigError::new("tenant origin", origin, "must have no path")),
        }
    };
    origins.iter().map(url).collect()
}

/// The login service determines the tenant itself, from the client and the login.
fn no_tenant(_: Head<'_>) -> Result<Option<Tenant>, TenantError> {
    Ok(None)
}
