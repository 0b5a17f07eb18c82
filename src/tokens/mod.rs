//! Tokens of a login service (OAuth 2.0, OpenID Connect). [`Tokens`] holds their settings.
//!
//! ```
//! use http::Request;
//! use http_body_util::BodyExt;
//! use serde_json::{Value, json};
//! use tollgate::{
//!     AccessToken, AuthService, BearerLayer, Client, ClientIp, ClientTable, StoredUsers, Tenant, Tokens,
//!     body::Body, pkce::{CodeChallenge, CodeVerifier}, store::{AnyStore, Memory},
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
//! let auth = AuthService::builder("https://auth.example", store)
//!     .clients(ClientTable::new([app])?)
//!     .users(users)
//!     .client_ip(ClientIp::peer())
//!     .tokens(Tokens::new())
//!     .build()?;
//! auth.prepare().await?; // creates the keys, or fails now instead of at the first request
//!
//! // the app sends its user to /authorize and gets a code; the example `server` prints the same in curl commands
//! let verifier = CodeVerifier::generate();
//! # let members = json!({
//! #     "client_id": "app", "redirect_uri": "com.example.app:/callback", "response_type": "code",
//! #     "scope": "openid profile", "code_challenge": CodeChallenge::from_verifier(&verifier).as_str(),
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
//! // it exchanges the code, with the verifier that only it has
//! let exchange = async |form: String| {
//!     let request = Request::post("/token").header("content-type", "application/x-www-form-urlencoded");
//!     let response = auth.clone().oneshot(request.body(Body::from(form))?).await?;
//!     let body = response.into_body().collect().await?.to_bytes();
//!     Ok::<Value, Box<dyn std::error::Error>>(serde_json::from_slice(&body)?)
//! };
//! let code = format!("grant_type=authorization_code&client_id=app&code={code}&code_verifier={}", verifier.expose());
//! let first = exchange(code).await?;
//! assert_eq!((&first["token_type"], &first["expires_in"]), (&json!("Bearer"), &json!(600)));
//! assert!(first["id_token"].is_string());
//!
//! // an API in this process
//! let api = BearerLayer::new(auth.verifier()).layer(tower::service_fn(async |request: Request<Body>| {
//!     let subject = AccessToken::from_extensions(request.extensions()).map(|token| token.subject().to_owned());
//!     Ok::<_, std::convert::Infallible>(http::Response::new(subject.unwrap_or_default()))
//! }));
//! let bearer = format!("Bearer {}", first["access_token"].as_str().unwrap_or_default());
//! let response = api.oneshot(Request::get("/").header("authorization", bearer).body(Body::empty())?).await?;
//! assert_eq!(response.body(), "u-1");
//!
//! // ten minutes later
//! let refresh = first["refresh_token"].as_str().unwrap_or_default();
//! let next = exchange(format!("grant_type=refresh_token&client_id=app&refresh_token={refresh}")).await?;
//! assert_ne!(next["refresh_token"], first["refresh_token"]);
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Lifetimes
//!
//! | | default | setting |
//! |---|---|---|
//! | code | one minute; works once | |
//! | access token, id_token | 10 minutes | [`access_lifetime`](Tokens::access_lifetime) |
//! | refresh tokens with `offline_access` | 30 days from the login | [`refresh_lifetime`](Tokens::refresh_lifetime) |
//! | refresh tokens without it | 24 hours from the code, unless the user signs out earlier | [`session_refresh_lifetime`](Tokens::session_refresh_lifetime) |
//! | signing key | signs for 90 days | [`rotate_every`](Tokens::rotate_every), [`SigningKeys::rotate_keys`](crate::auth::SigningKeys::rotate_keys) |
//!
//! Using refresh tokens does not extend their lifetime. When it ends, the user has to log in again. Access tokens never
//! outlive it. Access tokens are short-lived because remote services do not learn about revocations. Verifiers that share
//! the store refuse a revoked token at once.
//!
//! # Refresh tokens
//!
//! Each refresh token works once and returns the next one. All tokens issued from one code form a *family*. If a used
//! token is presented again, two parties have it, so the whole family is revoked, access tokens included, and the event
//! log records `authn_token_reuse`. For ten seconds after its use ([`refresh_grace`](Tokens::refresh_grace)), a token returns
//! the same successor again, so that a lost answer or two tabs end nothing. The store keeps only digests, so a copy of it
//! yields no token.
//!
//! A refresh also returns a new id_token, with the time of the login and the current claims, unless the client
//! [does without](crate::Client::without_id_token_on_refresh).
//!
//! A user has at most 100 families at a client, and at most 20 of them in one session. Beyond that, a new family
//! revokes the oldest one of the session if the session has 20, or else the oldest one of the user.
//!
//! A client can ask for less `scope` than was granted, but never for more. The account is read by its id at each exchange, so
//! a new name or address changes nothing. A disabled account gets no tokens.
//!
//! # Claims
//!
//! [`Users::claims`](crate::Users::claims) adds claims about the user, such as roles, to tokens and `/userinfo`. A client
//! asks for them by scope, or by name in the parameter `claims`. APIs read them with
//! [`AccessToken::claim`](crate::AccessToken::claim). They do not change during the lifetime of a token.
//!
//! # Resources
//!
//! A client that uses several APIs names them in the parameter `resource` (RFC 8707) of its authorization request, among those
//! that [`Client::resource`](crate::Client::resource) allows. They become the audience of its access tokens. At `/token`, it
//! can name some of them for one access token, but never others. Without `resource`, tokens are for the
//! [`audience`](crate::Client::audience). `/userinfo` accepts tokens for resources only if the issuer is one of them.
//!
//! # Revocation
//!
//! - At `/revoke`, a client revokes a token and its whole family.
//! - At `/logout`, the session ends with everything issued from it, except families with `offline_access`.
//!   [`AuthService::end_session`](crate::AuthService::end_session) does the same.
//! - [`AuthService::end_user`](crate::AuthService::end_user) ends every session and every token of a user.
//! - Redeeming a code a second time revokes the tokens from the first exchange.
//! - When a user changes the password or a contact, proofs made with the old one stop counting. A family without a
//!   valid proof is revoked the next time its account is read: at `/token` or `/userinfo`. With
//!   [`recheck_policy`](crate::Client::recheck_policy), `/token` also revokes a family whose proofs no longer meet the
//!   policies.
//!
//! # Keys
//!
//! The first use, or [`AuthService::prepare`](crate::AuthService::prepare), creates the keys in the store, and all
//! processes that share the store share them. A new key is published for an hour before it signs, and an old one for a day
//! after, so that services with a copy of `/jwks` never see a token with an unknown key. After that, only its public half
//! is kept, for `id_token_hint`, as long as a session can live. With a [`seal`](Tokens::seal), a
//! copy of the store can't sign: keep its secret outside of the store. If somebody gets hold of a key, call
//! [`SigningKeys::withdraw_keys`](crate::auth::SigningKeys::withdraw_keys).
//!
//! # Native and browser apps
//!
//! These clients have no secret, because an app on a phone or in a page can't keep one. They are protected by their
//! registered redirect URIs, by PKCE, and optionally by DPoP.
//!
//! **An app on a phone or a desktop** (RFC 8252) opens the system's browser, never an embedded view. Its redirect URI is
//! one of these:
//!
//! - an `https` link that the system reserves for the app. Prefer it if you can;
//! - `http://127.0.0.1/callback` or `http://[::1]/callback`, on any port, where the app listens during the login;
//! - `com.example.app:/callback`, a scheme named after a domain that you own. Another app may claim it too and get the
//!   code, but can't redeem it, because every client must use PKCE.
//!
//! Request `offline_access`. Without it, refresh tokens live for a day and end when the user signs out in the browser.
//! Keep refresh tokens in the system's key store. If the app also keeps a DPoP key there,
//! [`require_dpop`](crate::Client::require_dpop) makes stolen tokens useless.
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
//! **A page that calls APIs itself** shares its process with every script that gets into it. Keep tokens in memory, not in
//! `localStorage`. After a reload, navigate the whole page to `/authorize`, because a frame gets no cookies. With
//! [single sign-on](crate::Client::single_sign_on) and `prompt=none`, the user does not notice. Do not request
//! `offline_access`, so that the refresh tokens end when the user signs out.
//!
//! A page can also have a DPoP key that no script can export: create it with WebCrypto and `extractable: false`, and keep it
//! in IndexedDB. An injected script can use the key while the page is open, but can't keep it. Register the origin of the
//! page, or its calls to `/token` are refused. The page may then read `DPoP-Nonce` and `WWW-Authenticate` in the
//! responses; the CORS layer of your own API must expose them, too. All responses carry
//! `cross-origin-opener-policy: same-origin`, so a login in a popup loses its opener: use redirects.
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
//! **A page with its own server** on the issuer's host needs no token in the browser. The login begins a session in an
//! `HttpOnly` cookie that no script can read, and a [`SessionLayer`](crate::SessionLayer) lets its calls through. If you
//! have the choice, prefer this. `/account` of the bundled server shows it.

//!
//! # Confidential clients
//!
//! An app that runs on a server can authenticate at `/token`, `/par`, `/revoke` and `/introspect`, so that a stolen code or refresh
//! token alone is useless. PKCE stays required. [`Client::secret`](crate::Client::secret) and
//! [`Client::assertion_keys`](crate::Client::assertion_keys) choose the method:
//!
//! | method | the client sends |
//! |---|---|
//! | `client_secret_basic` | `authorization: Basic …`, with the id and the secret form-encoded (RFC 6749 §2.3.1) |
//! | `client_secret_post` | `client_id` and `client_secret` in the body |
//! | `private_key_jwt` | an assertion in the body, as a [machine client](#machine-clients) does |
//!
//! [`ClientSecretDigest::generate`](crate::client::ClientSecretDigest::generate) makes secrets of 256 bits, and only their
//! digests are kept. A client has two during a rotation. Wrong credentials count as failures of this client from this address:
//! after 60 in a minute, further wrong ones get a 429. Right ones are always accepted: there is no lockout. At
//! `/introspect`, such a client learns only about its own tokens.
//!
//! ```
//! use tollgate::{Client, Tenant, client::ClientSecretDigest};
//!
//! let (secret, stored) = ClientSecretDigest::generate();
//! println!("give this to the shop: {}", secret.expose());
//! let shop = Client::new("shop", Tenant::parse("acme")?)?
//!     .redirect_uri("https://shop.example/callback")?
//!     .scopes("openid email")?
//!     .secret(stored)?;
//! # assert!(shop.is_confidential());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Machine clients
//!
//! A service that calls another service for itself, without a user, is a [machine client](crate::Client::machine). It
//! has a private key, and the login service has the public one. For each token it signs an assertion
//! (`private_key_jwt`, RFC 7523): `iss` and `sub` are its id, `aud` is the issuer or the URL of `/token` or `/par`, `exp` is at
//! most five minutes ahead, and each `jti` works once. It gets an access token with its own id as `sub`, its tenant and
//! its scopes, and neither a refresh token nor an id_token.
//!
//! ```
//! use http::Request;
//! use http_body_util::BodyExt;
//! use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
//! use serde_json::{Value, json};
//! use tollgate::{
//!     AccessToken, AuthService, BearerLayer, Client, ClientIp, ClientTable, Secret, StoredUsers, Tenant, Tokens,
//!     body::Body, clock::{Clock, SystemClock}, store::{AnyStore, Memory},
//! };
//! use tower::{Layer, ServiceExt};
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(async {
//! # use aws_lc_rs::{rand::SystemRandom, signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair}};
//! # let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())?;
//! // the private key of the service `billing`, and the public one that it registers
//! let private = EncodingKey::from_ec_der(pkcs8.as_ref());
//! let public = json!({ "keys": [Jwk::from_encoding_key(&private, Algorithm::ES256)?] });
//! let acme = Tenant::parse("acme")?;
//! let billing = Client::machine("billing", acme, &public.to_string())?.scopes("invoices:write")?;
//!
//! let store = AnyStore::from(Memory::new());
//! let auth = AuthService::builder("https://auth.example", store.clone())
//!     .clients(ClientTable::new([billing])?)
//!     .users(StoredUsers::new(store))
//!     .client_ip(ClientIp::peer())
//!     .tokens(Tokens::new().audience("https://invoices.example"))
//!     .build()?;
//!
//! // `billing` gets a token
//! let clock = SystemClock::new();
//! let assertion = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &json!({
//!     "iss": "billing",
//!     "sub": "billing",
//!     "aud": "https://auth.example/token",
//!     "exp": clock.unix(clock.now()).as_secs() + 60,
//!     "jti": Secret::generate().expose(),
//! }), &private)?;
//! let form = format!(
//!     "grant_type=client_credentials&client_assertion={assertion}\
//!      &client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer"
//! );
//! let request = Request::post("/token").header("content-type", "application/x-www-form-urlencoded");
//! let response = auth.clone().oneshot(request.body(Body::from(form))?).await?;
//! let tokens: Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
//!
//! // the service `invoices` accepts it, and knows that no user is involved
//! let api = tower::service_fn(async |request: Request<Body>| {
//!     let caller = AccessToken::from_extensions(request.extensions()).filter(|token| token.is_machine());
//!     Ok::<_, std::convert::Infallible>(http::Response::new(caller.map(|it| it.client_id().to_owned()).unwrap_or_default()))
//! });
//! let invoices = BearerLayer::new(auth.verifier()).require_scope("invoices:write")?.layer(api);
//! let bearer = format!("Bearer {}", tokens["access_token"].as_str().unwrap_or_default());
//! let response = invoices.oneshot(Request::post("/").header("authorization", bearer).body(Body::empty())?).await?;
//! assert_eq!(response.body(), "billing");
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! A client that is removed gets no further tokens. Its existing ones expire within ten minutes, or end at once if it
//! revokes them first. Never give a user the id of a machine client, or check
//! [`is_machine`](crate::AccessToken::is_machine) where an API decides by `sub`.

mod issued_claims;
mod ending;
mod family;
mod family_list;
mod family_row;
mod grant;
mod keys;
#[cfg(test)]
mod keys_on_many_nodes;
mod local_keys;
mod signing;
mod refresh_token;
mod revocation;
mod ring;
mod service;
mod settings;

pub use self::settings::Tokens;
pub(crate) use self::{
    grant::{Grant, OFFLINE_ACCESS},
    service::{Issued, TokenRequest, TokenService, ValidAccess},
};
