//! Building blocks for HTTP: bodies, cookies, heads, origins, and requests to other services.

// Each module uses only modules listed above it; tests/architecture.rs checks this.
pub(crate) mod head;
pub(crate) mod number;
pub(crate) mod accept;
pub(crate) mod origin;
pub(crate) mod cross_site;
#[cfg(feature = "session")]
pub(crate) mod return_to;
#[cfg(feature = "login")]
pub(crate) mod user_agent;
#[cfg(feature = "bearer")]
#[cfg_attr(
    not(any(feature = "login", feature = "external-providers")),
    allow(dead_code, reason = "some features use only parts of it")
)]
pub(crate) mod issuer;
#[cfg(feature = "login")]
pub(crate) mod document;
pub mod cookie;
pub mod body;
pub(crate) mod replay;
pub(crate) mod connection;
#[cfg(feature = "drain")]
pub mod drain;
#[cfg(any(feature = "smtp", feature = "webhook", feature = "external-providers"))]
pub(crate) mod roots;
#[cfg(any(feature = "webhook", feature = "external-providers"))]
#[cfg_attr(
    not(all(feature = "webhook", feature = "external-providers")),
    allow(dead_code, reason = "one feature reads only the head of a response, the other all of it")
)]
pub(crate) mod outgoing;
