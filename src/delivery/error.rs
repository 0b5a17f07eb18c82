use std::{error::Error, fmt, sync::Arc, time::Duration};

/// What a sender's failure means for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// The same message may go through later: no connection, no answer in
    /// time, a service that has too much to do.
    Transient,
    /// It never will: no such address, a refused password.
    Permanent,
}

/// A message that a sender could not hand on.
///
/// Its text is fixed by its [`kind`](Self::kind). What a gateway or a mail
/// server said is the [`source`](Error::source), which may have the address in
/// it and is meant for logs of your own.
#[derive(Clone)]
pub struct SendError {
    kind: SendErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
    retry_after: Option<Duration>,
}

impl SendError {
    /// An error of this kind, caused by `source`.
    pub fn new(kind: SendErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(Arc::from(source.into())), retry_after: None }
    }

    /// An error that another attempt may not meet.
    pub fn transient(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(SendErrorKind::Transient, source)
    }

    /// An error that every attempt will meet.
    pub fn permanent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(SendErrorKind::Permanent, source)
    }

    /// Says how long the service wants to be left alone.
    pub fn not_before(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What it means for another attempt.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// Whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        self.kind == SendErrorKind::Transient
    }

    /// How long the service wants to be left alone, where it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl From<SendErrorKind> for SendError {
    fn from(kind: SendErrorKind) -> Self {
        Self { kind, source: None, retry_after: None }
    }
}

impl fmt::Debug for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("kind", &self.kind).field("source", &self.source).finish_non_exhaustive()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            SendErrorKind::Transient => "the message could not be sent now",
            SendErrorKind::Permanent => "the message can't be sent",
        })
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_shows_nothing_of_the_cause_and_the_source_all_of_it() {
        let error = SendError::permanent("550 no mailbox ada@example.com here");
        assert_eq!(error.to_string(), "the message can't be sent");
        assert_eq!(error.source().unwrap().to_string(), "550 no mailbox ada@example.com here");
        assert!(!error.is_transient());
        assert!(SendError::from(SendErrorKind::Transient).is_transient());
    }
}
