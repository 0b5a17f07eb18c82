//! The applications (OAuth clients) that send users to sign in.
//!
//! Apps are public clients: they can't keep a secret, so the security of the login depends on where responses are sent.
//! Servers can be confidential clients, which authenticate with a secret ([`Client::secret`]) or a key
//! ([`Client::assertion_keys`]). Machine clients, which act for themselves, have a key ([`Client::machine`]). A
//! [`RedirectUri`] is registered in full and compared character by character.
//! Only the port of a loopback address may differ (RFC 8252 §7.3). [`Clients`] finds clients, for
//! example in a [`ClientTable`] or in your database.
//!
//! ```
//! use tollgate::{Client, ClientTable, Tenant, client::Scopes, policy::Policy};
//!
//! let web = Client::new("demo-web", Tenant::parse("acme")?)?
//!     .redirect_uri("https://app.example/callback?from=login")?
//!     .scopes("openid profile email")?
//!     .origin("https://app.example")?
//!     .policy(Policy::any(2)?);
//!
//! assert!(web.allows_scopes(&Scopes::parse("email openid")?));
//! assert!(web.redirect("https://app.example/callback").is_none());
//! let redirect = web.redirect("https://app.example/callback?from=login").unwrap();
//! assert_eq!(redirect.with_parameters(&[("code", "a b")]), "https://app.example/callback?from=login&code=a%20b");
//!
//! let clients = ClientTable::new([web])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # One application, many tenants
//!
//! A client belongs to one tenant, because its users are those of the tenant. An application that all tenants use
//! therefore needs one client for each of them. You don't need to register these: a [`Clients`] implementation can
//! derive them, such as `app.acme` for the tenant `acme`. `examples/many_tenants.rs` is such an application.
//!
//! Pitfalls:
//!
//! - **Client ids.** [`Clients::find`] is called with text from requests. Look the tenant up before you derive anything
//!   from it. Ids must be unique: if ids of other clients could also start with `app.`, choose another form.
//! - **Redirect URIs.** Each tenant needs its own, such as `https://app.example/acme/callback` or
//!   `https://acme.app.example/callback`. The URI that a code arrives at then identifies the tenant. Don't put a name
//!   into a host or a path unless you know its characters: tenant names may contain `/`, `?` and `@`. Never derive a
//!   redirect URI from the request. If pages on these hosts call the service, derive [`Client::origin`] and
//!   [`Clients::allows_origin`] in the same way.
//! - **Cookies.** Each tenant has its own session cookie, so signing in at one tenant has no effect at another. A
//!   browser keeps the sessions of at most four tenants. Even if tenants have their own hosts, the cookies are those of
//!   the login service's host.
//! - **Caches.** The service asks for the client in each request and keeps nothing. Cache the tenants that exist and,
//!   briefly and in a bounded cache, those that don't, because anyone can make up a name. When you remove a tenant,
//!   sessions and tokens of its users live on until you end them or they expire.
//! - **Limits.** Logins are charged to the client's tenant, so tenants can't use up each other's budgets. Requests with an
//!   unknown client id are charged to their address. At your API, put a `RateLimitLayer` with `AccessTokenTenant` inside
//!   the `BearerLayer`.
//! - **Data.** Compare the tenant of the token with the tenant of the requested data. A user id belongs to one tenant,
//!   but a name such as `ada` can exist in all of them.

mod clients;
pub(crate) mod credentials;
mod record;
mod redirect;
mod resources;
mod scopes;
mod table;

pub(crate) use self::resources::{RESOURCE, ResourceError, select_resources};
pub use self::{
    clients::{AnyClients, Clients},
    credentials::ClientSecretDigest,
    record::Client,
    redirect::{RedirectUri, RequestedRedirect},
    scopes::{ScopeError, Scopes},
    table::ClientTable,
};
