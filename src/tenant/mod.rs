//! Tenants: a [`TenantSource`] finds the [`Tenant`] that a request proves, or the [`LimitKey`] that it only claims.
//!
//! | source | identifies the tenant by | callers can choose it | the name is |
//! |---|---|---|---|
//! | [`ApiKeys`] | a secret that the caller knows | no | proved |
//! | [`CachedKeys`] | such a secret, looked up in a database | no | proved |
//! | `SessionTenant`, `AccessTokenTenant` | a session or a token that was verified | no | proved |
//! | [`ClientIp`] | the address that the request comes from | no | claimed |
//! | [`ExtensionTenant`] | an outer layer, such as one that checks a signature | depends on that layer | what that layer found |
//! | [`HeaderTenant`], [`PathTenant`], [`HostTenant`] | text in the request | yes | claimed |
//! | a closure | your code | depends on your code | claimed, unless it is in a [`ProvedTenant`] |
//! | a source of your own | your code | depends on your code | what it returns: a `Tenant` is proved, a `LimitKey` claimed |
//!
//! In both cases, limits count by the key. A request with a claim is anonymous: it can't spend what
//! [`Quota::reserve`](crate::Quota::reserve) keeps back, and handlers get no [`Tenant`] from it.
//!
//! A caller that can choose the tenant can spend any tenant's budget, and gets a new budget with each new name. Use a
//! source of that kind only behind a trusted proxy that sets or checks the text.
//!
//! Sources can be chained. The first one that finds a tenant is used:
//!
//! ```
//! use tollgate::{ApiKeys, ClientIp, Head, PeerAddr, TenantSource};
//!
//! let source = ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?.or(ClientIp::peer());
//!
//! let peer = PeerAddr(([192, 0, 2, 1], 49152).into());
//! let key_of = |request: http::request::Builder| {
//!     source.find(Head::of_request(&request.extension(peer).body(()).unwrap())).unwrap().unwrap().to_key().unwrap()
//! };
//! assert_eq!(key_of(http::Request::get("/").header("x-api-key", "demo-acme-key")).as_str(), "acme");
//! assert_eq!(key_of(http::Request::get("/")).as_str(), "ip:192.0.2.1");
//! # Ok::<(), tollgate::ConfigError>(())
//! ```

mod cidr;
mod client_ip;
mod error;
mod extension;
mod header;
mod hops;
mod host;
mod id;
pub(crate) mod inline;
mod keys;
mod path;
mod source;
mod standing;

pub(crate) use self::error::TenantErrorKind;
pub use self::keys::{CachedKeys, CachedKeysBuilder, KeyLookup, PresentedKey};
pub(crate) use self::standing::LimiterCharge;
pub use self::{
    cidr::Cidr,
    client_ip::{ClientIp, PeerAddr},
    error::TenantError,
    extension::ExtensionTenant,
    header::HeaderTenant,
    host::HostTenant,
    id::{LimitKey, Tenant},
    keys::ApiKeys,
    path::PathTenant,
    source::{Or, ProvedTenant, TenantLookup, TenantName, TenantSource},
    standing::{RateLimit, Standing},
};
