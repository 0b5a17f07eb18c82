use std::{error::Error, fmt, sync::Arc};

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The key or the value is too large.
    TooLarge,
    /// There is no room. Live entries are never evicted to make room.
    Full,
    /// There are too many concurrent operations. Nothing was written.
    Busy,
    /// The store is unreachable or has failed. A write may or may not have happened.
    Unavailable,
    /// The stored data is invalid.
    Corrupt,
    /// Another process uses the file.
    Locked,
    /// The server of the store is not configured as required.
    Misconfigured,
    /// The file was written by a newer version. It is not modified.
    NewerFormat,
    /// The store or the accounts do not support this call or operation. Nothing was done.
    NotOffered,
}

/// An error of a store operation.
///
/// Its message depends only on its [`kind`](Self::kind), or names the hook of the application that failed, so it can be
/// shown without leaking messages of an engine or file paths. Those are in its [`source`](Error::source), which is meant
/// for logs.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// Creates an error of this kind with a cause.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(Arc::from(source.into())) }
    }

    fn hook(&self) -> Option<&HookFailed> {
        self.source.as_deref()?.downcast_ref()
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns whether the same call may succeed later without intervention.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            StoreErrorKind::Full | StoreErrorKind::Busy | StoreErrorKind::Unavailable | StoreErrorKind::Locked => true,
            StoreErrorKind::TooLarge
            | StoreErrorKind::Corrupt
            | StoreErrorKind::Misconfigured
            | StoreErrorKind::NewerFormat
            | StoreErrorKind::NotOffered => false,
        }
    }
}

impl StoreError {
    /// Creates the error of a hook of the application that failed. Its source is the error of the hook.
    pub(crate) fn of_hook(hook: &'static str, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Unavailable, HookFailed { hook, error: error.into() })
    }
}

/// A hook of the application that failed: its name, and its error.
#[derive(Debug)]
struct HookFailed {
    hook: &'static str,
    error: Box<dyn Error + Send + Sync>,
}

impl From<StoreErrorKind> for StoreError {
    fn from(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(failed) = self.hook() {
            return write!(f, "the hook {} failed", failed.hook);
        }
        f.write_str(match self.kind {
            StoreErrorKind::TooLarge => "the key or value is too large",
            StoreErrorKind::Full => "the store is full",
            StoreErrorKind::Busy => "the store is busy",
            StoreErrorKind::Unavailable => "the store is not available",
            StoreErrorKind::Corrupt => "the stored data is invalid",
            StoreErrorKind::Locked => "the store is in use by another process",
            StoreErrorKind::Misconfigured => "the server of the store is not set up correctly",
            StoreErrorKind::NewerFormat => "the store was written by a newer version",
            StoreErrorKind::NotOffered => "this call is not offered here",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.hook() {
            Some(failed) => Some(&*failed.error),
            None => self.source.as_deref().map(|source| source as _),
        }
    }
}

impl Error for HookFailed {}

crate::util::fmt::display!(HookFailed, |own| own.hook);

/// A store that fails is a 503 without details, so that handlers can use `?` on the methods of `Sessions`.
#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for StoreError {
    fn into_response(self) -> axum_core::response::Response {
        http::StatusCode::SERVICE_UNAVAILABLE.into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_hides_the_cause_and_the_source_shows_it() {
        let error = StoreError::new(StoreErrorKind::Unavailable, "redis://user:password@10.0.0.1 refused");
        assert_eq!(error.to_string(), "the store is not available");
        assert_eq!(error.source().unwrap().to_string(), "redis://user:password@10.0.0.1 refused");
    }
}
