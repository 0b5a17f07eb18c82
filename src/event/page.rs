use super::Event;

/// Some of the log, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The events.
    pub events: Vec<Event>,
    /// Where to go on: the `since` of the next query. Events that did not match are passed over by it too.
    pub next: u64,
    /// How many events after `since` made room for newer ones before they were
    /// read, of any tenant and kind.
    pub lost: u64,
}

/// What a log has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Events that got a number.
    pub recorded: u64,
    /// Tallied events that were counted instead.
    pub coalesced: u64,
    /// Events that made room for newer ones before a sink took them, summed over the sinks.
    pub lost: u64,
    /// Events that sinks gave up, as a full channel does.
    pub dropped: u64,
    /// How often a sink did not take all that it was offered. It is offered again.
    pub sink_failures: u64,
    /// Live streams that are open.
    pub streams: usize,
}
