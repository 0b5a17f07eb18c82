//! Where events go beside the log's own memory.

mod channel;
mod file;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "tracing")]
pub use self::tracing::TracingSink;
pub use self::{channel::Channel, file::JsonLines};
use super::Event;

/// Takes the events of a log, in order, on the log's own thread.
///
/// All sinks of a log share that thread: one that takes long delays the
/// others, but nobody who records. One that panics is let go. A closure is a
/// sink too:
///
/// ```
/// use tollgate::{EventLog, event::Event};
///
/// let log = EventLog::new().sink(|events: &[Event]| {
///     for event in events {
///         eprintln!("{}", event.to_json());
///     }
/// });
/// # let _ = log;
/// ```
pub trait Sink: Send + 'static {
    /// Takes some of these events, from the first on, and says how many. The
    /// others are offered again, at the latest 250 ms after, as long as the
    /// log has them.
    fn write(&mut self, events: &[Event]) -> usize;

    /// How many of the events that it took it has given up since it began.
    fn dropped(&self) -> u64 {
        0
    }
}

impl<F> Sink for F
where
    F: FnMut(&[Event]) + Send + 'static,
{
    fn write(&mut self, events: &[Event]) -> usize {
        self(events);
        events.len()
    }
}
