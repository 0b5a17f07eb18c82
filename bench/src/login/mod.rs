//! A login service with many users, and browsers that use it.

mod browser;
mod counting_store;
mod local;
mod serve;

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use tollgate::{
    AuthService, Client, ClientIp, ClientTable, Identifier, Limiter, Password, Passwords, Plans, Quota, StoredUsers,
    Tenant, Tokens, UserId,
    auth::{AbuseLimits, AuthServiceBuilder},
    bearer::Algorithm,
    clock::{Clock, SystemClock},
    delivery::{OtpSender, Outbox},
    store::AnyStore,
    user::{Contact, EmailAddress, NewUser, PhoneNumber},
};

pub use self::{
    browser::{Ask, Browser, CALLBACK},
    counting_store::{CountingStore, counted},
    local::{Answer, Local, runtime, served},
    serve::serve,
};

const ISSUER: &str = "https://auth.example";
pub const PASSWORD: &str = "correct horse battery staple";

/// Returns the identifier of a user. All identifiers have the same length.
pub fn identifier(user: u64) -> String {
    format!("u{user:08}@example.com")
}

pub fn username(user: u64) -> String {
    format!("u{user:08}")
}

pub fn phone(user: u64) -> String {
    format!("+1555{user:07}")
}

/// Returns an identifier without an account.
pub fn stranger(number: u64) -> String {
    format!("x{number:08}@example.com")
}

/// Returns an address that belongs to no account.
pub fn foreign(number: u64) -> String {
    format!("+1666{number:07}")
}

/// Returns the IP address of a browser.
pub fn address(number: u64) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 | (number as u32 & 0x00FF_FFFF)))
}

/// The settings of a service.
pub struct Setup {
    pub store: AnyStore,
    pub users: u64,
    pub passwords: Passwords,
}

impl Setup {
    /// Creates a service with one client, one step, default settings and an unlimited tenant. Writes the users to the
    /// store first.
    pub async fn service(self, sender: impl OtpSender) -> AuthService {
        self.service_on(Arc::new(SystemClock::new()), sender).await
    }

    /// Creates a service that signs tokens with this algorithm.
    pub async fn with_tokens(self, algorithm: Algorithm) -> AuthService {
        let outbox = Outbox::with_capacity(1).expect("a valid capacity");
        let service =
            self.builder(Arc::new(SystemClock::new()), outbox).await.tokens(Tokens::new().algorithm(algorithm));
        service.build().expect("the settings are valid")
    }

    pub async fn service_on(self, clock: impl Clock + Clone, sender: impl OtpSender) -> AuthService {
        self.builder(clock, sender).await.build().expect("the settings are valid")
    }

    async fn builder(self, clock: impl Clock + Clone, sender: impl OtpSender) -> AuthServiceBuilder {
        let Self { store, users, passwords } = self;
        let accounts = StoredUsers::with_clock(store.clone(), clock.clone());
        let tenant: Tenant = "acme".parse().expect("it is a name of a tenant");
        let hash = passwords.hash(Password::new(PASSWORD.to_owned())).await.expect("the password can be hashed");
        for user in 0..users {
            let id = UserId::parse(format!("{user:08}")).expect("it is an id");
            let name = Identifier::parse(identifier(user)).expect("a valid name");
            let number = PhoneNumber::parse(phone(user)).expect("a valid number");
            let mailbox = EmailAddress::parse(identifier(user)).expect("a valid address");
            let new = NewUser::new(id, name)
                .identifier(Identifier::parse(username(user)).expect("a valid name"))
                .password(hash.clone())
                .contact(Contact::Email(mailbox))
                .contact(Contact::Phone(number));
            accounts.create(&tenant, new).await.expect("the account can be stored");
        }
        let client = Client::new("web", tenant).and_then(|client| client.redirect_uri(CALLBACK));
        let client = client.and_then(|client| client.scopes("openid profile email")).expect("a valid client");
        let clients = ClientTable::new([client]).expect("valid clients");
        let budget = Quota::per_minute(100_000_000).expect("a valid quota");
        let limiter =
            Limiter::builder(Plans::new(budget)).clock(clock.clone()).build().expect("the settings are valid");
        AuthService::builder(ISSUER, store)
            .clients(clients)
            .users(accounts)
            .client_ip(ClientIp::peer())
            .sms(sender)
            .passwords(passwords)
            .limiter(limiter)
            // all browsers of a benchmark have one address
            .abuse_limits(
                AbuseLimits::new()
                    .messages_per_address(Quota::per_minute(100_000_000).expect("a valid quota"))
                    .unverified_per_address(Quota::per_minute(100_000_000).expect("a valid quota")),
            )
            .clock(clock)
    }
}
