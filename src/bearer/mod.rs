//! Access tokens at an API: a [`BearerLayer`] lets only requests with a valid one through, and an [`AccessToken`] says who
//! calls and what they may do.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response};
//! use tollgate::{AccessToken, BearerLayer, testing::TestIssuer};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! // in a service that runs, the verifier is that of its issuer
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
//! # Whose keys
//!
//! - **In the issuer's process**, or in any that shares its store: `Tokens::verifier` (feature `tokens`). A token that was
//!   taken back is refused at once.
//! - **Far from it**: `Verifier::remote` (feature `jwks`) fetches the keys that the issuer publishes, and needs no more
//!   than its URL; any issuer of RFC 9068 tokens will do. What is taken back lives to its end, ten minutes at most with
//!   ours. `examples/api.rs` is such a service.
//! - **With keys that you have**: [`Verifier::with_keys`] takes the document, fetches nothing, and hears of no rotation.
//!
//! # What the layer answers
//!
//! | request | answer |
//! |---|---|
//! | without a token, or with another scheme | 401 without an error; [`optional`](BearerLayer::optional): comes through |
//! | `Authorization` twice, or not `Bearer` and one token of at most 8 KiB | 400 `invalid_request` |
//! | a token that is not valid, for whatever reason | 401 `invalid_token` |
//! | a valid token without a [required scope](BearerLayer::require_scope) | 403 `insufficient_scope`, and what is needed |
//! | the keys, or what was revoked, can't be read; more proofs (below) than are remembered | 503 |
//! | a valid token | comes through with its [`AccessToken`] |
//!
//! The error is in `WWW-Authenticate` (RFC 6750 §3). A gRPC client gets the same headers with INVALID_ARGUMENT,
//! UNAUTHENTICATED, PERMISSION_DENIED or UNAVAILABLE. A token in the query or in a body is never looked at: it would end
//! in logs.
//!
//! # Tokens that are bound to a key
//!
//! A token that was issued for a key of the caller (DPoP, RFC 9449) is worth nothing to a thief. It comes with the scheme
//! `DPoP` and a proof for each request; [`Verifier::dpop`] takes them. Without that, under the scheme `Bearer`, with the
//! proof of another key or with one that was used before it is refused with 401, and so is one that is bound in another
//! way. A proof that is not good is answered `invalid_dpop_proof`, one without a nonce that is demanded `use_dpop_nonce`.
//!
//! # Layers together
//!
//! ```text
//! RateLimitLayer     by address: what floods with bad tokens is refused before a signature is checked.
//! BearerLayer        knows the caller.
//! RateLimitLayer     with AccessTokenTenant: a limit for each tenant, which nobody can forge.
//! BearerLayer        of a few routes, with a scope that only they need.
//! your service       has the AccessToken in its extensions.
//! ```
//!
//! An inner layer with a clone of the same [`Verifier`] takes the token that the outer one has left, and checks only its
//! own scopes. With another verifier it looks at the request anew. A CORS layer stands outside of all: a preflight
//! carries no token, and a refusal needs its headers too.

#[cfg(feature = "tokens")]
#[cfg(test)]
mod attacks;
mod verified_tokens;
mod token_claims;
mod gate;
mod keys;
mod layer;
mod possession;
mod authorization;
mod rejections;
#[cfg(feature = "jwks")]
mod remote;
mod rules;
mod tenant;
#[cfg(feature = "tokens")]
#[cfg(test)]
mod times;
mod token;
mod verifier;

#[cfg(feature = "jwks")]
pub use self::remote::RemoteKeys;
#[cfg(feature = "axum")]
pub(crate) use self::token::TokenSlot;
#[cfg(feature = "tokens")]
pub(crate) use self::{
    authorization::{Authorization, Scheme},
    rejections::challenge,
    rules::check_name,
    token_claims::{Audience, Confirmation, TYPE},
};
pub use self::{
    gate::{BearerGate, BearerPass},
    layer::BearerLayer,
    tenant::AccessTokenTenant,
    token::AccessToken,
    verifier::{Verifier, VerifierBuilder},
};
pub(crate) use self::{
    keys::{KeySource, Revocation, Unavailable},
    token_claims::AccessTokenClaims,
};
