//! Signed-in sessions: [`Sessions`] begins and ends them, [`SessionLayer`] finds
//! that of each request, and [`Session`] says who the caller is.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response, StatusCode};
//! use tollgate::{NewSession, Session, SessionLayer, Sessions, Tenant, UserId, store::Memory};
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
//! // a browser without one
//! let request = Request::get("/").header("sec-fetch-mode", "navigate").body(String::new())?;
//! assert_eq!(service.clone().oneshot(request).await?.headers()["location"], "/login");
//!
//! // one with a session
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
//! A record of who signed in, when and how, that is written once and never
//! changed; see [`Session`]. Its secret of 256 bits is in the cookie
//! `__Host-session` (`Secure`, `HttpOnly`, `SameSite=Lax`, gone when the browser
//! closes), and nowhere else: the store has its digest. A sign-in makes a new
//! secret always, so none can be planted beforehand.
//!
//! A session ends after an hour without use and 24 hours after the sign-in
//! ([`Sessions::idle`], [`Sessions::absolute`]), when it is revoked, and when its
//! user has 100 newer ones. What has ended never comes back. There is no cache:
//! revocation holds at the next request. A secret that is used after its end is
//! an event of the log ([`Sessions::events`]): its owner's browser may have
//! slept, or somebody has stolen it.
//!
//! # What the layer does
//!
//! | request | optional | `required` |
//! |---|---|---|
//! | with a session | comes through with it | comes through with it |
//! | without | comes through | 401; 303 to the login page for a person; UNAUTHENTICATED for gRPC |
//! | with a cookie, and writes from another site | 403 | 403 |
//! | with a cookie, and the store fails | 503 | 503 |
//!
//! **The store fails.** A request with a cookie is not served as nobody's, even
//! where a session is optional: a shop would show an empty basket, and a page
//! that hides things from some users would show them. One without a cookie needs
//! no store.
//!
//! **Other sites.** A request that carries the cookie and does more than read
//! (any method but GET, HEAD, OPTIONS and TRACE, and the handshake of a
//! WebSocket) must come from a page of the site: `Sec-Fetch-Site` is
//! `same-origin` or `none`, or, in a browser that does not send it, `Origin` is
//! `https://` and the `Host` of the request. One that has neither header is
//! refused, except from a gRPC client. A program that calls with a cookie sends
//! `Origin`. Forwarding headers are not looked at: behind a proxy that changes
//! `Host`, give the site's own origin to [`SessionLayer::trusted_origin`].
//! Reading must not change anything; the layer takes GET at its word.
//!
//! **Several cookies of the name.** Each is tried. If exactly one is of a session
//! that lives, that is the one. If two sessions live, or there are more than
//! four cookies, there is no session: whose request it is can't be told, and
//! nobody shall act in a session that another has planted.
//!
//! **Stale cookies** are left alone. An answer that takes one away could come
//! after that of a sign-in in another tab, and take the new one away.
//!
//! **Tenants.** A session belongs to one tenant. Where the request names one by
//! its host or path, [`SessionLayer::tenant`] refuses sessions of any other. A
//! caller can send any cookie to any host.
//!
//! # Layers together
//!
//! Limits stand outside, then the session, then PKCE, as in `examples/layers.rs`:
//!
//! ```text
//! RateLimitLayer     sees every request, and no session. What floods is refused
//!                    before a store is asked.
//! SessionLayer       sees what is within the limit. Knows the user.
//! RateLimitLayer     with SessionTenant or a source of your own over `Session`:
//!                    a limit for what only the session tells.
//! PkceLayer          sees authorize requests of those who may make them.
//! your service       has them all in its extensions.
//! ```
//!
//! A CORS layer stands outside of all: a preflight carries no cookie, and a
//! refusal needs its headers too.

mod gate;
mod index;
mod journal;
mod layer;
mod lifecycle;
mod lookup;
#[cfg(test)]
mod model;
mod new;
mod origin;
mod presented;
#[cfg(test)]
mod races;
mod record;
mod refusal;
#[expect(clippy::module_inception, reason = "it is what the module is about")]
mod session;
mod sessions;
#[cfg(feature = "login")]
mod stand_in;
mod tenant;
mod user;

#[cfg(feature = "axum")]
pub(crate) use self::session::Slot;
#[cfg(feature = "login")]
#[allow(unused_imports, reason = "replaced at the merge")]
pub(crate) use self::stand_in::{Authentication, EndedSessions, GenerationCheck, Generations, Proof, SessionEndCheck};
pub use self::{
    gate::{SessionGate, SessionPass},
    layer::SessionLayer,
    new::NewSession,
    session::Session,
    sessions::Sessions,
    tenant::SessionTenant,
    user::{IdentityError, UserId},
};
