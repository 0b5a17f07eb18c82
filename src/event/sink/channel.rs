use std::{
    fmt,
    sync::mpsc::{SyncSender, TrySendError},
};

use super::Sink;
use crate::event::Event;

/// Sends each event into a channel, and gives it up if that is full.
///
/// ```
/// use std::sync::mpsc;
/// use tollgate::{EventLog, UnixTime, event::{Channel, Event, EventKind}};
///
/// let (sender, receiver) = mpsc::sync_channel(100);
/// let log = EventLog::new().sink(Channel::new(sender));
/// log.record(Event::new(EventKind::OverflowBegan, UnixTime::from_secs(5)));
/// assert_eq!(receiver.recv().map(|event| event.id), Ok(1));
/// ```
pub struct Channel {
    send: Box<dyn FnMut(Event) -> bool + Send>,
    dropped: u64,
}

impl Channel {
    /// Sends into a bounded channel. It never waits: what does not fit, and
    /// what nobody receives any more, counts as dropped.
    pub fn new(sender: SyncSender<Event>) -> Self {
        Self::with(move |event| match sender.try_send(event) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        })
    }

    /// Sends into any other channel; `send` must not wait, and says whether the event found room.
    pub fn with(send: impl FnMut(Event) -> bool + Send + 'static) -> Self {
        Self { send: Box::new(send), dropped: 0 }
    }
}

impl Sink for Channel {
    fn write(&mut self, events: &[Event]) -> usize {
        for event in events {
            if !(self.send)(event.clone()) {
                self.dropped += 1;
            }
        }
        events.len()
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}
