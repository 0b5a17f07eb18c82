//! Whose request it is: a [`Tenant`], found in a request by a [`TenantSource`].
//!
//! | source | the tenant is named by | a caller can choose it |
//! |---|---|---|
//! | [`ApiKeys`] | a secret that the caller knows | no |
//! | [`ClientIp`] | the address that the request comes from | no |
//! | [`ExtensionTenant`] | a layer outside, such as a check of tokens | as that layer has it |
//! | [`HeaderTenant`], [`QueryTenant`], [`PathTenant`], [`HostTenant`] | a text of the request | yes |
//!
//! Where a caller can choose, it can spend another's budget, and with a new
//! name for each request it gets a new budget each time. Use those only behind
//! something that you trust to set or check the text.
//!
//! Sources chain; the first that finds a tenant answers:
//!
//! ```
//! use tollgate::{ApiKeys, ClientIp, Head, PeerAddr, TenantSource};
//!
//! let source = ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?.or(ClientIp::peer());
//!
//! let peer = PeerAddr(([192, 0, 2, 1], 49152).into());
//! let tenant_of = |request: http::request::Builder| {
//!     source.find(Head::of(&request.extension(peer).body(()).unwrap())).unwrap().unwrap()
//! };
//! assert_eq!(tenant_of(http::Request::get("/").header("x-api-key", "demo-acme-key")).as_str(), "acme");
//! assert_eq!(tenant_of(http::Request::get("/")).as_str(), "ip:192.0.2.1");
//! # Ok::<(), tollgate::ConfigError>(())
//! ```

mod api_keys;
mod buffer;
mod chain;
mod cidr;
mod client_ip;
mod extension;
mod forwarded;
mod header;
mod hops;
mod host;
mod id;
mod node;
mod path;
mod peer;
mod query;
mod source;
mod x_forwarded_for;

pub use self::{
    api_keys::ApiKeys,
    chain::Or,
    cidr::Cidr,
    client_ip::ClientIp,
    extension::ExtensionTenant,
    header::HeaderTenant,
    host::HostTenant,
    id::Tenant,
    path::PathTenant,
    peer::PeerAddr,
    query::QueryTenant,
    source::{TenantError, TenantSource},
};
