//! Proof Key for Code Exchange (PKCE, RFC 7636).
//!
//! A client starts an authorization with a [`CodeChallenge`], and redeems the authorization code with the
//! [`CodeVerifier`] that the challenge was made from. A stolen code is useless without the
//! verifier.
//!
//! Only the method `S256` is supported. The method `plain` reveals the verifier to anyone who can
//! steal the code, so it can't be enabled.
//!
//! [`PkceLayer`] requires a challenge in the query. Admitted requests carry the parsed challenge in their extensions.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response, StatusCode};
//! use tollgate::{PkceLayer, pkce::CodeChallenge};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let service = ServiceBuilder::new().layer(PkceLayer::new("/authorize")?).service(service_fn(
//!     async |request: Request<String>| {
//!         let challenge = CodeChallenge::from_extensions(request.extensions());
//!         Ok::<_, Infallible>(Response::new(challenge.map(|it| it.as_str().to_owned()).unwrap_or_default()))
//!     },
//! ));
//!
//! let query = "code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256";
//! let request = Request::get(format!("/authorize?{query}")).body(String::new()).unwrap();
//! let response = service.clone().oneshot(request).await.unwrap();
//! assert_eq!(response.body(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
//!
//! let request = Request::get("/authorize").body(String::new()).unwrap();
//! assert_eq!(service.oneshot(request).await.unwrap().status(), StatusCode::BAD_REQUEST);
//! # Ok::<_, tollgate::ConfigError>(()) }).unwrap();
//! ```

mod challenge;
mod error;
mod gate;
mod layer;
mod scope;
mod verifier;

pub(crate) use self::gate::EVENT_KINDS;
pub use self::{
    challenge::CodeChallenge,
    error::{PkceError, PkceErrorKind},
    gate::{PkceGate, PkcePass},
    layer::PkceLayer,
    verifier::CodeVerifier,
};
