//! Which plan a tenant has: as configured, or from a database through a cache.

pub(super) mod cache;
pub(super) mod table;
pub(super) mod source;
mod text;
