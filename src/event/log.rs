use std::{fmt, sync::Arc};

use super::{Event, Page, Query, Sink, Stats, pump, shared::Shared};
use crate::util::error::ConfigError;

/// What happened, newest last: a bounded log in memory, read in process,
/// over HTTP ([`EventService`](super::EventService)), or through a [`Sink`].
///
/// Clones are the same log. Nobody who records ever waits for a reader or a
/// sink: there is room for so many events (10,000 by default), and the oldest
/// make room for new ones. A reader that is overtaken is told how many it missed.
///
/// # Floods
///
/// [`tally`](Self::tally) is for what can come by the million. The first event
/// of a tenant, kind, policy and mode in a second is in the log when the call
/// returns; what follows in that second is counted and shows as one event with
/// a `count`, once the log is read, a sink or a stream runs, or a later second
/// begins. Each thread counts by itself, so the first of each thread may show.
/// Under a flood over more tenants in a second than the log records one by
/// one, even the first event of a further tenant is merged, without its name:
///
/// At most 1,000 tallied events of a second are recorded one by one
/// ([`max_per_second`](Self::max_per_second)). Beyond that, events of one kind
/// and mode are merged into one that names no tenant and no policy: a flood
/// over many made-up tenants can neither fill the log nor cost more than
/// counting. Nothing is lost by it: the counts of all events that the log ever
/// gave numbers to add up to the events that were recorded and tallied.
///
/// ```
/// use tollgate::{EventLog, UnixTime, event::{Event, EventKind, Query}};
///
/// let log = EventLog::new();
/// let refusal = Event::new(EventKind::RateLimited, UnixTime::from_secs(5)).tenant("acme".parse()?);
/// for _ in 0..1_000 {
///     log.tally(&refusal);
/// }
/// let page = log.read(&Query::new());
/// assert_eq!(page.events.iter().map(|event| event.count).collect::<Vec<_>>(), [1, 999]);
/// # Ok::<(), tollgate::TenantError>(())
/// ```
#[derive(Clone)]
pub struct EventLog(Arc<Owner>);

/// Held by those who record; the pump and the streams hold only what is
/// shared, so that they end with the last of these.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl EventLog {
    /// A log of the newest 10,000 events.
    pub fn new() -> Self {
        Self::of(10_000)
    }

    /// A log of the newest `capacity` events.
    pub fn with_capacity(capacity: usize) -> Result<Self, ConfigError> {
        match capacity {
            0 => Err(ConfigError::new("event log capacity", capacity, "must be at least 1")),
            capacity => Ok(Self::of(capacity)),
        }
    }

    fn of(capacity: usize) -> Self {
        Self(Arc::new(Owner { shared: Arc::new(Shared::new(capacity)) }))
    }

    /// How many tallied events of one second are recorded one by one: 1,000 by
    /// default, from 1 to 16,777,215. It holds for all clones.
    pub fn max_per_second(self, events: u32) -> Result<Self, ConfigError> {
        if events == 0 || events > super::budget::Budget::MOST {
            return Err(ConfigError::new("events per second", events, "must be from 1 to 16777215"));
        }
        self.0.shared.stripes.budget.set(events);
        Ok(self)
    }

    /// Hands everything that is recorded from now on to `sink`, on a thread of
    /// the log's own that all sinks share.
    pub fn sink(self, sink: impl Sink) -> Self {
        self.0.shared.add_sink(Box::new(sink));
        pump::ensure(&self.0.shared);
        self
    }

    /// Records an event now, and answers with the number that it got.
    pub fn record(&self, event: Event) -> u64 {
        self.0.shared.append(event)
    }

    /// Records an event that may be one of a flood: see [Floods](Self#floods).
    /// Where it only counts, it allocates nothing and takes no lock that all threads share.
    pub fn tally(&self, event: &Event) {
        self.0.shared.tally(event);
    }

    /// The events that `query` asks for, oldest first.
    ///
    /// What was tallied before is in it. Only if the log is read more than 20
    /// times a second do counts show up to a second late.
    pub fn read(&self, query: &Query) -> Page {
        self.0.shared.drain_for_reader();
        self.0.shared.page(query)
    }

    /// Waits until every sink has been offered all that was recorded and
    /// tallied before, and says whether all of it was taken. For the end of
    /// the program: the log does not wait for its sinks when it is dropped.
    pub fn flush(&self) -> bool {
        self.0.shared.drain();
        pump::flush(&self.0.shared)
    }

    /// What the log has done so far.
    pub fn stats(&self) -> Stats {
        self.0.shared.stats()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

impl Default for EventLog {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
