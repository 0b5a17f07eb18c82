//! Small parts without a domain.

// Each module uses only modules listed above it; tests/architecture.rs checks it.
pub(crate) mod error;
pub(crate) mod clock;
pub(crate) mod trace;
pub(crate) mod encoding;
pub(crate) mod text;
pub(crate) mod scan;
#[cfg(feature = "tokens")]
pub(crate) mod outlasting;
pub(crate) mod secret;
pub(crate) mod handle;
pub(crate) mod form;
pub(crate) mod json;
pub(crate) mod number;
