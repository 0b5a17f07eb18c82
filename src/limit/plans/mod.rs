//! Which plan a tenant has: as configured, or from a database through a cache.

#[cfg(feature = "plans")]
pub(super) mod cache;
pub(super) mod table;
#[cfg(feature = "plans")]
pub(super) mod source;
mod text;
