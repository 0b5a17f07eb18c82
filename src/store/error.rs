use std::{error::Error, fmt, sync::Arc};

/// What went wrong in a store, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The key or the value is larger than a store takes.
    TooLarge,
    /// There is no room; nothing that lives is ever dropped to make some.
    Full,
    /// More is asked at once than can be done; nothing was written.
    Busy,
    /// The store can't be reached or has failed. A write may or may not have
    /// happened.
    Unavailable,
    /// What was read makes no sense.
    Corrupt,
    /// Another process has the file open.
    Locked,
    /// The file was written by a newer version and is left alone.
    NewerFormat,
}

/// A store that could not do what was asked.
///
/// Its text is fixed by its [`kind`](Self::kind), so that it can be shown
/// without leaking what an engine or a file said; that is the
/// [`source`](Error::source), which is meant for logs.
#[derive(Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// An error of this kind, caused by `source`.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(Arc::from(source.into())) }
    }

    /// What went wrong.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later, with nobody mending anything.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            StoreErrorKind::Full | StoreErrorKind::Busy | StoreErrorKind::Unavailable | StoreErrorKind::Locked => true,
            StoreErrorKind::TooLarge | StoreErrorKind::Corrupt | StoreErrorKind::NewerFormat => false,
        }
    }
}

impl From<StoreErrorKind> for StoreError {
    fn from(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError").field("kind", &self.kind).field("source", &self.source).finish()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::TooLarge => "the key or the value is too large for a store",
            StoreErrorKind::Full => "the store is full",
            StoreErrorKind::Busy => "the store has too much to do",
            StoreErrorKind::Unavailable => "the store is not available",
            StoreErrorKind::Corrupt => "the store holds something unreadable",
            StoreErrorKind::Locked => "the store is in use by another process",
            StoreErrorKind::NewerFormat => "the store was written by a newer version",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_shows_nothing_of_the_cause_and_the_source_all_of_it() {
        let error = StoreError::new(StoreErrorKind::Unavailable, "redis://user:password@10.0.0.1 refused");
        assert_eq!(error.to_string(), "the store is not available");
        assert_eq!(error.source().unwrap().to_string(), "redis://user:password@10.0.0.1 refused");
    }
}
