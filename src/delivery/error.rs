use std::{error::Error, sync::Arc, time::Duration};

/// The kind of a [`SendError`], which decides whether to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// Temporary: the connection failed, the request timed out, or the service is overloaded.
    Transient,
    /// Permanent: the address does not exist, or the credentials are wrong.
    Permanent,
}

/// A message could not be sent.
///
/// The error message depends only on its [`kind`](Self::kind). The response of a gateway or mail
/// server is its [`source`](Error::source). It may contain the address, so only write it to
/// confidential logs.
#[derive(Clone)]
pub struct SendError {
    kind: SendErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
    retry_after: Option<Duration>,
}

impl SendError {
    /// Creates an error of this kind with a cause.
    pub fn new(kind: SendErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(Arc::from(source.into())), retry_after: None }
    }

    /// Creates a temporary error, after which another attempt may succeed.
    pub fn transient(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(SendErrorKind::Transient, source)
    }

    /// Creates a permanent error.
    pub fn permanent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(SendErrorKind::Permanent, source)
    }

    /// Sets how long to wait before the next attempt. It is at most a minute.
    pub fn not_before(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// Returns whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        self.kind == SendErrorKind::Transient
    }

    /// Returns how long to wait before the next attempt, if the service has specified it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl From<SendErrorKind> for SendError {
    fn from(kind: SendErrorKind) -> Self {
        Self { kind, source: None, retry_after: None }
    }
}

crate::util::fmt::debug_fields!(SendError { kind, source });

crate::util::fmt::display!(SendError, |own| match own.kind {
    SendErrorKind::Transient => "the message could not be sent yet",
    SendErrorKind::Permanent => "the message cannot be sent",
});

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_hides_the_cause_and_the_source_shows_it() {
        let error = SendError::permanent("550 no mailbox ada@example.com here");
        assert_eq!(error.to_string(), "the message cannot be sent");
        assert_eq!(error.source().unwrap().to_string(), "550 no mailbox ada@example.com here");
        assert!(!error.is_transient());
        assert!(SendError::from(SendErrorKind::Transient).is_transient());
    }
}
