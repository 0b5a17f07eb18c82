#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "session", feature = "pkce")),
    allow(dead_code, unused_imports, reason = "helpers of features that are off")
)]

// Each module uses only modules listed above it; tests/architecture.rs checks this.
mod util;
mod http;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "bearer")]
mod jose;
#[cfg(feature = "bearer")]
pub mod webauthn;
pub mod tenant;
pub mod event;
pub mod reject;
pub mod gate;
pub mod limit;
#[cfg(feature = "session")]
pub mod store;
#[cfg(feature = "session")]
pub mod session;
#[cfg(feature = "pkce")]
pub mod pkce;
#[cfg(feature = "bearer")]
mod dpop;
#[cfg(feature = "jwks")]
mod discovery;
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
#[cfg(feature = "sso")]
pub mod sso;
#[cfg(feature = "login")]
mod credential;
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
pub use crate::extract::MissingLayer;
#[cfg(all(feature = "axum", feature = "session"))]
pub use crate::extract::SessionRejection;
pub use crate::http::{body, cookie};
#[cfg(feature = "bearer")]
pub use crate::jose::{Algorithm, AlgorithmError};
#[cfg(all(feature = "plans", feature = "redis"))]
pub use crate::limit::RedisPlans;
#[cfg(feature = "plans")]
pub use crate::limit::{CachedPlans, PlanFailure, PlanSource};
#[cfg(feature = "pkce")]
pub use crate::pkce::{CodeChallenge, CodeVerifier, PkceBodyLayer, PkceError, PkceLayer};
#[cfg(feature = "redis")]
pub use crate::redis::RedisConfig;
#[cfg(feature = "session")]
pub use crate::session::{NewSession, Session, SessionLayer, Sessions, UserId};
#[cfg(feature = "tokens")]
pub use crate::tokens::Tokens;
#[cfg(feature = "login")]
pub use crate::{
    auth::{AuthService, AuthServiceBuilder, Passkeys, Totp},
    client::{Client, ClientTable, Clients},
    delivery::OtpSender,
    password::{Password, PasswordHash, Passwords},
    policy::{Method, Policies, Policy},
    user::{Account, Identifier, NewUser, StoredUsers, Users},
};
pub use crate::{
    event::{EventLog, EventService},
    gate::{Gate, GateLayer, MaybeReady, Pass},
    http::{head::Head, replay::Replay},
    limit::{HeaderStyle, Limiter, Plan, Quota, Quotas, RateLimit, RateLimitLayer},
    reject::{OAuthJson, ProblemJson, Rejection, RejectionKind, Respond, StatusOnly},
    tenant::{ApiKeys, ClientIp, PeerAddr, Tenant, TenantError, TenantSource},
    util::{
        clock::{Clock, Moment, SystemClock, UnixTime},
        error::ConfigError,
        handle::{Handle, HandleError},
        secret::{Digest, Secret},
    },
};
