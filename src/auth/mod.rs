//! Logins: [`AuthService`] serves their endpoints, from `/authorize` to the authorization code (OAuth 2.0 Authorization
//! Code Flow with PKCE, for public clients).
//!
//! ```
//! use http::{HeaderMap, Request};
//! use http_body_util::BodyExt;
//! use serde_json::{Value, json};
//! use tollgate::{
//!     AuthService, Client, ClientTable, CodeChallenge, CodeVerifier, Identifier, NewUser, Password, Passwords,
//!     StoredUsers, Tenant, UserId,
//!     body::Body,
//!     store::{AnyStore, Memory},
//! };
//! use tower::ServiceExt;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! // who may log in, and through which application
//! let (acme, store) = (Tenant::parse("acme")?, AnyStore::from(Memory::new()));
//! let users = StoredUsers::new(store.clone());
//! let hash = Passwords::new().hash(Password::new("correct horse battery staple")).await?;
//! users.create(&acme, NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada")?).password(hash)).await?;
//! let web = Client::new("web", acme)?.redirect_uri("https://app.example/callback")?.scopes("openid profile")?;
//!
//! let auth = AuthService::new("https://auth.example", store, ClientTable::new([web])?, users)?.check()?;
//!
//! // what the application makes up for this login, and sends with each call
//! let verifier = CodeVerifier::generate();
//! let client = json!({
//!     "client_id": "web",
//!     "redirect_uri": "https://app.example/callback",
//!     "response_type": "code",
//!     "scope": "openid",
//!     "code_challenge": CodeChallenge::of(&verifier).as_str(),
//!     "code_challenge_method": "S256",
//! });
//! let call = async |endpoint: &str, cookie: &str, own: Value| {
//!     let mut members = client.clone();
//!     for (name, value) in own.as_object().into_iter().flatten() {
//!         members[name] = value.clone();
//!     }
//!     let request = Request::post(format!("/authentication/{endpoint}"))
//!         .header("content-type", "application/json")
//!         .header("cookie", cookie)
//!         .body(Body::from(members.to_string()))?;
//!     let (head, body) = auth.clone().oneshot(request).await?.into_parts();
//!     assert_eq!(head.status, 200);
//!     let answer: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
//!     Ok::<(HeaderMap, Value), Box<dyn std::error::Error>>((head.headers, answer))
//! };
//!
//! // a login begins, in this browser: from now on it is known by its cookie
//! let (headers, started) = call("start", "", json!({ "identifier": "ada" })).await?;
//! let cookie = headers["set-cookie"].to_str()?.split(';').next().unwrap_or_default();
//! assert!(cookie.starts_with("__Host-auth_session_"));
//! assert_eq!(started["available_methods"], json!(["password"]));
//! assert_eq!((&started["required_steps"], &started["next_step"]), (&json!(1), &json!(1)));
//! let id = &started["session_id"];
//!
//! let password = json!({
//!     "session_id": id, "method": "password", "username": "ada", "password": "correct horse battery staple",
//! });
//! let (_, step) = call("authenticate", cookie, password).await?;
//! assert_eq!((&step["status"], &step["next_step"]), (&json!("success"), &json!(null)));
//!
//! let (_, completed) = call("complete", cookie, json!({ "session_id": id })).await?;
//! assert_eq!(completed["status"], "completed");
//!
//! // the browser goes back, and takes the code to the application
//! let pairs = client.as_object().into_iter().flatten();
//! let query: Vec<_> = pairs.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
//! let back = Request::get(format!("/authorize?state=xyz&{}", query.join("&"))).header("cookie", cookie);
//! let response = auth.oneshot(back.body(Body::empty())?).await?;
//! let location = response.headers()["location"].to_str()?;
//! assert!(location.starts_with("https://app.example/callback?code="));
//! assert!(location.ends_with("&state=xyz&iss=https%3A%2F%2Fauth.example"));
//! // and is signed in here, too
//! assert!(response.headers()["set-cookie"].to_str()?.starts_with("__Host-session="));
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # What it promises
//!
//! - **No code without all steps.** A code is issued for as many *different* kinds of proof as the policy demands, each
//!   proved in this browser, in this login, for exactly these six client parameters. One login gives one code, however
//!   many requests race for it.
//! - **Nobody learns who has an account.** An unknown name gets the same answers, counters, limits and work as a known
//!   one; see [below](#equal-answers).
//! - **Nothing can be planted.** Each login has a secret of its own, made here and kept as a digest. No request adopts
//!   or changes another login's.
//! - **A guess is counted before it is checked**, by what was submitted, by account and by address.
//! - **The store fails closed**: 503, and nothing is let through.
//!
//! # The flow
//!
//! | | |
//! |---|---|
//! | `GET /authorize` | without a login for this request: a person goes on to the page, a program gets 401 |
//! | `GET /authentication/start` | the page; with `Accept: application/json` what a page of your own has to know ([`login_url`](AuthService::login_url)) |
//! | `POST /authentication/start` | a login begins: `identifier`; answers `session_id`, `available_methods`, `required_steps` |
//! | `POST /authentication/authenticate` | a step: `method`, with `username` and `password`, or `phone_number` or `email` to send a code to |
//! | `POST /authentication/verify-otp` | the code comes back: `otp` |
//! | `GET /authentication/status` | how it stands; changes nothing |
//! | `POST /authentication/complete` | all steps are done |
//! | `GET /authorize` | the code goes to the redirect URI, with `state` and `iss` |
//! | `GET /openapi.json` | all of it, for machines ([`AuthService::openapi`]) |
//!
//! All bodies are JSON. Every `POST` has `session_id` (but `start`) and the six client parameters, which must be those
//! that the login began with.
//!
//! # Mounting
//!
//! The service has no type parameters and never fails, so it goes wherever a tower service goes. Requests may come with
//! the path of the issuer or without it, as a router has stripped it; what it hands out always has it.
//!
//! ```
//! # fn mount(auth: tollgate::AuthService) -> axum::Router {
//! use axum::Router;
//!
//! // the issuer is https://example.com/auth
//! let app: Router = Router::new().nest_service("/auth", auth.clone());
//!
//! // the issuer is https://auth.example.com, and there are other routes
//! let app: Router = Router::new()
//!     .route_service("/authorize", auth.clone())
//!     .route_service("/authentication/{*rest}", auth.clone());
//!
//! // or whatever has no other route
//! let app: Router = Router::new().fallback_service(auth);
//! # app
//! # }
//! ```
//!
//! - **hyper**: `TowerToHyperService::new(auth)`, with [`PeerAddr`](crate::PeerAddr) in the extensions of each request:
//!   `examples/login_hyper.rs`.
//! - **tonic**: `Routes::new(grpc).into_axum_router()` beside it in one router: `examples/login_tonic.rs`.
//! - **Layers** around it: tracing and compression as you like. No body limit is needed (64 KiB), and no
//!   [`RateLimitLayer`](crate::RateLimitLayer), for it charges its requests itself. A CORS layer would speak for it:
//!   leave it out.
//!
//! It needs a tokio runtime with time enabled.
//!
//! # Cookies
//!
//! A login has the cookie `__Host-auth_session_` and the first 8 characters of its id, so that tabs don't collide; at
//! most four at once, then the oldest goes. A code begins a signed-in session in `__Host-session`, which a
//! [`SessionLayer`](crate::SessionLayer) on the same host finds if both have the same [`Sessions`](crate::Sessions):
//! [`AuthService::sessions`]. Both are `Secure`, `HttpOnly`, `Path=/` and `SameSite=Lax`. For plain http on a loopback
//! address there is [`insecure_loopback`](AuthService::insecure_loopback), here and on `Sessions`.
//!
//! # Pages of other origins
//!
//! Scripts of our own origin may call, and those of the origins that a client names
//! ([`Client::origin`](crate::Client::origin)), with `credentials: "include"`; others get 403. `SameSite=Lax` means
//! that a page of another *site* (`app.example.net` for `auth.example.com`) can begin a login and never go on, for its
//! browser keeps the cookie back. It uses the page here, or stands on the same site (`app.example.com`). Programs that
//! are no browsers send neither `Origin` nor `Sec-Fetch-Site`, and may call.
//!
//! # Which address counts
//!
//! That of [`PeerAddr`](crate::PeerAddr), or what [`client_ip`](AuthService::client_ip) says: behind proxies
//! [`ClientIp::behind`](crate::ClientIp::behind), in axum `ClientIp::peer().peer_by(…)` over `ConnectInfo`. **Set it**:
//! requests without an address all count as one, and then 60 failures a minute are those of everybody.
//!
//! Every request spends of the budget of its tenant: with [`limiter`](AuthService::limiter) one with your APIs, else
//! 600 in any minute for this service alone. A client's id is public, so a stranger can spend that budget; give
//! [`per_address`](AuthService::per_address) a tenth of it. Requests of no known client are charged to their address.
//! Where messages cost money, set [`messages_per_address`](AuthService::messages_per_address), too.
//!
//! # Steps
//!
//! [`policies`](AuthService::policies) say which steps a login needs; the default is one, by any method. `password` is
//! there unless [`without_passwords`](AuthService::without_passwords); `sms`, `email` and `whatsapp` where they have a
//! sender. Each step must be of another kind: `sms` and `whatsapp` both prove the phone. See [`policy`](crate::policy)
//! and [`delivery`](crate::delivery). A code goes only to a verified contact of the account that equals the address
//! given, and nobody waits for its sender.
//!
//! # Keys
//!
//! One-time codes and names are kept as hashes under a key. By default the service makes it and keeps it in the store,
//! which suits one that nobody else reads. With [`key`](AuthService::key) it comes from you, the same on all nodes, and
//! whoever has a copy of the store alone can't try codes and names out. A change of the key ends open codes, and counts
//! of failures begin anew.
//!
//! # Equal answers
//!
//! What an answer shows depends only on what the caller submitted. Visible are: the wait after failures of a name or an
//! address, which is the same whether it has an account; and the cool-down of codes for a pair of name and address.
//! Silent, seen only in the event log: the hundredth failure of an account in a row, and too many messages to one
//! address. Then answers stay as they are, and nothing is accepted or sent.
//!
//! [`StoredUsers`](crate::StoredUsers) reads as much for a name that nobody has. [`Users`](crate::Users) of your own
//! should, too; and a sign-up or reset page of yours can tell what this service does not.
//!
//! # Limits
//!
//! | | |
//! |---|---|
//! | a login | 10 minutes without a step, 30 in all; 15 failures; 4 in one browser |
//! | completed | 5 minutes until the code is taken |
//! | a one-time code | 6 digits, 5 minutes, 5 tries |
//! | codes sent | 30 seconds apart, 5 in a login; 10 an hour to a phone, 50 a day to a mailbox |
//! | failures of a name or an address with one method | 5 free, then a wait of 30 s that doubles up to an hour; at 100 it is a day |
//! | failures of one account with one method | 100 in a row, until 24 hours pass without |
//! | failures from one network address | 60 a minute |
//! | logins begun with one name | 600 a minute |
//! | an authorization code | 60 seconds, kept as a digest |
//! | a body, a `state` | 64 KiB, 4096 bytes |
//!
//! # Errors
//!
//! `{"error", "error_description"}`, the login's counters where it is the caller's, and `retry_after` with
//! `Retry-After`. With `Accept: application/problem+json` the same as a problem document, in which the status of the
//! login is `login_status`. Nothing of the request is echoed. `/authorize` sends errors to the redirect URI, but a wrong
//! `client_id` or `redirect_uri` is shown.
//!
//! | status | `error` |
//! |---|---|
//! | 400 | `invalid_request`, `invalid_client`, `invalid_scope`, `unsupported_response_type`, `unsupported_method` |
//! | 401 | `invalid_session`, `session_expired`, `invalid_credentials`, `invalid_otp`, `login_required` |
//! | 403 | `access_denied`, `origin_not_allowed` |
//! | 404, 405 | `not_found`, `method_not_allowed` |
//! | 409 | `method_not_allowed`, `no_pending_challenge`, `no_step_remaining`, `steps_remaining`, `session_failed` |
//! | 413, 415 | `content_too_large`, `unsupported_media_type` |
//! | 429 | `slow_down`, `too_many_attempts`, `rate_limit_exceeded` |
//! | 503 | `temporarily_unavailable` |
//!
//! # Events
//!
//! With [`events`](AuthService::events) the log shows logins that began, went on, failed, were locked and succeeded,
//! codes that were sent or could not be, and foreign origins: with keyed hashes in place of names, never a secret.
//!
//! # What is not there yet
//!
//! - **`/token`** and what belongs to it. A code is issued and kept, and nothing exchanges it; what a login is good for
//!   until then is its signed-in session.
//! - **`passkey` and `sso`**: `unsupported_method`.
//! - Of OpenID Connect `/authorize` heeds `max_age`, `acr_values` and `prompt=none` (error `login_required`); each login is
//!   asked for anew. `login_hint` and `nonce` are ignored.
//! - Sign-up, change and reset of passwords are your app's, with [`StoredUsers`](crate::StoredUsers) or `Users` of its
//!   own.

mod answer;
mod attempt;
mod authorize;
mod complete;
mod cookies;
mod cors;
mod fields;
mod grant;
mod guard;
mod inner;
mod issuer;
mod journal;
mod key;
mod logins;
#[cfg(test)]
mod openapi;
mod otp;
mod page;
mod password;
mod problem;
mod query;
mod request;
mod route;
mod service;
mod start;
mod status;
mod step;
mod visit;

pub use self::service::{AuthFuture, AuthService};
