//! Building blocks for HTTP: bodies, cookies, heads and origins.

// Each module uses only modules listed above it; tests/architecture.rs checks this.
pub(crate) mod head;
pub(crate) mod number;
pub(crate) mod accept;
pub(crate) mod origin;
pub(crate) mod cross_site;
#[cfg_attr(not(feature = "session"), allow(unreachable_pub, reason = "`session` exports `local_path`"))]
pub(crate) mod return_to;
pub mod cookie;
pub(crate) mod body;
pub(crate) mod reader;
#[cfg(feature = "axum")]
pub(crate) mod missing_layer;
pub(crate) mod connection;
pub(crate) mod drain;
