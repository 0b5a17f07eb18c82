//! What a login service is made of: what was set, and what runs on it.

use std::{
    fmt,
    sync::{Arc, Once, OnceLock},
};

use http::HeaderValue;
use tokio::sync::OnceCell;

use super::{
    challenges::Challenges, cookies::LoginCookies, evidence::Evidences, grant::Codes, guard::Guard, journal::Journal,
    key, logins::Logins, pushed::PushedRequests,
};
use crate::{
    client::AnyClients,
    delivery::{Channel, Queue},
    event::{EventKind, EventLog},
    http::{head::Head, issuer::Issuer},
    limit::{Limiter, LimiterBuilder, Quota, Quotas, RateLimitGate},
    login::Keyed,
    password::Passwords,
    policy::{Method, MethodSet, Policies},
    session::Sessions,
    store::{AnyStore, StoreError},
    tenant::{ClientIp, Tenant, TenantError},
    user::AnyUsers,
    util::clock::Clock,
};

/// What was set.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) issuer: Issuer,
    pub(super) realm: HeaderValue,
    pub(super) store: AnyStore,
    pub(super) clients: AnyClients,
    pub(super) users: AnyUsers,
    pub(super) policies: Policies,
    pub(super) without_passwords: bool,
    pub(super) passwords: Passwords,
    pub(super) queue: Queue,
    pub(super) sessions: Option<Sessions>,
    pub(super) limiter: Option<Limiter>,
    pub(super) share: Option<Quota>,
    pub(super) messages: Option<Quota>,
    pub(super) client_ip: ClientIp,
    pub(super) log: Option<EventLog>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) key: Option<Keyed>,
    pub(super) login_url: Option<String>,
    pub(super) cookies: LoginCookies,
    #[cfg(feature = "tokens")]
    pub(super) tokens: Option<super::token::TokenConfig>,
}

/// A login service: what was set and, from the first request on, what runs on it.
pub(super) struct Inner {
    pub(super) config: Config,
    running: OnceLock<Running>,
}

/// What runs: made once, when nothing is set any more.
pub(super) struct Running {
    pub(super) logins: Logins,
    pub(super) codes: Codes,
    pub(super) evidences: Evidences,
    pub(super) challenges: Challenges,
    pub(super) pushed: PushedRequests,
    pub(super) guard: Guard,
    pub(super) sessions: Sessions,
    /// The budget of the tenants.
    pub(super) gate: RateLimitGate,
    /// What of it one address may spend.
    pub(super) share: Option<RateLimitGate>,
    /// How often an address may be wrong.
    pub(super) failures: Limiter,
    /// How many messages it may ask for.
    pub(super) messages: Limiter,
    /// How often one may begin as the same identifier.
    pub(super) starts: Limiter,
    pub(super) queue: Queue,
    /// Proofs of keys that came with requests for tokens.
    #[cfg(feature = "tokens")]
    pub(super) proofs: crate::dpop::Proofs,
    journal: Journal,
    keyed: OnceCell<Keyed>,
    no_address: Once,
}

/// How often an address may be wrong in a minute: many people can share one.
const FAILURES_OF_AN_ADDRESS: u32 = 60;
/// How many codes one address can ask for in a minute: as many as there can be logins of it within the usual budget.
const MESSAGES_OF_AN_ADDRESS: u32 = 120;
/// How many logins can begin in a minute for one name: bounds what is stored, not people.
const STARTS_OF_AN_IDENTIFIER: u32 = 600;
/// The promise of the interface, where nothing else was set.
const REQUESTS_OF_A_TENANT: u32 = 600;

impl Inner {
    pub(super) fn new(config: Config) -> Self {
        Self { config, running: OnceLock::new() }
    }

    pub(super) fn running(&self) -> &Running {
        self.running.get_or_init(|| Running::of(&self.config))
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.running().journal
    }

    /// The key under the keyed hashes.
    pub(super) async fn keyed(&self) -> Result<&Keyed, StoreError> {
        let load = async || match &self.config.key {
            Some(keyed) => Ok(keyed.clone()),
            None => key::of_store(self.config.store.clone(), Arc::clone(&self.config.clock)).await,
        };
        self.running().keyed.get_or_try_init(load).await
    }

    /// The methods that can be used here.
    pub(super) fn enabled(&self) -> MethodSet {
        let by_code =
            [(Method::Sms, Channel::Sms), (Method::Email, Channel::Email), (Method::Whatsapp, Channel::Whatsapp)];
        let by_code =
            by_code.into_iter().filter(|(_, channel)| self.config.queue.has(*channel)).map(|(method, _)| method);
        by_code.chain((!self.config.without_passwords).then_some(Method::Password)).collect()
    }
}

impl Running {
    /// Says it once, for it is so for every request or for none.
    pub(super) fn warn_of_no_address(&self) {
        self.no_address.call_once(|| {
            crate::util::trace::warning!("requests come without the address of their client, so no address has limits");
        });
    }

    fn of(config: &Config) -> Self {
        let (store, clock) = (config.store.clone(), Arc::clone(&config.clock));
        let limiter = config.limiter.clone().unwrap_or_else(|| logged(per_minute(REQUESTS_OF_A_TENANT), config));
        let journal = Journal { log: config.log.clone(), clock: Arc::clone(&clock) };
        let lost = journal.clone();
        let queue = config.queue.clone().clock(Arc::clone(&clock)).also_on_undelivered(move |message, _| {
            lost.tally(EventKind::OtpUndelivered, Some(message.tenant()), Some(message.channel().as_str()));
        });
        let sessions = config.sessions.clone().unwrap_or_else(|| {
            let sessions = Sessions::new(store.clone()).clock(Arc::clone(&clock));
            let sessions = if config.cookies.loopback { sessions.insecure_loopback() } else { sessions };
            match &config.log {
                Some(log) => sessions.events(log.clone()),
                None => sessions,
            }
        });
        #[cfg(feature = "tokens")]
        let proofs = super::token::proofs(config);
        Self {
            logins: Logins::new(store.clone(), Arc::clone(&clock)),
            codes: Codes::new(store.clone(), Arc::clone(&clock)),
            evidences: Evidences::new(store.clone(), Arc::clone(&clock), sessions.absolute_lifetime()),
            challenges: Challenges::new(store.clone(), Arc::clone(&clock)),
            pushed: PushedRequests::new(store.clone(), Arc::clone(&clock)),
            guard: Guard::new(store, clock),
            sessions,
            gate: RateLimitGate::new(nobody, limiter),
            share: config.share.map(|quota| RateLimitGate::new(nobody, logged(quota, config))),
            messages: config
                .messages
                .map_or_else(|| strangers(MESSAGES_OF_AN_ADDRESS, config), |quota| built(builder(quota, config))),
            failures: strangers(FAILURES_OF_AN_ADDRESS, config),
            starts: strangers(STARTS_OF_AN_IDENTIFIER, config),
            queue,
            #[cfg(feature = "tokens")]
            proofs,
            journal,
            keyed: OnceCell::new(),
            no_address: Once::new(),
        }
    }
}

/// The tenant is told by client and login, never by the gate's own look at a request.
fn nobody(_: Head<'_>) -> Result<Option<Tenant>, TenantError> {
    Ok(None)
}

#[expect(clippy::expect_used, reason = "the limits are the constants above")]
fn per_minute(limit: u32) -> Quota {
    Quota::per_minute(limit).expect("the limit is not zero")
}

/// Creates a limiter for keys that anybody can invent. Beyond its maximum they share buckets.
fn strangers(limit: u32, config: &Config) -> Limiter {
    built(builder(per_minute(limit), config).max_tenants(100_000))
}

/// Creates a limiter that records refusals in the event log.
fn logged(quota: Quota, config: &Config) -> Limiter {
    let builder = builder(quota, config);
    built(match &config.log {
        Some(log) => builder.events(log.clone()),
        None => builder,
    })
}

fn builder(quota: Quota, config: &Config) -> LimiterBuilder {
    Limiter::builder(Quotas::new(quota)).clock(Arc::clone(&config.clock))
}

#[expect(clippy::expect_used, reason = "the maximum is a constant above")]
fn built(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("the maximum is not zero")
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthService")
            .field("issuer", &self.config.issuer.as_str())
            .field("clients", &self.config.clients)
            .field("users", &self.config.users)
            .field("store", &self.config.store)
            .finish_non_exhaustive()
    }
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self::new(self.config.clone())
    }
}
