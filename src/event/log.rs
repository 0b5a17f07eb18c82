//! The handle of an event log, and its builder.

use std::sync::Arc;

use super::{
    coalesce,
    kind::EventKind,
    pump,
    query::{Page, Query},
    record::Event,
    shared::{Shared, Stats},
    sink::Sink,
};
use crate::util::{
    clock::{Clock, SystemClock},
    error::ConfigError,
};

/// A bounded in-memory log of [`Event`]s.
///
/// Read it in process with [`read_events`](Self::read_events), over HTTP with
/// [`EventService`](super::EventService), or through a [`Sink`]. Clones share the same log.
///
/// Recording never waits for readers or sinks. The log keeps the newest 10,000 events by default;
/// older ones are overwritten, and readers that fall behind learn how many events they missed.
///
/// # Floods
///
/// Use [`tally`](Self::tally) for events that callers can trigger millions of times. The first
/// event of a tenant, kind, policy and mode in a second is recorded immediately. Further ones in
/// the same second are counted and appear as one event with a `count`, as soon as the log is read,
/// a sink or a stream runs, or a later second begins. The first 16 subjects of a second have events
/// and counts of their own for each method; the others share one count without a subject. Threads count separately,
/// so each of them may record a first event.
///
/// At most 1,000 tallied events per second are recorded individually
/// ([`max_per_second`](EventLogBuilder::max_per_second)). Beyond that, even first events are merged into one event per
/// kind and mode, without tenant and policy. First events that only authenticated users can cause, such as new
/// credentials, are exempt. A flood of many made-up tenants can therefore neither fill the log nor cost more than
/// counting. No count is lost: the counts of all numbered events add up to the number of events that were recorded and
/// tallied.
///
/// ```
/// use tollgate::{EventLog, clock::UnixTime, event::{Event, EventKind, Query}};
///
/// let log = EventLog::new();
/// let rejection = Event::new(EventKind::RateLimited, UnixTime::from_secs(5)).tenant("acme".parse()?);
/// for _ in 0..1_000 {
///     log.tally(&rejection);
/// }
/// let page = log.read_events(&Query::new());
/// assert_eq!(page.events.iter().map(|event| event.count).collect::<Vec<_>>(), [1, 999]);
/// # Ok::<(), tollgate::tenant::TenantError>(())
/// ```
#[derive(Clone)]
pub struct EventLog(Arc<Owner>);

/// Held by the handles that record. The pump and the streams hold only `Shared`, so that they end
/// when the last handle is dropped.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl EventLog {
    /// Creates a log with the default settings. It keeps the newest 10,000 events.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a log with other settings or with sinks.
    pub fn builder() -> EventLogBuilder {
        EventLogBuilder { capacity: 10_000, max_per_second: 1_000, clock: None, sinks: Vec::new() }
    }

    /// Records an event and returns its number in the log.
    pub fn record(&self, event: Event) -> u64 {
        self.0.shared.append(event)
    }

    /// Records an event that may be part of a [flood](Self#floods). Counting a repeated event
    /// neither allocates nor takes a lock that all threads share.
    pub fn tally(&self, event: &Event) {
        self.0.shared.tally(event);
    }

    /// Counts an event without other details, in the time of this log.
    pub(crate) fn tally_now(&self, kind: EventKind, reason: Option<&'static str>) {
        let clock = &self.0.shared.clock;
        self.tally(&Event { reason, ..Event::new(kind, clock.unix(clock.now())) });
    }

    /// Returns the events that match `query`, oldest first.
    ///
    /// Pending counts are recorded first. If the log is read more than 20 times per second, counts
    /// may appear up to a second late.
    pub fn read_events(&self, query: &Query) -> Page {
        self.0.shared.drain_for_reader();
        self.0.shared.page(query)
    }

    /// Offers all events so far to every sink, and returns whether the sinks accepted all of them.
    ///
    /// The sinks run on this thread, after a delivery that is under way. Returns `false` at once if a sink calls it.
    ///
    /// Call it before the program exits, because dropping the log does not wait for its sinks.
    pub fn flush(&self) -> bool {
        self.0.shared.drain();
        pump::deliver(&self.0.shared)
    }

    /// Ends all live streams, after they have received everything recorded so far. Later requests for a stream get a
    /// 503.
    ///
    /// Call it when a graceful shutdown begins, because a server waits for its open responses. The
    /// log still records events, and its sinks still receive them.
    pub fn close(&self) {
        self.0.shared.drain();
        self.0.shared.streams.end_streams();
    }

    /// Returns counters of the log's activity.
    pub fn stats(&self) -> Stats {
        self.0.shared.stats()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

/// Settings of an [`EventLog`].
#[must_use]
pub struct EventLogBuilder {
    capacity: usize,
    max_per_second: u32,
    clock: Option<Arc<dyn Clock>>,
    sinks: Vec<Box<dyn Sink>>,
}

impl EventLogBuilder {
    /// Sets how many events the log keeps. Defaults to 10,000.
    ///
    /// # Errors
    ///
    /// Returns an error if `events` is zero.
    pub fn capacity(mut self, events: usize) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(events == 0, "event log capacity", events, "must be at least 1")?;
        self.capacity = events;
        Ok(self)
    }

    /// Sets how many tallied events per second are recorded individually. Defaults to 1,000. See
    /// [Floods](EventLog#floods).
    ///
    /// # Errors
    ///
    /// Returns an error unless `events` is between 1 and 16,777,215.
    pub fn max_per_second(mut self, events: u32) -> Result<Self, ConfigError> {
        let range = 1..=coalesce::RecordCap::MOST;
        ConfigError::check_range("events per second", events, range, "must be between 1 and 16777215")?;
        self.max_per_second = events;
        Ok(self)
    }

    /// Sets the clock. Defaults to a [`SystemClock`].
    ///
    /// It dates events that this log itself counts, such as refused PKCE challenges and unknown callers of
    /// [`EventService`](super::EventService), and decides when a second has passed. Other events carry the time of the
    /// limiter or the service that records them.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Adds a sink that receives every event. [`Sink`] says on which threads it runs.
    pub fn sink(mut self, sink: impl Sink) -> Self {
        self.sinks.push(Box::new(sink));
        self
    }

    /// Creates the log and starts the thread of its sinks, if there are any.
    pub fn build(self) -> EventLog {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let shared = Arc::new(Shared::new(self.capacity, self.max_per_second, clock));
        if !self.sinks.is_empty() {
            self.sinks.into_iter().for_each(|sink| shared.add_sink(sink));
            pump::ensure(&shared);
        }
        EventLog(Arc::new(Owner { shared }))
    }
}

crate::util::fmt::debug_fields!(EventLogBuilder, |own| capacity: own.capacity, max_per_second: own.max_per_second, sinks: own.sinks.len());

crate::util::builder::default_by_new!(EventLog);

crate::util::fmt::debug_fields!(EventLog, |own| stats: own.stats());
