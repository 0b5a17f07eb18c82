//! Small helpers without a domain of their own.

// Each module uses only modules listed above it; tests/architecture.rs checks this.
pub(crate) mod fmt;
pub(crate) mod error;
pub mod clock;
pub(crate) mod trace;
pub(crate) mod lock;
pub(crate) mod lookup;
pub(crate) mod encoding;
#[cfg(feature = "session")]
pub(crate) mod text;
pub(crate) mod scan;
pub(crate) mod secret;
pub(crate) mod public_id;
pub(crate) mod form;
#[cfg(feature = "session")]
pub(crate) mod json;
pub(crate) mod json_object;
pub(crate) mod builder;
