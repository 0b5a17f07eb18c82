//! Signed-in sessions. [`Sessions`] creates and ends them, [`SessionLayer`] finds the
//! session of each request, and [`Session`] describes the caller.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response, StatusCode};
//! use tollgate::{Session, SessionLayer, Sessions, Tenant, UserId, session::NewSession, store::Memory};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let sessions = Sessions::new(Memory::new());
//! let service = ServiceBuilder::new()
//!     .layer(SessionLayer::new(sessions.clone()).required().login_url("/login")?)
//!     .service(service_fn(async |request: Request<String>| {
//!         let user = Session::from_extensions(request.extensions()).map(|session| session.user().to_string());
//!         Ok::<_, Infallible>(Response::new(user.unwrap_or_default()))
//!     }));
//!
//! // a program without a session
//! let response = service.clone().oneshot(Request::new(String::new())).await?;
//! assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
//!
//! // a browser without a session
//! let request = Request::get("/").header("sec-fetch-mode", "navigate").body(String::new())?;
//! assert_eq!(service.clone().oneshot(request).await?.headers()["location"], "/login");
//!
//! // a browser with a session
//! let ada = NewSession::new(Tenant::parse("acme")?, UserId::parse("ada")?);
//! let (cookie, _) = sessions.create(ada).await?;
//! let set = cookie.header_value();
//! let cookie = set.to_str()?.split(';').next().unwrap_or_default();
//! let request = Request::get("/").header("cookie", cookie).body(String::new())?;
//! assert_eq!(service.oneshot(request).await?.body(), "ada");
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # What a session is
//!
//! A session records who signed in, when and how. Its random id, the [`sid`](Session::sid), never changes and is not a
//! secret. The cookie contains the `sid` and a secret of 256 bits, and the store keeps only the digest of the secret. A
//! new sign-in always gets a new secret, so an attacker cannot plant one beforehand. A known `sid` with a wrong secret
//! counts as no session. It changes nothing and is only counted in the event log.
//!
//! By default a session ends after an hour without use, and 24 hours after the sign-in ([`SessionsBuilder`]). It also
//! ends when it is revoked, and when its user has 100 newer ones. [`NewSession::remember`] keeps a user signed in for
//! longer, even after the browser is closed. A session that has ended never comes back, unless the store loses the
//! write: `docs/scale.md` describes when Redis can. There is no cache, so a revocation takes effect at the next
//! request.
//!
//! # Signing in and out
//!
//! With the feature `axum`, a handler returns the cookie in front of the response.
//!
//! ```
//! use axum::{Router, extract::State, http::StatusCode, response, response::{IntoResponse, Redirect}, routing::{get, post}};
//! use tollgate::{ConfigError, Session, SessionLayer, Sessions, Tenant, UserId, session::NewSession};
//!
//! # fn user_with_the_right_password() -> Option<(Tenant, UserId)> { None }
//! // `?` turns the error of a store into a 503
//! async fn sign_in(
//!     State(sessions): State<Sessions>,
//!     earlier: Option<Session>,
//! ) -> response::Result<impl IntoResponse> {
//!     let (tenant, user) = user_with_the_right_password().ok_or(StatusCode::UNAUTHORIZED)?;
//!     if let Some(earlier) = earlier {
//!         sessions.revoke(&earlier).await?;
//!     }
//!     let (cookie, _) = sessions.create(NewSession::new(tenant, user)).await?;
//!     Ok((cookie, Redirect::to("/")))
//! }
//!
//! async fn sign_out(State(sessions): State<Sessions>, session: Session) -> response::Result<impl IntoResponse> {
//!     sessions.revoke(&session).await?;
//!     Ok((sessions.removal(session.tenant()), Redirect::to("/login")))
//! }
//!
//! fn app(sessions: Sessions) -> Result<Router, ConfigError> {
//!     let layer = SessionLayer::new(sessions.clone());
//!     // here a session is optional: it is the one that a sign-in replaces; with several tenants, add `.tenant(…)`
//!     let sign_in = Router::new().route("/login", post(sign_in)).layer(layer.clone());
//!     Ok(Router::new()
//!         .route("/", get(async |session: Session| format!("hello {}", session.user())))
//!         .route("/sign-out", post(sign_out))
//!         .layer(layer.required().login_url("/login")?)
//!         .merge(sign_in)
//!         .with_state(sessions))
//! }
//! ```
//!
//! The cookie is `Secure`, so browsers and curl don't send it over plain HTTP. To try this on a loopback address, set
//! [`insecure_loopback`](SessionsBuilder::insecure_loopback).
//!
//! To sign a user out everywhere, call [`Sessions::end_user`]. A session holds no data of your application: keep such
//! data under the [`sid`](Session::sid) in a table of your own, or [in the same store](crate::store#data-of-your-own).
//!
//! # What the layer does
//!
//! | request | optional | `required` |
//! |---|---|---|
//! | with a session | passes with it | passes with it |
//! | with a session that lacks what the route [asks for](#routes-that-need-more) | | 303 or 401 for more proofs, 403 for a claim |
//! | without a session | passes | 401; 303 to the login page for a person; UNAUTHENTICATED for gRPC |
//! | with a cookie, and an unsafe method from another site | 403 | 403 |
//! | with a cookie, while the store fails | 503 | 503 |
//!
//! ## Routes that need more
//!
//! [`steps`](SessionLayer::steps), [`max_age`](SessionLayer::max_age) and [`claim`](SessionLayer::claim) require more than a
//! live session: a number of proved factors, recent proofs, or a right of the user.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{ConfigError, SessionLayer, Sessions};
//!
//! fn for_payments(sessions: Sessions) -> Result<SessionLayer, ConfigError> {
//!     SessionLayer::new(sessions).login_url("/login")?.steps(2)?.max_age(Duration::from_secs(600))
//! }
//! ```
//!
//! A person is sent to `/login?max_age=600&steps=2`, with the [`return_parameter`](SessionLayer::return_parameter) if there is
//! one. A program gets a 401 with
//! `WWW-Authenticate: Session realm="app", error="insufficient_user_authentication", max_age="600", steps="2"`.
//!
//! ## When the store fails
//!
//! A request that carries a session cookie gets a 503, even where the session is optional.
//! Treating it as anonymous would empty a shopping basket, or show a page that is hidden
//! from some users. Requests without a cookie do not need the store.
//!
//! ## Requests from other sites
//!
//! A request that carries the cookie and does more than read must come from a page of the
//! site. Reading is GET, HEAD, OPTIONS and TRACE, except for the handshake of a WebSocket. The
//! layer accepts `Sec-Fetch-Site: same-origin` or `none`. From browsers that do not send this
//! header it accepts an `Origin` of `https://` and the `Host` of the request. It refuses
//! requests with neither header, except those of gRPC clients. A program that uses a cookie
//! must send `Origin`.
//!
//! The layer does not check requests without the cookie. So another site can submit your sign-in form and sign a
//! visitor in to an account of its own. To prevent that, refuse sign-ins with a `Sec-Fetch-Site` other than
//! `same-origin`, or with an `Origin` other than your own.
//!
//! Forwarding headers are ignored. Behind a proxy that changes `Host`, pass the site's own
//! origin to [`SessionLayer::trusted_origin`]. Your GET routes must not change anything.
//!
//! ## Tenants
//!
//! A session belongs to one tenant, and each tenant has its own cookie:
//! `__Host-session_` and eight characters of the tenant's digest (`Secure`, `HttpOnly`,
//! `SameSite=Lax`). So a browser can be signed in at several tenants, and signing in at one
//! does not affect the others.
//!
//! With [`SessionLayer::tenant`], the layer reads only the cookie of the request's tenant,
//! and compares the tenant of the session as well. Without it, a request must have exactly
//! one live session: the layer never picks one of several.
//!
//! ## Several cookies
//!
//! If a request carries several cookies of one tenant, the one with a live session counts. If two
//! sessions are live, the request counts as one without a session, because a user must not act in a
//! session that an attacker has planted. The same applies to more than four cookies of one tenant, or
//! more than 16 in total.
//!
//! ## Stale cookies
//!
//! The layer never deletes a stale cookie. Its response could arrive after a sign-in in
//! another tab and delete the new cookie.
//!
//! # Layers together
//!
//! Put rate limits outside, then the session, then PKCE, as in `examples/layers.rs`:
//!
//! ```text
//! RateLimitLayer     sees every request, and refuses a flood before the store is read
//! SessionLayer       finds the user
//! RateLimitLayer     with SessionTenant: a limit per tenant of the session
//! PkceLayer          sees the authorization requests of signed-in users
//! your service       finds all results in the extensions
//! ```
//!
//! Put a CORS layer outside of all of them, because preflight requests carry no cookie, and
//! refusals need CORS headers too.

// Each file uses only files that are listed above it.
mod identity;
mod rows;
mod ended;
mod generations;
#[expect(clippy::module_inception, reason = "the type that the module is named after")]
mod session;
mod cookies;
mod sessions;
mod lookup;
mod opening;
mod lifecycle;
mod layer;
#[cfg(test)]
mod model;
#[cfg(test)]
mod races;

pub(crate) use self::sessions::EVENT_KINDS;
pub(crate) use self::{
    ended::{EndMark, EndedSessions},
    generations::{Generation, Generations, UserBatch},
    identity::{Authentication, Proof},
    layer::{
        cached_claims::{ClaimsResult, ClaimsSource},
        requirements::{MOST_STEPS, NeededProofs, ProofCheck},
    },
    opening::{Opening, Renewal},
};
pub use self::{
    identity::{IdentityError, UserId},
    layer::{SessionGate, SessionLayer, SessionPass},
    session::{NewSession, Session, SessionTenant},
    sessions::{Sessions, SessionsBuilder},
};
pub use crate::http::return_to::local_path;
