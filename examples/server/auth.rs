//! Assembles the login service.

use std::error::Error;

use tollgate::{
    AuthService, ClientIp, ConfigError, EventLog, Passkeys, Secret, StoredUsers, Tenant, Totp,
    auth::{AuthServiceBuilder, Pages, SignUp},
    limit::AnyLimiter,
    store::{AnyStore, Memory},
};

use crate::{
    accounts::Accounts, demo, explain::explained, facts::Facts, login_settings::LoginSettings, outbox::Outbox, people,
    tokens, users::AccountTable,
};

/// The parts that the login service shares with the rest of the server.
pub(crate) struct Shared<'s> {
    pub(crate) issuer: &'s str,
    pub(crate) store: &'s AnyStore,
    pub(crate) users: &'s AccountTable,
    /// Ends all sessions, logins and tokens at the start.
    pub(crate) ends_sessions: bool,
    pub(crate) limiter: &'s AnyLimiter,
    pub(crate) log: &'s EventLog,
}

pub(crate) async fn service(
    shared: &Shared<'_>,
    facts: Facts,
    mut login: LoginSettings,
    outbox: &Outbox,
) -> Result<AuthService, Box<dyn Error>> {
    let Shared { issuer, store, users, ends_sessions, limiter, log } = *shared;
    let persons = facts.people;
    let auth = AuthService::builder(issuer, store.clone())
        .clients(facts.clients)
        .users(users.clone())
        .policies(facts.policies)
        .pages(facts.home_url.into_iter().fold(facts.pages, Pages::home_url))
        // shares its budget with the API
        .limiter(limiter.clone())
        .client_ip(facts.client_ip)
        .events(log.clone());
    let mut auth = facts.tokens.set_on(auth);
    if facts.prints_codes {
        // not in production
        login.senders.print_others(outbox);
    }
    #[cfg(feature = "external-providers")]
    for provider in std::mem::take(&mut login.providers) {
        let (name, connection) = provider.connection(users);
        auth = auth.sso(&name, connection);
    }
    auth = login.set_on(auth, facts.per_address)?;
    #[cfg(feature = "external-providers")]
    if let Some(provider) = &facts.provider {
        let (name, connection) = crate::sso_demo::connection(provider, users)?;
        auth = auth.sso(name, connection);
    }
    if facts.is_demo {
        auth = with_account_page(auth, issuer)?;
    }
    if is_plain(issuer) {
        auth = auth.insecure_loopback();
    }
    let auth = auth.build()?;
    tokens::prepare(&auth).await?;
    if facts.is_demo {
        for person in &persons {
            person.add_to(users).await.map_err(|error| format!("{}: {}", person.place(), explained(&*error)))?;
        }
    } else {
        for change in people::apply(&Accounts { users, auth: &auth }, store, &persons).await? {
            eprintln!("{change}");
        }
    }
    if ends_sessions {
        auth.end_everything().await.map_err(|error| format!("--end-sessions: {}", explained(&error)))?;
        eprintln!("All sessions, logins and tokens have ended.");
    }
    Ok(auth)
}

/// An issuer with which other settings are checked.
pub(crate) const LOCALHOST: &str = "http://localhost";

/// Checks an issuer and settings of the login service by themselves.
pub(crate) fn check(
    issuer: &str,
    set: impl FnOnce(AuthServiceBuilder) -> Result<AuthServiceBuilder, ConfigError>,
) -> Result<(), ConfigError> {
    let store = AnyStore::from(Memory::new());
    let auth = AuthService::builder(issuer, store.clone()).users(StoredUsers::new(store)).client_ip(ClientIp::peer());
    set(if is_plain(issuer) { auth.insecure_loopback() } else { auth })?.build().map(drop)
}

/// Lets the users of the demo sign in to this site, and manage passkeys, authenticator apps and sessions at
/// `/account/security`.
fn with_account_page(auth: AuthServiceBuilder, issuer: &str) -> Result<AuthServiceBuilder, Box<dyn Error>> {
    // public like all keys of the demo; yours is random and kept out of the source
    let seal = Secret::parse(demo::SEAL).ok_or("the seal of the demo is not a secret")?;
    let auth = auth
        .first_party(Tenant::parse(demo::ACME)?)
        .sign_up(SignUp::Open)
        .totp(Totp::new().name("tollgate demo").seal(&seal));
    // passkeys belong to a host name
    let has_name = issuer.starts_with("http://localhost:");
    Ok(if has_name { auth.passkeys(Passkeys::new("localhost")) } else { auth })
}

/// Returns whether the issuer has no TLS, so that its cookies can't be `Secure`.
pub(crate) fn is_plain(issuer: &str) -> bool {
    issuer.starts_with("http://")
}

/// Returns the scheme and host of the issuer, without its path.
pub(crate) fn site(issuer: &str) -> &str {
    issuer.match_indices('/').nth(2).map_or(issuer, |(end, _)| issuer.split_at(end).0)
}
