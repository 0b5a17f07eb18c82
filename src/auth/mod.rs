//! The login service: [`AuthService`] signs users in, to the site that mounts it and to client applications.
//!
//! It serves the endpoints of a login by password, one-time codes, passkeys, authenticator apps and other identity
//! providers, begins sessions, and issues authorization codes (OAuth 2.0 with PKCE, for public and confidential
//! clients). With `AuthServiceBuilder::tokens` it is an OpenID Connect provider.
//!
//! ```
//! use axum::{Router, routing::get};
//! use http::Request;
//! use tollgate::{
//!     AuthService, ClientIp, Identifier, NewUser, Password, Passwords, Session, StoredUsers, Tenant, UserId,
//!     store::{AnyStore, Memory},
//! };
//! use tower::ServiceExt;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let (acme, store) = (Tenant::parse("acme")?, AnyStore::from(Memory::new()));
//! let users = StoredUsers::new(store.clone());
//! let hash = Passwords::new().hash(Password::new("correct horse battery staple")).await?;
//! users.create(&acme, NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada")?).password(hash)).await?;
//!
//! let auth = AuthService::builder("https://site.example", store)
//!     .users(users)
//!     .first_party(acme)
//!     .client_ip(ClientIp::peer())
//!     .build()?;
//! let app: Router = Router::new()
//!     .route("/account", get(async |session: Session| session.user().to_string()))
//!     .layer(auth.session_layer().required())
//!     .fallback_service(auth);
//!
//! // a person who is not signed in is sent to the sign-in page, and back afterwards
//! let request = Request::get("/account").header("accept", "text/html").body(axum::body::Body::empty())?;
//! let response = app.oneshot(request).await?;
//! assert_eq!(response.headers()["location"], "/sign-in?return_to=%2Faccount");
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! `examples/login_axum.rs` is a complete program. `examples/own_pages.rs` has its own login page and shows the JSON calls.
//!
//! # Guarantees
//!
//! - **No session and no code without all steps.** A login needs as many *different* kinds of proof as the policy requires.
//!   Each is proved in this browser, in this login, or in a live session. One login yields one session update or one code,
//!   no matter how many requests race for it.
//! - **Responses do not reveal accounts.** Unknown names get the same responses, counters, limits and work as known ones:
//!   see [below](#equal-responses).
//! - **No session fixation.** Each login and each session has a random secret that the server generates and stores as a
//!   digest.
//! - **Guesses are counted before they are checked**: by what was submitted, by account and by address.
//! - **Attackers cannot lock a user out.** Browsers in which a user has completed a login have
//!   [separate counts](#trusted-browsers).
//! - **The store fails closed**: requests get a 503.
//!
//! # Signing in to the site itself
//!
//! [`AuthServiceBuilder::first_party`] serves these paths:
//!
//! | | |
//! |---|---|
//! | `GET /sign-in?return_to=/path` | redirects to the login page, or to `return_to` if the user is signed in. `max_age` limits the age of the proofs, and `steps` sets the minimum number of steps; a signed-in user proves only what is missing |
//! | `GET /sign-in/finish` | uses up the completed login, sets the session cookie, redirects to `return_to` |
//! | `GET /sign-out?return_to=/path` | asks whether to sign out, with a form that posts |
//! | `POST /sign-out` | for pages of this site: ends the session and its tokens, redirects to the form field `return_to` |
//!
//! `return_to` is a path of this site other than those of the sign-in and the sign-out. It defaults to `/`.
//! [`AuthService::session_layer`] protects routes. No code or token is issued: the built-in client behind such a login
//! is refused at `/authorize`, `/par` and `/token`.
//!
//! # Sign-up and forgotten passwords
//!
//! These pages are the login page in another mode, and take the same query. Without a query, they are for the site
//! itself.
//!
//! | | |
//! |---|---|
//! | `GET /sign-up` | the page on which users create an account, if [`AuthServiceBuilder::sign_up`] is set; `prompt=create` leads there |
//! | `POST /sign-up/code`, `POST /sign-up/verify` | sends a code of six digits to an `email`, and checks it (`otp`) |
//! | `POST /sign-up/invitation` | takes the `link` of an [invitation](AuthService::invite) in place of a code; it can be taken again until its account is created |
//! | `POST /sign-up` | creates the account with a `password` and perhaps a `name`; the login goes on, with the address and the password as proofs |
//! | `GET /reset-password` | the page for a forgotten password, if the accounts [offer](crate::Users::offers) to set a new one |
//! | `POST /reset-password/start` | starts a login for a new password, with an `identifier`; its steps use the calls of any login, but never the method `password` |
//! | `POST /reset-password/link` | takes the `link` that the [application](AuthService::create_reset_link) has created, in place of steps, in a login that began without a name |
//! | `POST /reset-password` | sets the `password` |
//!
//! - **An account exists only after its address is proved.** The code works in one browser, for ten minutes. The
//!   responses are the same for an address that already has an account, whose owner is informed by e-mail.
//! - **A mailbox alone never opens an account whose logins need two steps.** A new password needs as many classes of
//!   factors, without the password, as the strictest login of the account has steps, and also the second factor if one
//!   is enrolled. The response to the first proof shows how many. If the account has too few,
//!   [`AuthService::create_reset_link`] helps.
//! - **A reset removes no factor**, and ends everything that the user has begun: sessions, tokens, trusted browsers. Each
//!   verified contact gets a notice. The user then signs in again.
//! - **Links** are built from the issuer, or from the [origin of the tenant](AuthServiceBuilder::tenant_origin).
//!   Opening one changes nothing until the user presses the button on its page. The secret follows the `#`, so opening
//!   the page sends it to no server and no log.
//!
//! # The account page
//!
//! A site also serves a page on which signed-in users manage how they sign in, and the calls behind it, which only
//! pages of the site may make.
//!
//! | | |
//! |---|---|
//! | `GET /account/security` | the page; signed-out users are sent to the sign-in |
//! | `GET /account/credentials` | lists passkeys, authenticator app, recovery codes, linked providers, contacts and sessions |
//! | `POST /account/password` | sets a `new_password`, which ends all other sessions |
//! | `POST /account/name` | sets the full `name` |
//! | `POST /account/contacts/begin`, `POST /account/contacts` | sends a code to a new `email` or `phone_number`, and checks it (`code`); with a `contact_id`, the new contact replaces that one |
//! | `POST /account/delete` | deletes the account, if the user has `confirmed` it |
//! | `POST /account/passkeys/options`, `POST /account/passkeys` | adds a passkey; `/rename` and `/delete` change one |
//! | `POST /account/totp/begin`, `POST /account/totp` | sets up an authenticator app; `/account/totp/delete` removes it |
//! | `POST /account/recovery-codes` | returns ten new recovery codes, which replace the old ones |
//! | `POST /account/links/begin` | returns the `redirect_url` of a `provider`, at which the user signs in to link that account; the user comes back to the account page |
//! | `POST /account/links/delete` | unlinks an account at another identity provider, so that a hook can't link it again |
//! | `POST /account/sessions/end`, `POST /account/sessions/end-others` | ends one session of the user, or all others |
//! | `POST /account/sign-out-everywhere` | does what [`AuthService::end_user`] does |
//!
//! - **Your [`Users`](crate::Users) decide what can be changed.** A change that they don't
//!   [offer](crate::Users::offers) is not shown on the page, and its call gets a 404. `/.well-known/change-password`
//!   and `/.well-known/passkey-endpoints` lead to the page.
//! - **New passwords meet [`PasswordRules`](crate::password::PasswordRules)**, which
//!   [`AuthServiceBuilder::password_rules`] sets.
//! - **A new contact counts only after its code.** Codes to contacts of the same kind don't vouch for it: the fresh
//!   proofs must suffice without them. All previous contacts get a notice, as after a change of the password.
//! - **A stolen password is not enough, and neither is an old session.** Adding, replacing or deleting a credential
//!   needs proofs from the last five minutes: as many different factors as the strictest login of the tenant that the
//!   account can complete, and two if the account can complete a login of two steps. One of them must be a fresh
//!   authentication, not just a [sign-in at a provider](crate::sso#fresh-sign-ins) that still remembered the user.
//!   Calls without these proofs get 403 `fresh_login_required`. Its `login_url` leads to a sign-in that asks the
//!   signed-in user for what is missing, and back to the page.
//! - **A credential is as strong as its enrolment.** It does not count in logins of more steps than were proved for it.
//!   Recovery codes need two factors; if one is missing, the call gets 403 `second_factor_required`.
//! - **The first second factor** of an account, a passkey or an app, is enrolled with a fresh proof of the only factor
//!   that the account has. It counts in logins of two steps, and from then on changes need both factors. Changes also
//!   need a passkey or an app that was enrolled with one proof, because even a login of one step asks for it. A policy
//!   can [refuse such enrolments](crate::policy::Policy::without_self_enrolment).
//! - **The last way to sign in stays.** A user can't delete a credential without which they could no longer sign in to
//!   the site: 409 `last_sign_in_method`. Other ways to sign in are a password that the account shows or that the
//!   session began with, and contacts to which codes can be sent.
//! - Deleting or replacing a credential ends what relied on it alone, in all sessions.
//! - Each change is an event, and the user gets a [`Notice`](crate::delivery::Notice) by message at a verified contact: at most 10
//!   an hour to a phone number and 50 a day to a mailbox.
//!
//! # Signing in to client applications
//!
//! | | |
//! |---|---|
//! | `GET /authorize` | issues a code for a completed login or a signed-in user; redirects other users to the login page, or returns a 401 to scripts and to requests whose `Accept` header prefers a type other than HTML |
//! | `POST /authorize` | takes the same request as a form; redirects (303) to the `GET` |
//! | `POST /consent` | the decision of the user about a [third-party client](#consent), from the page that `/authorize` shows; then continues like `/authorize` |
//! | `GET /authentication/start` | the login page; with `Accept: application/json` its data, for [a page of your own](AuthServiceBuilder::pages) |
//! | `POST /authentication/start` | starts a login, with or without an `identifier`; returns `session_id`, `available_methods`, `required_steps` (a user with a [second factor](#steps) may need one more), `next_step` |
//! | `POST /authentication/authenticate` | proves a step by `method`: with `username` and `password`, the `response` of a passkey and the `challenge` of its options, or the `code` of an authenticator app (`totp`) or a `recovery_code`; or sends a code to `phone_number`, `email` or a `contact_id`, or returns the `redirect_url` of a `provider` |
//! | `POST /authentication/verify-otp` | proves a step with the code that was sent (`otp`) |
//! | `POST /authentication/enrol` | for users who have only one factor, after the first of two steps: sets up a `method`, `totp` or `passkey`, which proves the second step; first returns a new key or options, then takes the `code` of the app or the `response` of the passkey |
//! | `GET /authentication/status` | returns the state of the login |
//! | `GET /authentication/choices` | after a proved step, or in a login that continues the session of this browser: returns what the user can use next, with masked contacts and their `contact_id`s; and in `enrol`, what a user who has only one factor can set up |
//! | `GET /authentication/sso/<provider>/callback` | the redirect URI at [another identity provider](crate::sso); redirects (303) to the login page with the fragment `#sso=ok`, `denied`, `failed` (with `&reason=…`), `stale`, `expired` or `unavailable` |
//! | `POST /authentication/complete` | confirms that all steps are done; the browser goes on to `/authorize` |
//! | `POST /par` | stores an authorization request in advance (RFC 9126) |
//! | `GET /openapi.json` | describes all endpoints ([`AuthService::openapi`]) |
//!
//! Bodies are JSON, except at `/authorize`, `/consent` and `/par`, which take forms. Each `POST` of a login repeats the
//! six client parameters of its start, and all but `start` carry the `session_id`. `status` and `choices` take it in
//! the query. `HEAD` requests and prefetching never use up a login.
//!
//! These parameters of a request are supported:
//!
//! | | |
//! |---|---|
//! | `prompt` | `none`: no page is shown; if one is needed, the response is `login_required`, `interaction_required` or `consent_required`; `login`: earlier proofs do not count; `consent`, `select_account`: the user must confirm; `create`: the sign-up, if the service offers it |
//! | `max_age` | the maximum age of proofs from a session; 0 means `prompt=login` |
//! | `acr_values` | levels, best first; the first one that can be reached is required |
//! | `claims` | claims by name; an essential `acr` must be reached, or the response is `unmet_authentication_requirements`; `sub` with values names the accepted users |
//! | `id_token_hint` | the expected user; others get `login_required` |
//! | `login_hint` | the name that the login page offers |
//! | `nonce`, `dpop_jkt` | for the tokens |
//!
//! `start` takes `acr_values`, `prompt`, `max_age` and `claims` as well, and for a sign-in to the site itself `steps`, the minimum
//! number of steps. Pass them on from your own login page. With `prompt=login` and `max_age`,
//! [other identity providers](crate::sso#fresh-sign-ins) are asked to sign their users in anew. With
//! `continue_session: false`, the login takes over no steps from the browser's session. With `prompt=consent`, the page
//! names the client and the scopes and claims that the client requests. It also does so for clients on a loopback
//! address or with a private scheme.
//!
//! # Consent
//!
//! Your own clients get what they request. A [third-party client](crate::Client::third_party) gets a code only for what its
//! user has allowed: `/authorize` then shows a page that names the client and, in words, the scopes, claims and resources.
//! Without `resource`, it names the [`audience`](crate::Client::audience), unless that is the issuer.
//!
//! - The decision is bound to this exact request, the user, and the login or session of the browser. Only the page itself can
//!   send it, within ten minutes, or five after a fresh login. Users who allow it later sign in again, and the login page says
//!   why. If the user refuses, the client gets `access_denied`, even then.
//! - It is stored for this user and client, and covers requests for the same access or less. The page is shown again
//!   for other requests, and with `prompt=consent`. With `prompt=none`, the response is `consent_required`. Decisions
//!   about a client are not combined; the last eight count.
//! - The account page lists the decisions. Revoking one revokes the tokens of the client for this user, and codes that
//!   have not been exchanged yet. The event log shows decisions and revocations.
//!   [`AuthService::consents`](crate::AuthService::consents) and
//!   [`withdraw_consent`](crate::AuthService::withdraw_consent) do the same for the application.
//! - The decisions of a user cover at most 32 clients and take at most 48 KiB. Beyond that, a new one replaces the
//!   oldest, and the tokens of that client are revoked.
//!
//! # Sessions
//!
//! A completed login begins a signed-in session, or updates the one of the same user in this browser. Its id never changes;
//! [`session`](crate::session) describes it. The session keeps the proofs of the login:
//!
//! - A client with [`single_sign_on`](crate::Client::single_sign_on) gets a code without a login if the session meets
//!   the client's requirements. On a loopback address or with a private scheme, the user confirms first.
//! - If a step is missing, a login started without an `identifier` continues from the session and adds that step.
//! - A proof stops counting when its password, contact or credential changes. The session ends if the remaining proofs
//!   do not meet the policy of its tenant.
//! - [`remember_me`](AuthServiceBuilder::remember_me) lets users stay signed in after they close the browser. `start`
//!   takes `remember: true` for users who want this.
//! - [`Session::claim`](crate::Session::claim) reads the claims that your [`Users`](crate::Users) return, cached for a
//!   minute.
//!
//! [`AuthService::end_session`] ends one session with everything issued from it. [`AuthService::end_user`] ends everything
//! that a user has begun, including logins in progress, and [`AuthService::forget_user`] deletes the user's credentials as
//! well. Call [`AuthService::credential_changed`] after changing an account in your own database, or
//! [`AuthService::password_changed`] after its user has changed the password.
//!
//! # Tokens
//!
//! `AuthServiceBuilder::tokens` adds these endpoints:
//!
//! | | |
//! |---|---|
//! | `POST /token` | exchanges a code and its `code_verifier`, or a refresh token (RFC 6749, 7636, 9068, 9449) |
//! | `GET`, `POST /userinfo` | returns the claims of the user: scopes `profile`, `email`, `phone`, and your own |
//! | `GET /jwks` | returns the public keys; cacheable for five minutes |
//! | `POST /revoke` | revokes every token issued from one code (RFC 7009) |
//! | `POST /introspect` | describes a token (RFC 7662) to a machine client of its tenant, to the confidential client that it was issued to, or to an `introspector` |
//! | `GET`, `POST /logout` | ends the session and its tokens (OpenID Connect RP-Initiated Logout) |
//! | `GET /.well-known/openid-configuration` | the metadata for clients |
//! | `GET /.well-known/oauth-authorization-server` | the same, in front of the issuer's path (RFC 8414) |
//!
//! Bodies are forms. [Confidential clients](crate::tokens#confidential-clients) authenticate here and at `/par`. A public
//! client that sends a secret gets `invalid_client`. Reusing a code with the right
//! verifier, more than two seconds after its exchange, revokes its tokens. With an `id_token_hint` of the session,
//! `/logout` ends the session at once. Without one, it asks the user. Grants with the scope `offline_access` outlive
//! the session. See `tokens` for lifetimes and `bearer` for APIs.
//!
//! # Mounting
//!
//! The service is a tower service that never fails. Requests may come with the path of the issuer, or without it if a router
//! has stripped it.
//!
//! ```
//! # fn mount(auth: tollgate::AuthService) -> axum::Router {
//! use axum::Router;
//!
//! // the issuer is https://example.com/auth; its metadata is at the root
//! let well_known = "/.well-known/oauth-authorization-server/auth";
//! let app: Router = Router::new().nest_service("/auth", auth.clone()).route_service(well_known, auth.clone());
//!
//! // the issuer is https://auth.example.com, and the service answers all requests without another route
//! let app: Router = Router::new().fallback_service(auth);
//! # app
//! # }
//! ```
//!
//! - **hyper**: `TowerToHyperService::new(auth)`, with [`PeerAddr`](crate::PeerAddr) in the extensions of each request. See
//!   `examples/login_hyper.rs`.
//! - **tonic**: one router with `Routes::new(grpc).into_axum_router()`. See `examples/login_tonic.rs`.
//! - **Bodies** that a call does not use are read up to the same limits. If one is longer or slower, or its client waits for
//!   `100 Continue`, the response announces the end of the HTTP/1 connection with `Connection: close`.
//! - **Layers**: add tracing and compression as you like. Don't add layers for body limits, rate limits or CORS, because the
//!   service handles these itself.
//!
//! It needs a tokio runtime with time enabled.
//!
//! # Cookies
//!
//! The cookie of a login in progress is named `__Host-auth_session_` and eight characters of its id, so tabs do not
//! affect each other. A browser has at most four; the oldest is dropped. That of a session is named `__Host-session_`
//! and eight characters of its tenant's digest, and that of a [trusted browser](#trusted-browsers)
//! `__Host-auth_device`. All are `Secure`, `HttpOnly`, `Path=/` and `SameSite=Lax`.
//! [`insecure_loopback`](AuthServiceBuilder::insecure_loopback) allows plain HTTP on a loopback address.
//!
//! # Scripts of other origins
//!
//! Scripts may call from the issuer's origin and from the origins that a client registers
//! ([`Client::origin`](crate::Client::origin)), with `credentials: "include"`. Others get a 403. Because of
//! `SameSite=Lax`, the page must be on the same *site* (`app.example.com` for `auth.example.com`). Programs that are not
//! browsers send neither `Origin` nor `Sec-Fetch-Site` and may call.
//!
//! # Addresses and budgets
//!
//! [`client_ip`](AuthServiceBuilder::client_ip) finds the address of a client. If it is unknown, per-address limits are
//! off, and the event `client_address_unknown` shows it. Every request is charged to its tenant's budget: 600 a minute, or a
//! [`limiter`](AuthServiceBuilder::limiter) shared with your APIs. Client ids are public, so anyone can spend that
//! budget: [`requests_per_address`](AbuseLimits::requests_per_address) limits one address, for example to a tenth, and
//! [`Quota::reserve`](crate::Quota::reserve) keeps a part of the budget for requests with a key, a token or a session.
//! Requests of unknown clients are charged to their address.
//! [`messages_per_address`](AbuseLimits::messages_per_address) limits one-time codes, which can cost money.
//!
//! # Steps
//!
//! [`policies`](AuthServiceBuilder::policies) define the steps of a login. The default is one step by any method, plus
//! the second factor if the user has enrolled one. Steps must be of different kinds (`sms` and `whatsapp` both prove
//! the phone) and come in any order. `password` is enabled unless
//! [`without_passwords`](AuthServiceBuilder::without_passwords) is set; `sms`, `email` and `whatsapp` need a sender.
//! Codes go only to a verified contact that equals the given address.
//!
//! With [`totp`](AuthServiceBuilder::totp), users can enrol an authenticator app (`totp`, RFC 6238) and ten recovery codes
//! (`recovery_code`). Both are of the same kind and are never the first step, so they appear only among the choices
//! after a step. Each code is accepted once. A credential does not count in a login of more steps than were freshly
//! proved when it was enrolled, except for the first second factor of an account, which counts in logins of two.
//!
//! A login of two steps lets users who have only one factor set up the second one, unless its policy is
//! [without self-enrolment](crate::policy::Policy::without_self_enrolment) or names methods that were not proved.
//! If the account has a passkey or an app that is too weak for the login, `choices` has `weak_factor`: the user must
//! first prove it on the account page.
//!
//! **An enrolled second factor is asked for.** A user who has an authenticator app or a passkey needs a code of the app, a recovery
//! code or a passkey at each login. A login that begins with a passkey needs nothing more. `start` answers the same for
//! everybody, so after the first step, `remaining_steps` may be one higher than `required_steps` promised. `choices`
//! lists what is left. A factor that does not count for the steps of the policies is not asked for. Trusted browsers
//! and other identity providers make no difference;
//! [`Policy::without_enrolled_second_factor`](crate::policy::Policy::without_enrolled_second_factor) switches this off.
//! A user who has lost the factor uses a recovery code.
//!
//! [`build`](AuthServiceBuilder::build) refuses policies that no login could meet, and names them. See
//! [`policy`](crate::policy) and [`delivery`](crate::delivery).
//!
//! # The hash key
//!
//! One-time codes, and names and addresses in counters and logs, are hashed under a key. By default, the service keeps
//! the key in the store. Set the same [`key`](AuthServiceBuilder::key) on all nodes, so that a copy of the store is not
//! enough to guess these values. Changing the key invalidates open codes, throttle counts, proofs and device cookies.
//!
//! # Equal responses
//!
//! A response depends only on submitted values. Three limits are visible: the wait after failures (by `username`, or by name
//! and address), the number of codes for that pair, and the budget of the address. Two limits are silent and only appear in
//! the event log: too many failures of an account, and too many messages to one receiver. Responses then stay the same, but
//! nothing is accepted or sent. A code that is not sent delays the messages queued behind it as much as one that is.
//!
//! One thing is observable: a success in a browser that is not trusted yet clears the count of a name or pair, so a caller who
//! fails on purpose can notice it.
//!
//! [`StoredUsers`](crate::StoredUsers) reads as much for unknown names as for known ones. Your own
//! [`Users`](crate::Users) should do the same.
//!
//! # Trusted browsers
//!
//! `complete` sets the device cookie `__Host-auth_device`, which makes the browser trusted for the user. Its failures and its
//! requests for codes are counted apart from those of others, so somebody who fails on purpose elsewhere cannot lock the
//! owner out. All failures of an account count towards its limit of one hundred, and other browsers can use up only
//! eighty of them. A trusted browser that must wait is treated like any other, so it never waits longer than without
//! its cookie.
//!
//! The cookie skips no step, contains no name, and counts for one user of one tenant; a browser can be trusted for four
//! users. It expires after [`device_lifetime`](LoginLimits::device_lifetime), 90 days by default, and ends with a
//! change of the password or with [`end_user`](AuthService::end_user). It is signed with [the hash key](#the-hash-key),
//! so nothing is stored.
//!
//! # Limits
//!
//! | | |
//! |---|---|
//! | a login | 10 minutes idle, 30 in all; 15 failures; 4 in one browser |
//! | its last attempt, if unanswered | 30 seconds, then it has failed |
//! | a completed login | 5 minutes until it is used |
//! | a one-time code | 6 digits, 5 minutes, 5 attempts |
//! | codes sent | 5 per login |
//! | codes for one name and address | 30 seconds apart by one method; 10 an hour to a phone, 50 a day to a mailbox |
//! | codes to one receiver of a tenant (silent) | 10 an hour to a phone, 50 a day to a mailbox |
//! | codes requested by one address | 120 a minute |
//! | failures of a name or pair with one method | 5 free, then 30 seconds that double up to an hour; a day after 100 |
//! | failures of one account with one method (silent) | 100 in a row, 80 of them in browsers that are not trusted, until 24 hours pass without one |
//! | failures in a trusted browser with one method | as for a name; then it counts like any other browser |
//! | codes for a trusted browser and address; to its receivers | as for name and address; as for other receivers |
//! | failures from one address | 60 a minute; then no login starts there either |
//! | an authorization code | 60 seconds |
//! | a challenge for a passkey | 5 minutes |
//! | a trip to another identity provider | 10 minutes |
//! | proofs for a change of credentials | 5 minutes |
//! | credentials of a user | 20 passkeys, 10 links |
//! | a form at `/authorize` | 16 KiB |
//! | a pushed request | 8 KiB; 90 seconds, and 30 minutes from its first use |
//! | `return_to`; `state`; `nonce`; `claims` | 2 KiB; 4 KiB; 512 bytes; 4 KiB |
//! | a body | 64 KiB in 30 seconds |
//! | bodies received at the same time | 50 of one address, 1,000 in total |
//!
//! [`login_limits`](AuthServiceBuilder::login_limits) changes the times. An attempt during a wait is refused and changes
//! nothing. [`unlock`](AuthService::unlock) lifts locks. Counts of addresses are in memory, one for each process, or where a
//! shared [`limiter`](AuthServiceBuilder::limiter) keeps its budgets; the others are in the store.
//!
//! # Stored rows
//!
//! | rows | lifetime |
//! |---|---|
//! | a login | an hour after it ends: 70 minutes after its last step, at most 90 in all |
//! | failures of a name, a pair, an account, a trusted browser | 24 hours after the last |
//! | failures of a passkey | a minute after the last |
//! | messages of a pair, of a receiver, of a trusted browser | an hour for a phone, 24 for a mailbox |
//! | the same for unknown accounts and receivers | as long; they exist for equal work, and at most 65,536 for each method of a tenant |
//! | a code | a minute; a redeemed one as long as its tokens |
//! | a family of tokens | as long as its refresh token |
//! | revocations | 12 minutes for a family, as long as its tokens for a session |
//! | a redeemed challenge | a day |
//! | a DPoP proof | 70 seconds |
//! | a pushed request | 90 seconds, or 30 minutes |
//! | a session | see [`session`](crate::session) |
//! | an enrolment in progress | five minutes |
//! | the credentials of a user | until [`forget_user`](AuthService::forget_user) |
//!
//! A login takes 700 bytes to 1.3 KB in [`Memory`](crate::store::Memory), and up to 9 KB with the longest parameters. Failures
//! take 350 bytes, messages up to 1.8 KB. A tenant whose 600 requests a minute are all spent by anonymous callers has
//! up to 42,000 logins, or up to 930,000 rows after a day. A full `Memory` never drops live rows: logins get a 503.
//! Size it for your tenants, and set [`requests_per_address`](AbuseLimits::requests_per_address).
//!
//! # Errors
//!
//! An error is `{"error", "error_description"}` with the counters of the caller's own login and, together with `Retry-After`,
//! `retry_after`. With `Accept: application/problem+json`, it is a problem document in which `login_status` is the status of
//! the login. Errors never echo the request. `/authorize` sends errors to the redirect URI once it has checked the client and
//! the redirect URI. All other errors, and an exhausted budget, are shown as a page.
//!
//! | status | `error` |
//! |---|---|
//! | 400 | `invalid_request`, `invalid_client`, `invalid_scope`, `invalid_target`, `unsupported_response_type`, `unsupported_method`, `invalid_link`, `password_too_short`, `password_too_long`, `password_common`, `password_own_name`, `password_breached`, `invalid_request_uri`, `request_not_supported`, `request_uri_not_supported`; for tokens `invalid_grant`, `unsupported_grant_type`, `unauthorized_client`, `invalid_dpop_proof`, `use_dpop_nonce` |
//! | 401 | `invalid_session`, `session_expired`, `invalid_credentials`, `invalid_otp`, `invalid_assertion`, `sso_failed`, `login_required`, `interaction_required`, `consent_required`; `invalid_client` for missing or wrong credentials of a client; for tokens `invalid_token` |
//! | 403 | `access_denied`, `origin_not_allowed`, `unmet_authentication_requirements`, `fresh_login_required`, `second_factor_required`, `insufficient_scope` |
//! | 404, 405 | `not_found`, `method_not_allowed` |
//! | 409 | `method_not_allowed`, `no_pending_challenge`, `no_step_remaining`, `steps_remaining`, `step_required`, `session_failed`, `last_sign_in_method`, `contact_taken`, `account_outdated`, `account_exists` |
//! | 413, 415 | `content_too_large`, `unsupported_media_type` |
//! | 429 | `slow_down`, `too_many_attempts`, `rate_limit_exceeded` |
//! | 502, 503 | `provider_unavailable`, `temporarily_unavailable` |
//!
//! # Pages and languages
//!
//! [`Pages`] sets a logo, colors for light and dark screens, and the words of the pages for login, consent, account, errors and
//! logout. The pages are in English or German: the first of these in the parameter `ui_locales`, or else the browser's
//! preference in `Accept-Language`, or else English. `/authorize`, `/par`, `/sign-in`, `/account/security` and
//! `/logout` take `ui_locales`. The messages of a login are in the language of its page; `Smtp`, `Webhook` and other
//! senders read it from [`Message::language`](crate::delivery::Message::language). JSON answers have the same codes in
//! all languages.
//!
//! # Events
//!
//! With [`events`](AuthServiceBuilder::events), the log shows logins, failures, locks, codes that were or could not be
//! sent, changed credentials, sessions, tokens, foreign origins and refused PKCE challenges, with keyed hashes in place
//! of names and never a secret.
//!
//! # Not supported yet
//!
//! - Of OpenID Connect: `display` and `registration` are ignored; `request`, foreign `request_uri`s and any
//!   `response_mode` but `query` are refused.

mod event_kinds;
mod http;
mod state;
mod pages;
mod core;
mod notices;
mod context;
mod query;
mod factors;
mod authorize;
mod steps;
mod first_party;
mod account;
mod provider;
mod service;
mod ending;
mod vouching;
mod invitations;

mod signing;
mod abuse_limits;
mod builder;
mod assembly;
#[cfg(test)]
mod openapi;

pub(crate) use self::event_kinds::EVENT_KINDS;
pub use self::{
    abuse_limits::AbuseLimits,
    builder::AuthServiceBuilder,
    factors::{passkey::settings::Passkeys, totp::settings::Totp},
    invitations::Invitation,
    pages::{colors::Colors, custom::Pages},
    service::{AuthFuture, AuthService},
    signing::SigningKeys,
    state::consents::Consent,
    vouching::EnrolledCredential,
};
pub use crate::{login::LoginLimits, user::sign_up::SignUp};
