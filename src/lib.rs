//! Tower middleware for services with many tenants: rate limits that hold in every window, cookie sessions, PKCE, a
//! login of several steps, and an OpenID Connect provider. It runs in any hyper, axum or tonic app.
//!
//! # Where to start
//!
//! | you want | start at | feature |
//! |---|---|---|
//! | to limit requests per tenant | [`RateLimitLayer`], [`Limiter`], [`Quota`], and the page of [`limit`] | |
//! | to identify the tenant of a request | [`ApiKeys`], [`ClientIp`], and the page of [`tenant`] | |
//! | to see which requests were refused | [`EventLog`], [`EventService`], and the page of [`event`] | |
//! | cookie sessions with a sign-in of your own | [`Sessions`], [`SessionLayer`] | `session` |
//! | to check PKCE in front of your own server | [`PkceLayer`] | `session` |
//! | to sign users in | [`AuthService`], and the page of [`auth`] | `login` |
//! | to sign users in at Google, GitHub or another provider | [`sso`] | `login`, `external-providers` |
//! | to issue tokens to apps | [`Tokens`] | `login` |
//! | to check tokens at an API | [`BearerLayer`], [`Verifier`] | `bearer` |
//! | to keep state | [`store`]: in memory, in one file, on Redis, or in a store of your own | `session` |
//! | to verify passkeys without the rest | [`webauthn`] | `bearer` |
//! | to test without sleeping | [`testing`] | `test-util` |
//!
//! # A limit
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{ApiKeys, Limiter, Quota, Plans, RateLimitLayer};
//!
//! # fn app() -> Result<Router, Box<dyn std::error::Error>> {
//! let keys = ApiKeys::new("x-api-key")?.key("a-key-of-acme", "acme")?;
//! let limit = RateLimitLayer::new(keys, Limiter::memory(Plans::new(Quota::per_minute(600)?)));
//! let app = Router::new().route("/hello", get(async || "hello")).layer(limit);
//! # Ok(app)
//! # }
//! ```
//!
//! The README has a login and an OpenID Connect provider. `cargo run --example server` starts all of
//! it with demo data.

#![cfg_attr(docsrs, feature(doc_cfg))]

// Each module uses only modules listed above it; tests/architecture.rs checks this. The first ones don't know which features the
// modules below them have, so what those need is always compiled. With `login`, all of it is used.
#[cfg_attr(
    not(feature = "login"),
    allow(dead_code, unused_imports, unused_macros, reason = "modules below use the rest")
)]
mod util;
#[cfg_attr(not(feature = "login"), allow(dead_code, unused_imports, reason = "modules below use the rest"))]
mod http;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "bearer")]
mod jose;
#[cfg(feature = "bearer")]
pub mod webauthn;
pub mod tenant;
pub mod event;
#[cfg_attr(not(feature = "login"), allow(dead_code, unused_imports, reason = "modules below use the rest"))]
pub mod reject;
pub mod gate;
#[cfg_attr(not(feature = "login"), allow(dead_code, unused_imports, reason = "modules below use the rest"))]
pub mod limit;
#[cfg(feature = "session")]
#[cfg_attr(not(feature = "login"), allow(dead_code, unused_imports, reason = "modules below use the rest"))]
pub mod store;
#[cfg(feature = "session")]
#[cfg_attr(not(feature = "login"), allow(dead_code, unused_imports, reason = "modules below use the rest"))]
pub mod session;
#[cfg(feature = "session")]
pub mod pkce;
#[cfg(feature = "bearer")]
mod support;
#[cfg(feature = "bearer")]
mod dpop;
#[cfg(feature = "external-providers")]
mod discovery;
#[cfg(feature = "bearer")]
pub mod bearer;
#[cfg(feature = "login")]
mod words;
#[cfg(feature = "login")]
pub mod policy;
#[cfg(feature = "login")]
pub mod password;
#[cfg(feature = "login")]
pub mod user;
#[cfg(feature = "login")]
pub mod client;
#[cfg(feature = "login")]
pub mod delivery;
#[cfg(feature = "login")]
pub mod sso;
#[cfg(feature = "login")]
mod login;
#[cfg(feature = "login")]
pub mod tokens;
#[cfg(feature = "login")]
pub mod auth;
mod rings;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

#[cfg(feature = "bearer")]
pub use crate::bearer::{AccessToken, BearerLayer, Verifier};
pub use crate::http::drain::DrainLayer;
#[cfg(feature = "session")]
pub use crate::pkce::PkceLayer;
#[cfg(feature = "session")]
pub use crate::session::{Session, SessionLayer, Sessions, UserId};
#[cfg(feature = "login")]
pub use crate::tokens::Tokens;
#[cfg(feature = "login")]
pub use crate::{
    auth::{AuthService, Passkeys, Totp},
    client::{Client, ClientTable},
    delivery::OtpSender,
    password::{Password, Passwords},
    policy::Policies,
    user::{Identifier, NewUser, StoredUsers, Users},
    words::Language,
};
pub use crate::{
    event::{EventLog, EventService},
    http::{cookie, head::Head},
    limit::{Limiter, Plan, Plans, Quota, RateLimit, RateLimitLayer},
    reject::ProblemJson,
    tenant::{ApiKeys, ClientIp, LimitKey, PeerAddr, Tenant, TenantSource},
    util::{
        clock,
        error::ConfigError,
        secret::{Secret, SecretDigest},
    },
};

/// The bodies of this crate's services and middleware.
pub mod body {
    pub use crate::http::body::*;
    pub use crate::http::drain::{Drain, DrainFuture, Drained};
}

/// Compiles the examples of the README, which is written for web pages and is not part of this documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
