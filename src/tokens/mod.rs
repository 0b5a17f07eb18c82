//! Tokens that a login service issues (OAuth 2.0, OpenID Connect): [`Tokens`] has their keys and what becomes of them.
//!
//! ```
//! use http::Request;
//! use http_body_util::BodyExt;
//! use serde_json::{Value, json};
//! use tollgate::{
//!     AccessToken, AuthService, BearerLayer, Client, ClientIp, ClientTable, CodeChallenge, CodeVerifier, StoredUsers, Tenant,
//!     Tokens, body::Body, store::{AnyStore, Memory},
//! };
//! use tower::{Layer, ServiceExt};
//! # use http::{HeaderMap, Response};
//! # use tollgate::{Identifier, NewUser, Password, Passwords, UserId};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let (acme, store) = (Tenant::parse("acme")?, AnyStore::from(Memory::new()));
//! let users = StoredUsers::new(store.clone());
//! # let hash = Passwords::new().hash(Password::new("correct horse battery staple")).await?;
//! # let ada = NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada")?).name("Ada Lovelace").password(hash);
//! # users.create(&acme, ada).await?;
//! let app = Client::new("app", acme)?
//!     .redirect_uri("com.example.app:/callback")?
//!     .scopes("openid profile offline_access")?;
//!
//! // one issuer, for the login service and for its tokens
//! let tokens = Tokens::new("https://auth.example", store.clone())?;
//! tokens.prepare().await?; // the keys are there, or it is said now why not
//! let auth = AuthService::builder("https://auth.example", store)
//!     .clients(ClientTable::new([app])?)
//!     .users(users)
//!     .client_ip(ClientIp::peer())
//!     .tokens(tokens.clone())
//!     .build()?;
//!
//! // the app sends its user to /authorize, and gets a code: see the docs of `auth`
//! let verifier = CodeVerifier::generate();
//! # let members = json!({
//! #     "client_id": "app", "redirect_uri": "com.example.app:/callback", "response_type": "code",
//! #     "scope": "openid profile", "code_challenge": CodeChallenge::of(&verifier).as_str(),
//! #     "code_challenge_method": "S256",
//! # });
//! # let call = async |endpoint: &str, cookie: &str, own: Value| {
//! #     let mut all = members.clone();
//! #     for (name, value) in own.as_object().into_iter().flatten() { all[name] = value.clone(); }
//! #     let request = Request::post(format!("/authentication/{endpoint}"))
//! #         .header("content-type", "application/json").header("cookie", cookie);
//! #     let (head, body) = auth.clone().oneshot(request.body(Body::from(all.to_string()))?).await?.into_parts();
//! #     let answer: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
//! #     Ok::<(HeaderMap, Value), Box<dyn std::error::Error>>((head.headers, answer))
//! # };
//! # let (headers, started) = call("start", "", json!({ "identifier": "ada" })).await?;
//! # let cookie = headers["set-cookie"].to_str()?.split(';').next().unwrap_or_default();
//! # let id = &started["session_id"];
//! # call("authenticate", cookie, json!({
//! #     "session_id": id, "method": "password", "username": "ada", "password": "correct horse battery staple",
//! # })).await?;
//! # call("complete", cookie, json!({ "session_id": id })).await?;
//! # let query: Vec<_> = members.as_object().into_iter().flatten()
//! #     .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default().replace(' ', "%20"))).collect();
//! # let back = Request::get(format!("/authorize?{}", query.join("&"))).header("cookie", cookie).body(Body::empty())?;
//! # let back = auth.clone().oneshot(back).await?;
//! # let code = back.headers()["location"].to_str()?.split(['=', '&']).nth(1).unwrap_or_default().to_owned();
//!
//! // and trades it, with the verifier that it alone has
//! let trade = async |form: String| {
//!     let request = Request::post("/token").header("content-type", "application/x-www-form-urlencoded");
//!     let response = auth.clone().oneshot(request.body(Body::from(form))?).await?;
//!     let body = response.into_body().collect().await?.to_bytes();
//!     Ok::<Value, Box<dyn std::error::Error>>(serde_json::from_slice(&body)?)
//! };
//! let code = format!("grant_type=authorization_code&client_id=app&code={code}&code_verifier={}", verifier.expose());
//! let first = trade(code).await?;
//! assert_eq!((&first["token_type"], &first["expires_in"]), (&json!("Bearer"), &json!(600)));
//! assert!(first["id_token"].is_string());
//!
//! // an API in this process, or in any that shares the store
//! let api = BearerLayer::new(tokens.verifier()).layer(tower::service_fn(async |request: Request<Body>| {
//!     let subject = AccessToken::from_extensions(request.extensions()).map(|token| token.subject().to_owned());
//!     Ok::<_, std::convert::Infallible>(http::Response::new(subject.unwrap_or_default()))
//! }));
//! let bearer = format!("Bearer {}", first["access_token"].as_str().unwrap_or_default());
//! let response = api.oneshot(Request::get("/").header("authorization", bearer).body(Body::empty())?).await?;
//! assert_eq!(response.body(), "u-1");
//!
//! // ten minutes later
//! let refresh = first["refresh_token"].as_str().unwrap_or_default();
//! let next = trade(format!("grant_type=refresh_token&client_id=app&refresh_token={refresh}")).await?;
//! assert_ne!(next["refresh_token"], first["refresh_token"]);
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # What lives how long
//!
//! | | | |
//! |---|---|---|
//! | code | a minute, and one exchange | |
//! | access token, id_token | 10 minutes | [`access_lifetime`](Tokens::access_lifetime) |
//! | refresh tokens, with `offline_access` | 30 days from the login | [`refresh_lifetime`](Tokens::refresh_lifetime) |
//! | refresh tokens, without | a day from the code, whether or not the signed-in session is still alive, unless the user signs out ([below](#what-is-taken-back)) | |
//! | a key | signs for 90 days | [`rotate_every`](Tokens::rotate_every), [`rotate`](Tokens::rotate) |
//!
//! Nothing prolongs the life of refresh tokens: when it ends, the user logs in again, and no access token lives on after it.
//! Access tokens are short-lived for services far away, which hear of no revocation; in this process one that was taken
//! back is refused at once.
//!
//! # Refresh tokens
//!
//! Each is good once, and brings the next. All that came of one code is a *family*. One that comes back after it was used
//! is in two hands, so the whole family ends, access tokens too, and the event log says `token_reused`. For ten seconds
//! after its use it brings the same successor again, so that a lost answer or two tabs at once end nothing. The store has
//! digests alone: whoever reads it can make none.
//!
//! A user has up to a hundred families at a client. With one more, one makes room: one that was given back, else the oldest
//! of the same signed-in session where that has twenty, else the oldest. What a sign-out ended holds its place for the rest
//! of its day.
//!
//! A client that asks for less `scope` gets less, never more. The account is looked up at each exchange: one that is
//! disabled gets nothing.
//!
//! # What is taken back
//!
//! - `/revoke`: a client gives back a token, and with it all that came of its code.
//! - `/logout`: the signed-in session ends, and all that came of it without `offline_access`. A sign-out of your own does
//!   the same by [`AuthService::sign_out`](crate::AuthService::sign_out).
//!   Other ends of a session, such as [`Sessions::revoke_user`](crate::Sessions::revoke_user), end no tokens.
//! - [`revoke_user`](Tokens::revoke_user): every token of one user, after a change of the password. End the sessions too.
//! - A code that is exchanged twice ends what it gave the first time.
//!
//! # Keys
//!
//! They are made in the store at the first use, by [`prepare`](Tokens::prepare), and all processes that share the store
//! share them. A new one is published for an hour before it signs, and the old one for a day after, so nobody who keeps a
//! copy of `/jwks` sees a token of a key that is unknown. With [`seal`](Tokens::seal) a copy of the store signs nothing:
//! give it a secret that is not in the store. A key that somebody got hold of ends, with all others, by
//! [`withdraw_keys`](Tokens::withdraw_keys).
//!
//! # Native and browser apps
//!
//! No client has a secret: what is on a phone or in a page is no secret. What protects them is where their answers go,
//! and what they prove.
//!
//! **An app on a phone or a desktop** (RFC 8252) opens the system's browser, never a view of its own, and gets its answer
//! at one of
//!
//! - an `https` link that the system gives to the app alone: the best, where there is one;
//! - `http://127.0.0.1/callback` or `http://[::1]/callback`: on any port, which it listens on for the moment;
//! - `com.example.app:/callback`: a scheme of a domain that you have. Another app may claim it, too, and gets a code then,
//!   but has no verifier to it (PKCE, which every client has to use).
//!
//! It asks for `offline_access`, without which its refresh tokens live a day and end with the sign-out in the browser, and
//! keeps them in the system's key store. With a key there as well,
//! [`require_dpop`](crate::Client::require_dpop) makes tokens worthless to whoever copies them.
//!
//! ```
//! # use tollgate::{Client, Tenant};
//! # let acme = Tenant::parse("acme")?;
//! let native = Client::new("app", acme)?
//!     .redirect_uri("http://127.0.0.1/callback")? // any port
//!     .redirect_uri("com.example.app:/callback")?
//!     .scopes("openid profile offline_access")?
//!     .require_dpop();
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! **A page that calls APIs itself** runs beside every script that ever gets into it. So it keeps tokens in memory, not in
//! `localStorage`; after a reload it goes to `/authorize` again, as a whole page, for a frame gets no cookies. With
//! [single sign-on](crate::Client::single_sign_on) and `prompt=none` its user sees nothing of that. It asks for no
//! `offline_access`, so its refresh tokens end with the sign-out. It can have a DPoP key that no script
//! can take away: made with `extractable: false` by WebCrypto, kept in IndexedDB. A script that gets in can use it while
//! the page is open, and has nothing afterwards. Its origin is named, or its calls to `/token` are refused; then it may
//! read `DPoP-Nonce` and `WWW-Authenticate` of the answers, too (at an API of yours the CORS layer must expose them). All
//! answers carry `cross-origin-opener-policy: same-origin`, so a login in a popup loses its opener: use redirects.
//!
//! ```
//! # use tollgate::{Client, Tenant};
//! # let acme = Tenant::parse("acme")?;
//! let page = Client::new("page", acme)?
//!     .redirect_uri("https://app.example/callback")?
//!     .origin("https://app.example")?
//!     .scopes("openid profile")?
//!     .single_sign_on()
//!     .after_logout("https://app.example/")?
//!     .require_dpop();
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! **A page with a server of its own** on the issuer's host needs no token in the browser at all. The login begins a
//! session in an `HttpOnly` cookie; a [`SessionLayer`](crate::SessionLayer) with the same
//! [`Sessions`](crate::AuthService::sessions) lets its calls through, and no script can read it. Where you have the
//! choice, take this; `/account` of the bundled server does.

mod claims;
mod family;
mod family_list;
mod grant;
mod keys;
#[cfg(test)]
mod keys_on_many_nodes;
mod local_keys;
mod refresh_token;
mod revocation;
mod ring;
mod seal;
mod service;
mod settings;

pub use self::settings::Tokens;
pub(crate) use self::{
    grant::{Grant, OFFLINE_ACCESS},
    service::{Issued, Presented, RefreshError, TokenRequest, TokenService, ValidAccess},
};
