//! Access tokens for APIs. [`BearerLayer`] admits only requests with a valid token, and
//! [`AccessToken`] identifies the caller and what it may do.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response};
//! use tollgate::{AccessToken, BearerLayer, testing::TestIssuer};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! // in production, use the verifier of your issuer
//! let issuer = TestIssuer::new("https://auth.example", "https://api.example");
//! let service = ServiceBuilder::new()
//!     .layer(BearerLayer::new(issuer.verifier()).require_scope("orders:read")?)
//!     .service(service_fn(async |request: Request<String>| {
//!         let subject = AccessToken::from_extensions(request.extensions()).map(|token| token.subject().to_owned());
//!         Ok::<_, Infallible>(Response::new(subject.unwrap_or_default()))
//!     }));
//!
//! let get = |token: String| Request::get("/").header("authorization", format!("Bearer {token}")).body(String::new());
//! let token = issuer.token(|claims| claims.subject("ada").scope("orders:read"));
//! assert_eq!(service.clone().oneshot(get(token)?).await?.body(), "ada");
//!
//! let token = issuer.token(|claims| claims.subject("ada").scope("profile"));
//! let response = service.oneshot(get(token)?).await?;
//! assert_eq!(response.status(), 403);
//! assert_eq!(
//!     response.headers()["www-authenticate"],
//!     r#"Bearer realm="api", error="insufficient_scope", scope="orders:read""#,
//! );
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Keys
//!
//! - **In the issuer's process**, or in one that shares its store, use `AuthService::verifier` or `Tokens::verifier_in`
//!   (feature `login`). Revoked tokens are rejected immediately.
//! - **Elsewhere**, use `Verifier::remote` (feature `external-providers`). It fetches the keys that the issuer
//!   publishes and needs only its URL. It works with any issuer of RFC 9068 tokens. For Auth0, Cognito,
//!   Entra ID, Keycloak and others, choose a [`TokenProfile`]. It does not
//!   learn about revocations: revoked tokens stay valid until they expire, which is at most ten
//!   minutes for tokens issued by this crate. See `examples/api.rs`.
//! - **With keys that you have**, use [`Verifier::with_keys`]. It fetches nothing and does not
//!   follow key rotation.
//!
//! # Responses
//!
//! | request | response |
//! |---|---|
//! | without a token, or with another scheme | 401 without an error code; admitted with [`optional`](BearerLayer::optional) |
//! | with a repeated or malformed `Authorization` header, or a token longer than 8 KiB | 400 `invalid_request` |
//! | with an invalid token, for any reason | 401 `invalid_token` |
//! | with a valid token that lacks a [required scope](BearerLayer::require_scope) | 403 `insufficient_scope` with the required scopes |
//! | if keys or revocations can't be loaded, or the memory of used proofs is full | 503 |
//! | with a valid token whose user has not authenticated [strongly enough](BearerLayer::require_acr) or [recently enough](BearerLayer::require_max_age) | 401 `insufficient_user_authentication` (RFC 9470) |
//! | for the document of the [resource](BearerLayer::resource) | 200, without a token |
//! | with a valid token | admitted with its [`AccessToken`] |
//!
//! The error code is in `WWW-Authenticate` (RFC 6750 §3). gRPC clients get the same headers with
//! INVALID_ARGUMENT, UNAUTHENTICATED, PERMISSION_DENIED or UNAVAILABLE. Tokens in queries and
//! bodies are ignored, because they would end up in logs.
//!
//! # Tokens bound to a key
//!
//! A token bound to a key of the caller (DPoP, RFC 9449) is useless to a thief. It is sent with the
//! scheme `DPoP` and a proof for each request. Enable this with [`VerifierBuilder::dpop`]. Bound
//! tokens are rejected with a 401 if DPoP is not enabled, if they use the scheme `Bearer`, or if
//! the proof has another key or was already used. Tokens that are bound by other means are
//! rejected, too. The error code is `invalid_dpop_proof` for an invalid proof, and `use_dpop_nonce`
//! if a required nonce is missing.
//!
//! # Combining layers
//!
//! ```text
//! RateLimitLayer     by address: rejects floods of bad tokens before any signature is checked
//! BearerLayer        authenticates the caller; `limit` charges the token's tenant, which can't be forged
//! BearerLayer        on a few routes, with an additional scope
//! your service       reads the AccessToken from the extensions
//! ```
//!
//! Inside the `BearerLayer`, a [`RateLimitLayer`](crate::RateLimitLayer) with [`AccessTokenTenant`] charges tenants,
//! too, for example more for expensive routes. [`BearerLayer::limit`] charges earlier, before a DPoP proof takes up
//! memory. With the same limiter, a request is charged once.
//!
//! An inner layer with a clone of the same [`Verifier`] reuses the token of the outer layer and
//! checks only its own scopes. With another verifier it checks the request again, so a DPoP proof, which counts
//! once, passes only one of two verifiers that require it. Put a CORS layer
//! outside of all of them: preflights carry no token, and rejections need CORS headers, too.

#[cfg(feature = "login")]
#[cfg(test)]
mod attacks;
mod authorization;
mod gate;
mod keys;
mod layer;
mod possession;
mod profile;
mod rejections;
mod resource;
#[cfg(feature = "external-providers")]
mod remote;
mod rules;
#[cfg(feature = "login")]
#[cfg(test)]
mod times;
mod token;
mod verified_tokens;
mod verifier;

#[cfg(feature = "external-providers")]
pub use self::remote::RemoteKeys;
#[cfg(feature = "login")]
pub(crate) use self::token::claims::Audience;
#[cfg(feature = "login")]
pub(crate) use self::{
    authorization::{Authorization, Scheme},
    rejections::challenge_header,
    rules::check_name,
    token::claims::{Confirmation, MACHINE, TYPE},
};
pub use self::{
    gate::{BearerGate, BearerPass},
    layer::BearerLayer,
    profile::TokenProfile,
    resource::WithDocument,
    token::{AccessToken, AccessTokenTenant},
    verifier::{Verifier, VerifierBuilder},
};
#[cfg(any(feature = "login", test))]
pub(crate) use self::{
    keys::{KeySource, Revocation},
    token::claims::AccessTokenClaims,
};
pub use crate::jose::{Algorithm, AlgorithmError};
