//! The log of the current thread, as an application gets it.

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

/// Collects what this thread logs while it lives.
pub(crate) struct Logged {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

struct Lines(Arc<Mutex<Vec<String>>>, Level);

struct Message(String);

impl Logged {
    /// Collects warnings.
    pub(crate) fn new() -> Self {
        Self::up_to(Level::WARN)
    }

    /// Collects events and spans up to this level.
    pub(crate) fn up_to(level: Level) -> Self {
        // without a global subscriber, another thread can make `tracing` cache that a warning has no reader
        static EVERYWHERE: Once = Once::new();
        EVERYWHERE.call_once(|| tracing::subscriber::set_global_default(Lines(Arc::default(), Level::WARN)).unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let guard = tracing::subscriber::set_default(Lines(Arc::clone(&lines), level));
        Self { lines, _guard: guard }
    }

    /// Returns what was logged since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate") && *metadata.level() <= self.1
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut message = Message(String::new());
        span.record(&mut message);
        self.0.lock().unwrap().push(message.0);
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
