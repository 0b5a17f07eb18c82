//! The warnings of the current thread, as an application logs them.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex, Once},
};

use tracing::{
    Event, Level, Metadata,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

/// Collects the warnings of this thread while it lives.
pub(crate) struct Logged {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

struct Lines(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl Logged {
    pub(crate) fn new() -> Self {
        // without a global subscriber, another thread can make `tracing` cache that a warning has no reader
        static EVERYWHERE: Once = Once::new();
        EVERYWHERE.call_once(|| tracing::subscriber::set_global_default(Lines(Arc::default())).unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let guard = tracing::subscriber::set_default(Lines(Arc::clone(&lines)));
        Self { lines, _guard: guard }
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate") && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Message {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        write!(self.0, "{value:?}").unwrap();
    }
}
