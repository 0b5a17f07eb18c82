//! Logins: [`AuthService`] serves their endpoints, from `/authorize` to the authorization code (OAuth 2.0 Authorization
//! Code Flow with PKCE, for public clients), and with [`AuthServiceBuilder::tokens`] (feature `tokens`) on to tokens and OpenID
//! Connect.
//!
//! ```
//! use http::{HeaderMap, Request};
//! use http_body_util::BodyExt;
//! use serde_json::{Value, json};
//! use tollgate::{
//!     AuthService, Client, ClientIp, ClientTable, CodeChallenge, CodeVerifier, Identifier, NewUser, Password, Passwords,
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
//! let auth = AuthService::builder("https://auth.example", store)
//!     .clients(ClientTable::new([web])?)
//!     .users(users)
//!     .client_ip(ClientIp::peer())
//!     .build()?;
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
//!   proved in this browser: in this login, for exactly these six client parameters, or in a signed-in session that lives
//!   ([below](#signed-in-already)). One login gives one code, however many requests race for it.
//! - **Nobody learns who has an account.** An unknown name gets the same answers, counters, limits and work as a known
//!   one; see [below](#equal-answers).
//! - **Nothing can be planted.** Each login has a secret of its own, made here and kept as a digest. No request adopts
//!   or changes another login's.
//! - **A guess is counted before it is checked**, by what was submitted, by account and by address. One that nobody
//!   could check, as where the store failed, is taken back.
//! - **The store fails closed**: 503, and nothing is let through.
//!
//! # The flow
//!
//! | | |
//! |---|---|
//! | `GET /authorize` | without a login for this request: a person goes on to the page, a program gets 401 |
//! | `POST /authorize` | the same as a form: 303 to the URL that says it |
//! | `GET /authentication/start` | the page; with `Accept: application/json` what a page of your own has to know ([`login_url`](AuthServiceBuilder::login_url)) |
//! | `POST /authentication/start` | a login begins: `identifier`; answers `session_id`, `available_methods`, `required_steps` |
//! | `POST /authentication/authenticate` | a step: `method`, with `username` and `password`, or `phone_number` or `email` to send a code to |
//! | `POST /authentication/verify-otp` | the code comes back: `otp` |
//! | `GET /authentication/status` | how it stands; changes nothing |
//! | `POST /authentication/complete` | all steps are done |
//! | `GET /authorize` | the code goes to the redirect URI, with `state` and `iss` |
//! | `POST /par` | what `/authorize` would get, pushed from program to program (RFC 9126) |
//! | `GET /openapi.json` | all of it, for machines ([`AuthService::openapi`]) |
//!
//! All bodies are JSON, but those of `/authorize` and `/par`, which are forms. Every `POST` of a login has `session_id` (but `start`) and the six client parameters, which must be those
//! that the login began with.
//!
//! `/authorize` takes the newest login of this browser that is completed for this very request. If its account was
//! disabled meanwhile, is gone or has another password than the one that was proved, the answer is `access_denied`.
//! `HEAD` spends nothing, nor does a browser that fetches ahead: it gets 503, and asks again when it is sure.
//!
//! # What a request can wish for
//!
//! | | |
//! |---|---|
//! | `prompt` | `none`: nobody is asked anything, else `login_required` or `interaction_required`; `login`: a login anew; `consent`, `select_account`: not without a person; any other is refused |
//! | `max_age` | what a session brings is no older; what is proved in a login for this request meets it; 0 is `prompt=login` |
//! | `acr_values` | the first level that the policies know is demanded, too |
//! | `claims` | claims by name; an essential `acr` with values must be met, else `unmet_authentication_requirements`; `sub` with a value, or with several, is who it must be |
//! | `id_token_hint` | the user of that token, else `login_required` |
//! | `login_hint` | what the page offers as the name |
//! | `nonce`, `dpop_jkt` | for the tokens |
//!
//! With `prompt=consent` the page says which client asks, and for what, before anybody goes on, and so for clients on a
//! loopback address or with a scheme of their own. `offline_access` needs no such word (OpenID Connect Core §11): the
//! operator has registered the client with the scopes that it may ask for. What was agreed to is not kept.
//!
//! `start` takes `acr_values`, `prompt`, `max_age` and `claims` (as an object or its text) too, for a login that is to be good for such a request.
//!
//! # Signed in already
//!
//! What a login proved is kept beside its session. Where a client has
//! [`single_sign_on`](crate::Client::single_sign_on), whoever is signed in to its tenant gets a code at once, if what
//! they proved meets what is demanded, and the account and its password are as they were. Where a step is missing, a
//! login that is started in that browser without `identifier`, or with the one of the session, begins with what was
//! proved (`next_step` says so), and its session takes the place of the one before. The client of the session can have
//! that without `single_sign_on`. A client on a loopback address, or an app with a scheme of its own, never gets a code
//! without a word: the page asks, and goes on by such a login, of which no step is missing. A page of your own learns it
//! from the description of `GET /authentication/start` (`signed_in`, `confirmation_required`), if it is of the issuer's
//! origin.
//!
//! An app that gives such a session a new secret does so by [`AuthService::rotate`]: after
//! [`Sessions::rotate`](crate::Sessions::rotate) it counts for no login any more, and its tokens do not end with it.
//!
//! # Tokens
//!
//! With [`AuthServiceBuilder::tokens`] there are
//!
//! | | |
//! |---|---|
//! | `POST /token` | a code and its `code_verifier`, or a refresh token, for tokens (RFC 6749, 7636, 9068, 9449) |
//! | `GET`, `POST /userinfo` | who logged in, as far as the scopes say: `profile`, `email`, `phone` |
//! | `GET /jwks` | the keys; may be kept for five minutes |
//! | `POST /revoke` | ends all that came of one code, by its refresh token or an access token (RFC 7009) |
//! | `POST /introspect` | what is known of a token (RFC 7662): a client asks about its own, an [`introspector`](AuthServiceBuilder::introspector) about any |
//! | `GET`, `POST /logout` | ends the signed-in session and its tokens (OpenID Connect RP-Initiated Logout) |
//! | `GET /.well-known/openid-configuration` | what there is, for clients that set themselves up |
//! | `GET /.well-known/oauth-authorization-server` | the same, in front of the path of the issuer (RFC 8414) |
//!
//! Bodies are forms. Clients are public: there is no secret, and whoever shows one gets `invalid_client`. What tokens hold,
//! how long they live and how they end stands in [`tokens`](crate::tokens), how an API takes them in
//! [`bearer`](crate::bearer).
//!
//! - **A code** is good once, for 60 seconds, for its client, its redirect URI and its verifier. One that comes again more than
//!   two seconds later, with the right verifier, ends the tokens that it gave: two have it. With a wrong verifier nothing
//!   happens, for whoever has seen a code in a URL could end them.
//! - **The account** is looked up at each exchange and at `/userinfo`: once it is disabled, or is no longer found by the name
//!   that it logged in by, there is nothing more.
//! - **A challenge** whose code was redeemed begins no other login of that client, for a day.
//! - **Logging out**: with an `id_token_hint` of the session at once; otherwise a person is asked by a page. The browser goes
//!   on to a `post_logout_redirect_uri` that the client has [registered](crate::Client::after_logout), with `state`.
//!   Tokens with the scope `offline_access` live on. A sign-out of your own does the same by [`AuthService::sign_out`].
//!
//! # The page
//!
//! It works with what the service itself serves beside it (`page.js`, `page.css`), by relative URLs, and needs scripts. To
//! survive a reload it keeps in the `sessionStorage` of its tab: the query, `session_id`, the name that was typed and the
//! address that a code went to, the methods, the steps that are done, and until when to wait. No password, no code and no
//! secret of a login is there.
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
//! // with tokens: /par, /token, /userinfo, /revoke, /introspect, /jwks, /logout and /.well-known/ too; the last beside the
//! // nest, at the root, where the issuer has a path:
//! let well_known = "/.well-known/oauth-authorization-server/auth";
//! let app: Router = Router::new().nest_service("/auth", auth.clone()).route_service(well_known, auth.clone());
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
//! It needs a tokio runtime with time enabled, as `#[tokio::main]` has it: bodies must arrive within 30 seconds, passwords
//! are hashed on threads of its own for blocking work, and codes are sent by tasks.
//!
//! # Cookies
//!
//! A login has the cookie `__Host-auth_session_` and the first 8 characters of its id, so that tabs don't collide; at
//! most four at once, then the oldest goes. A code begins a signed-in session in `__Host-session`, which a
//! [`SessionLayer`](crate::SessionLayer) on the same host finds if both have the same [`Sessions`](crate::Sessions):
//! [`AuthService::sessions`]. The session whose cookie this one replaces is ended. (Of two logins that finish in one
//! browser at the same moment the cookie that comes last stays; the other session, which a list of
//! [`Sessions`](crate::Sessions) shows, ends by its time.) Both are `Secure`, `HttpOnly`, `Path=/` and `SameSite=Lax`. For
//! plain http on a loopback address there is [`insecure_loopback`](AuthServiceBuilder::insecure_loopback), here and on `Sessions`.
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
//! That of [`PeerAddr`](crate::PeerAddr), or what [`client_ip`](AuthServiceBuilder::client_ip) says: behind proxies
//! [`ClientIp::behind`](crate::ClientIp::behind), in axum `ClientIp::peer().peer_by(…)` over `ConnectInfo`. **Set it**:
//! where requests come without an address, no limit of addresses holds, for one that all share would let anybody lock out
//! everybody. A warning says so once (feature `tracing`). Behind a proxy that is not named, all are one address.
//!
//! Every request spends of the budget of its tenant: with [`limiter`](AuthServiceBuilder::limiter) one with your APIs, else
//! 600 in any minute for this service alone. A client's id is public, so a stranger can spend that budget; give
//! [`per_address`](AuthServiceBuilder::per_address) a tenth of it. Requests of no known client are charged to their address, or
//! without one to a budget that they all share. One address can ask for 120 codes a minute; where messages cost money, let
//! [`messages_per_address`](AuthServiceBuilder::messages_per_address) be less.
//!
//! # Steps
//!
//! [`policies`](AuthServiceBuilder::policies) say which steps a login needs; the default is one, by any method. `password` is
//! there unless [`without_passwords`](AuthServiceBuilder::without_passwords); `sms`, `email` and `whatsapp` where they have a
//! sender. Each step must be of another kind: `sms` and `whatsapp` both prove the phone. They come in any order. See
//! [`policy`](crate::policy) and [`delivery`](crate::delivery). A code goes only to a verified contact of the account that
//! equals the address given, and nobody waits for its sender. [`build`](AuthServiceBuilder::build) finds at the start what no
//! login could meet; [`explain`](AuthService::explain) says what one would need, and why.
//!
//! # Keys
//!
//! One-time codes, and names and addresses where they are counted and logged, are hashes under a key. By default the service
//! makes it and keeps it in the store, which suits one that nobody else reads. With [`key`](AuthServiceBuilder::key) it comes from
//! you, the same on all nodes, and whoever has a copy of the store alone can't try those out; a login itself, and
//! `StoredUsers`, have names without it. A change of the key ends open codes and logins by password that are under way, and
//! counts begin anew.
//!
//! # Equal answers
//!
//! What an answer shows depends only on what was submitted. Visible are
//!
//! - the wait after failures: with `password` of the `username`, with a code of the name that the login began with and the
//!   address together;
//! - how often codes can be asked for, by that same pair;
//! - what the network address has spent, and how many logins begin with one name.
//!
//! Silent, seen only in the event log, are the hundredth failure of an account in a row, and too many messages to one
//! receiver. Then answers stay as they are, and nothing is accepted or sent.
//!
//! One thing shows: success clears the count of a name or pair. Who keeps failing on purpose sees when the wait is gone
//! before its time, and so that somebody got in by that name, or was unlocked.
//!
//! By the clock, known and unknown names are about a microsecond apart in process where a code is asked for
//! (`BENCHMARKS.md`). [`StoredUsers`](crate::StoredUsers) reads as much for a name that nobody has.
//! [`Users`](crate::Users) of your own should, too; and a sign-up or reset page of yours can tell what this service does
//! not.
//!
//! # Limits
//!
//! | | |
//! |---|---|
//! | a login | 10 minutes without a step, 30 in all; 15 failures; 4 in one browser |
//! | its last try, if it is not answered | 30 seconds, then it has failed |
//! | completed | 5 minutes until the code is taken |
//! | a one-time code | 6 digits, 5 minutes, 5 tries |
//! | codes sent | 5 in a login |
//! | to a pair of name and address | 30 seconds apart by one method; 10 an hour to a phone, 50 a day to a mailbox |
//! | to one receiver of a tenant, silently | 10 an hour to a phone, 50 a day to a mailbox |
//! | codes that one network address asks for | 120 a minute |
//! | failures of a username, or of such a pair, with one method | 5 free, then a wait of 30 s that doubles up to an hour; at 100 it is a day |
//! | failures of one account with one method, silently | 100 in a row, until 24 hours pass without |
//! | failures from one network address | 60 a minute; then no login begins there either |
//! | logins begun with one name | 600 a minute |
//! | an authorization code | 60 seconds, kept as a digest; spent, as long as what it gave |
//! | a form at `/authorize` | 16 KiB |
//! | a pushed request | 8 KiB; 90 seconds, and 30 minutes from its first use |
//! | `nonce`; `claims` | 512 bytes; 4 KiB |
//! | a body, a `state` | 64 KiB in 30 seconds; 4096 bytes |
//!
//! A try during a wait is refused and changes nothing. [`unlock`](AuthService::unlock) ends locks and ceilings of failures:
//! for operators, and for a page where a password is reset. Counts of addresses and of logins that begin are in memory,
//! one for each process; the others are in the store.
//!
//! # What it keeps
//!
//! | rows | live |
//! |---|---|
//! | a login | an hour longer than it could go on: 70 minutes after its last step, 90 at most |
//! | failures of a name, a pair, an account | 24 hours after the last |
//! | messages of a pair, of a receiver | an hour for a phone, 24 for a mailbox |
//! | the same for what nobody has | a minute; such rows are written so that nobody's costs as much as somebody's |
//! | a code | a minute; one that was redeemed, as long as its tokens |
//! | a family of tokens | as long as its refresh token can be traded: a day, or [what is set](crate::Tokens::refresh_lifetime) with `offline_access` |
//! | that tokens were taken back | 12 minutes for a family, a day for a session, 400 days for a user |
//! | a challenge that was redeemed | a day |
//! | a proof of a key (DPoP) | 70 seconds |
//! | a pushed request | 90 seconds, or 30 minutes |
//! | what a session rests on, beside it | as long as it can live |
//! | the session | as [`session`](crate::session) says |
//!
//! As [`Memory`](crate::store::Memory) counts, with 256 bytes for a row as such and names of ordinary length: a login
//! takes 700 bytes to 1.3 KB, failures 350 bytes, messages up to 600 for a phone and 1.8 KB for a mailbox. A request that
//! proves nothing leaves at most one row that outlives a minute, beside a few for each account that exists. So a tenant
//! whose 600 requests a minute are all spent by strangers has up to 42,000 logins that were begun, or up to 864,000 rows
//! after a day; one address alone comes to 60 rows of failures and 120 of messages a minute. A full `Memory` (1,000,000
//! rows or 512 MiB, if nothing else is set) forgets nothing that lives: logins get a 503. Give it room for your tenants,
//! and set [`per_address`](AuthServiceBuilder::per_address).
//!
//! # Errors
//!
//! `{"error", "error_description"}`, the login's counters where it is the caller's, and `retry_after` with
//! `Retry-After`. With `Accept: application/problem+json` the same as a problem document, in which the status of the
//! login is `login_status`, because `status` is that of HTTP. Nothing of the request is echoed. Once client
//! and redirect URI are known to be good, `/authorize` sends errors there, `temporarily_unavailable` too where the store
//! fails. Before that, and where a budget is spent, they are shown.
//!
//! | status | `error` |
//! |---|---|
//! | 400 | `invalid_request`, `invalid_client`, `invalid_scope`, `unsupported_response_type`, `unsupported_method`, `invalid_request_uri`, `request_not_supported`, `request_uri_not_supported`; of tokens `invalid_grant`, `unsupported_grant_type`, `unauthorized_client`, `invalid_dpop_proof`, `use_dpop_nonce` |
//! | 401 | `invalid_session`, `session_expired`, `invalid_credentials`, `invalid_otp`, `login_required`, `interaction_required`; `invalid_client` to one that shows a secret; of tokens `invalid_token` |
//! | 403 | `access_denied`, `origin_not_allowed`, `unmet_authentication_requirements`, `insufficient_scope` |
//! | 404, 405 | `not_found`, `method_not_allowed` |
//! | 409 | `method_not_allowed`, `no_pending_challenge`, `no_step_remaining`, `steps_remaining`, `session_failed` |
//! | 413, 415 | `content_too_large`, `unsupported_media_type` |
//! | 429 | `slow_down`, `too_many_attempts`, `rate_limit_exceeded` |
//! | 503 | `temporarily_unavailable` |
//!
//! # Events
//!
//! With [`events`](AuthServiceBuilder::events) the log shows logins that began, went on, failed, were locked and succeeded,
//! codes that were sent or could not be, tokens that were issued, taken back and used twice, and foreign origins: with keyed hashes in place of names, never a secret.
//!
//! # What is not there yet
//!
//! - **`passkey` and `sso`**: no login has a step by them (400 `unsupported_method`).
//! - Of OpenID Connect: `display`, `ui_locales` and `registration` are passed over; `request` and the `request_uri` of
//!   others are refused, and so is any `response_mode` but `query`.
//! - Sign-up, change and reset of passwords are your app's, with [`StoredUsers`](crate::StoredUsers) or `Users` of its
//!   own.

mod http;
mod state;
mod pages;
mod core;
mod context;
mod methods;
mod authorize;
mod steps;
mod first_party;
#[cfg(feature = "tokens")]
mod endpoints;
mod service;
mod ending;
#[cfg(feature = "tokens")]
mod signing;
mod builder;
mod assembly;
#[cfg(test)]
mod openapi;

pub use self::{
    builder::AuthServiceBuilder,
    service::{AuthFuture, AuthService},
};
pub use crate::login::LoginLimits;
