#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Each module uses only modules that stand above it; tests/architecture.rs checks it.
mod error;
mod clock;
mod trace;
mod encoding;
#[cfg(feature = "login")]
mod text;
mod scan;
#[cfg(feature = "tokens")]
mod outlasting;
mod secret;
mod handle;
mod form;
mod json;
mod number;
mod head;
mod accept;
mod origin;
#[cfg(any(feature = "login", feature = "bearer"))]
#[cfg_attr(
    not(any(feature = "login", feature = "jwks")),
    allow(dead_code, reason = "not every feature needs each part of an address")
)]
mod issuer;
#[cfg(feature = "bearer")]
mod jose;
#[cfg(feature = "login")]
mod document;
pub mod cookie;
pub mod body;
mod replay;
#[cfg(any(feature = "smtp", feature = "webhook", feature = "jwks"))]
mod roots;
#[cfg(any(feature = "webhook", feature = "jwks"))]
#[cfg_attr(
    not(all(feature = "webhook", feature = "jwks")),
    allow(dead_code, reason = "one feature reads the head of an answer, the other all of it")
)]
mod outgoing;
pub mod tenant;
pub mod event;
pub mod reject;
pub mod gate;
pub mod limit;
pub mod store;
pub mod session;
pub mod pkce;
#[cfg(feature = "bearer")]
mod dpop;
#[cfg(feature = "bearer")]
pub mod bearer;
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
mod login;
#[cfg(feature = "tokens")]
pub mod tokens;
#[cfg(feature = "login")]
pub mod auth;
#[cfg(feature = "axum")]
mod extract;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

#[cfg(feature = "bearer")]
pub use crate::bearer::{AccessToken, BearerLayer, Verifier};
#[cfg(all(feature = "axum", feature = "bearer"))]
pub use crate::extract::AccessTokenRejection;
#[cfg(feature = "axum")]
pub use crate::extract::{MissingLayer, SessionRejection};
#[cfg(feature = "bearer")]
pub use crate::jose::{Algorithm, AlgorithmError};
#[cfg(feature = "tokens")]
pub use crate::tokens::Tokens;
#[cfg(feature = "login")]
pub use crate::{
    auth::AuthService,
    client::{Client, ClientTable, Clients},
    delivery::OtpSender,
    password::{Password, PasswordHash, Passwords},
    policy::{Method, Policies, Policy},
    user::{Account, Identifier, NewUser, StoredUsers, Users},
};
pub use crate::{
    clock::{Clock, Moment, SystemClock, UnixTime},
    error::ConfigError,
    event::{EventLog, EventService},
    gate::{Gate, GateLayer, MaybeReady, Pass},
    handle::{Handle, HandleError},
    head::Head,
    limit::{HeaderStyle, Limiter, Plan, Quota, Quotas, RateLimit, RateLimitLayer},
    pkce::{CodeChallenge, CodeVerifier, PkceBodyLayer, PkceError, PkceLayer},
    reject::{Kind, OAuthJson, ProblemJson, Rejection, Respond, StatusOnly},
    replay::Replay,
    secret::{Digest, Secret},
    session::{NewSession, Session, SessionLayer, Sessions, UserId},
    tenant::{ApiKeys, ClientIp, PeerAddr, Tenant, TenantError, TenantSource},
};
