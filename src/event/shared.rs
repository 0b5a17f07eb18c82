//! The state of a log, shared by writers, readers and the pump.
//!
//! Lock order: a thread that holds `sinks` may take any other lock, because sinks can call the log. Nobody takes `sinks` while
//! holding another lock. A thread that holds a stripe may take `state`. A thread that holds `state` takes no other lock. The
//! locks of `streams` and `pace` are held together with no lock but `sinks`.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::Waker,
    thread::ThreadId,
};

use super::{
    coalesce::Stripes,
    query::{Page, Query},
    record::Event,
    sink::{Sink, SinkPosition},
};
use crate::{
    tenant::Tenant,
    util::{
        clock::{Clock, Moment},
        lock::lock,
    },
};

pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes the pump.
    pub(super) work: Condvar,
    pub(super) stripes: Stripes,
    pub(super) streams: Streams,
    pub(super) clock: Arc<dyn Clock>,
    pace: Mutex<DrainPace>,
    /// Locked by the thread that delivers.
    pub(super) sinks: Mutex<Vec<SinkPosition>>,
    pub(super) lost: AtomicU64,
    pub(super) failures: AtomicU64,
}

pub(super) struct State {
    pub(super) ring: Ring,
    pub(super) closed: bool,
    /// The log is closed, and every pending count is in the ring.
    pub(super) complete: bool,
    /// The thread of the pump, while it runs.
    pub(super) pump: Option<ThreadId>,
    /// The pump sleeps, and the next event must wake it.
    pub(super) asleep: bool,
    /// The thread that delivers events to the sinks.
    pub(super) delivering: Option<ThreadId>,
}

impl State {
    /// Returns whether the log is complete. Without a running pump, nothing more can be added after
    /// it is closed.
    pub(super) fn is_over(&self) -> bool {
        self.closed && (self.complete || self.pump.is_none())
    }
}

/// The number of events read under one lock.
const CHUNK: usize = 256;

impl Shared {
    pub(super) fn new(capacity: usize, max_per_second: u32, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            ring: Ring::new(capacity),
            closed: false,
            complete: false,
            pump: None,
            asleep: false,
            delivering: None,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            stripes: Stripes::new(max_per_second),
            streams: Streams::default(),
            clock,
            pace: Mutex::default(),
            sinks: Mutex::default(),
            lost: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn append(&self, event: Event) -> u64 {
        let mut state = self.state();
        let id = state.ring.push(event);
        let asleep = mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.work.notify_one();
        }
        id
    }

    pub(super) fn tally(&self, event: &Event) {
        self.stripes.tally(event, |event| {
            self.append(event);
        });
    }

    pub(super) fn drain(&self) {
        self.stripes.drain(|event| {
            self.append(event);
        });
    }

    pub(super) fn drain_for_reader(&self) {
        if lock(&self.pace).allows(self.clock.now()) {
            self.drain();
        }
    }

    /// Returns the page for this query. Other threads may record while it is assembled.
    pub(super) fn page(&self, query: &Query) -> Page {
        let newest = self.state().ring.newest();
        // an unknown number is from before a restart: begin with the oldest event
        let after = query.since.filter(|since| *since <= newest).unwrap_or(0);
        let mut page = Page { events: Vec::new(), next: after, lost: 0 };
        while page.next < newest {
            let state = self.state();
            let (lost, events) = state.ring.scan(page.next, CHUNK);
            page.lost += lost;
            page.next += lost;
            for event in events {
                page.next = event.id;
                if query.matches(event) {
                    page.events.push(event.clone());
                    if page.events.len() >= query.limit {
                        return page;
                    }
                }
            }
        }
        page
    }

    pub(super) fn add_sink(&self, sink: Box<dyn Sink>) {
        let next = self.state().ring.newest();
        lock(&self.sinks).push(SinkPosition { sink: Some(sink), next });
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.work.notify_one();
    }

    pub(super) fn stats(&self) -> Stats {
        let recorded = self.state().ring.newest();
        Stats {
            recorded,
            coalesced: self.stripes.coalesced(),
            lost: self.lost.load(Relaxed),
            sink_failures: self.failures.load(Relaxed),
            streams: self.streams.len(),
        }
    }
}

/// Counters of an [`EventLog`](super::EventLog).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Events with a number in the log.
    pub recorded: u64,
    /// Tallied events that were counted instead of recorded individually.
    pub coalesced: u64,
    /// Events that were overwritten before a sink received them, summed over all sinks.
    pub lost: u64,
    /// How often a sink did not accept all events that it was offered. They are offered again.
    pub sink_failures: u64,
    /// The number of open live streams.
    pub streams: usize,
}

/// A ring buffer of the newest events, numbered without gaps.
#[derive(Debug)]
pub(super) struct Ring {
    events: VecDeque<Event>,
    capacity: usize,
    newest: u64,
}

/// Capacity that is allocated up front, so that a ring of the default size never reallocates.
const ROOM_AT_FIRST: usize = 10_000;

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self { events: VecDeque::with_capacity(capacity.min(ROOM_AT_FIRST)), capacity, newest: 0 }
    }

    /// Returns the number of the newest event that was ever recorded.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    pub(super) fn push(&mut self, mut event: Event) -> u64 {
        if self.events.len() >= self.capacity {
            self.events.pop_front();
        }
        self.newest += 1;
        event.id = self.newest;
        self.events.push_back(event);
        self.newest
    }

    /// Returns how many events after `after` are overwritten, and at most `most` of those that
    /// follow them.
    pub(super) fn scan(&self, after: u64, most: usize) -> (u64, impl Iterator<Item = &Event>) {
        let oldest = self.newest - self.events.len() as u64 + 1;
        let wanted = after.saturating_add(1);
        let lost = oldest.saturating_sub(wanted);
        let skip = usize::try_from(wanted.saturating_sub(oldest)).unwrap_or(usize::MAX);
        (lost, self.events.range(skip.min(self.events.len())..).take(most))
    }
}

#[derive(Debug, Default)]
pub(super) struct Streams {
    listeners: Mutex<Vec<Listener>>,
    numbers: AtomicU64,
    beats: AtomicU64,
    ended: AtomicBool,
}

#[derive(Debug)]
struct Listener {
    number: u64,
    tenant: Option<Tenant>,
    waker: Option<Waker>,
}

impl Streams {
    /// Registers a stream of this tenant, or of an operator, and returns its number. Returns `None`
    /// if `max` is reached or all streams have ended.
    ///
    /// One tenant gets at most a quarter of the places, so that it cannot lock out the others, and
    /// one place is reserved for operators.
    pub(super) fn register_stream(&self, tenant: Option<Tenant>, max: usize) -> Option<u64> {
        let mut listeners = lock(&self.listeners);
        let tenants = listeners.iter().filter(|listener| listener.tenant.is_some()).count();
        let own = listeners.iter().filter(|listener| listener.tenant == tenant).count();
        // a single place cannot be reserved
        let for_tenants = max.saturating_sub(1).max(1);
        if self.is_ended()
            || listeners.len() >= max
            || (tenant.is_some() && (own >= max.div_ceil(4) || tenants >= for_tenants))
        {
            return None;
        }
        let number = self.numbers.fetch_add(1, Relaxed);
        listeners.push(Listener { number, tenant, waker: None });
        Some(number)
    }

    /// Wakes this stream when there is something new.
    pub(super) fn register_waker(&self, number: u64, waker: &Waker) {
        if let Some(listener) = lock(&self.listeners).iter_mut().find(|listener| listener.number == number) {
            match &mut listener.waker {
                Some(old) => old.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }

    pub(super) fn leave(&self, number: u64) {
        lock(&self.listeners).retain(|listener| listener.number != number);
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.listeners).len()
    }

    /// Ends the streams that are open, and lets no other begin.
    pub(super) fn end_streams(&self) {
        self.ended.store(true, Release);
        self.wake_streams();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// Counts one more heartbeat.
    pub(super) fn beat(&self) {
        self.beats.fetch_add(1, Relaxed);
    }

    pub(super) fn beats(&self) -> u64 {
        self.beats.load(Relaxed)
    }

    pub(super) fn wake_streams(&self) {
        let wakers: Vec<Waker> =
            lock(&self.listeners).iter_mut().filter_map(|listener| listener.waker.take()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Limits how many reads per second flush the pending counts, so that frequent reads can't fill the
/// log with counts.
#[derive(Debug, Default)]
pub(super) struct DrainPace {
    began: Moment,
    drains: u32,
}

impl DrainPace {
    pub(super) const DRAINS_PER_SECOND: u32 = 20;

    pub(super) fn allows(&mut self, now: Moment) -> bool {
        if now.since(self.began).as_secs() >= 1 {
            *self = Self { began: now, drains: 0 };
        }
        self.drains += 1;
        self.drains <= Self::DRAINS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{event::kind::EventKind, util::clock::UnixTime};

    proptest! {
        #[test]
        fn kept_and_lost_events_add_up(
            capacity in 1_usize..20, recorded in 0_u64..60, after in 0_u64..80, most in 0_usize..30,
        ) {
            let mut ring = Ring::new(capacity);
            for id in 1..=recorded {
                prop_assert_eq!(ring.push(Event::new(EventKind::TenantReset, UnixTime::default())), id);
            }
            let (lost, events) = ring.scan(after, most);
            let ids: Vec<u64> = events.map(|event| event.id).collect();
            let kept = recorded.saturating_sub(capacity as u64);
            prop_assert_eq!(lost, kept.saturating_sub(after));
            let expected: Vec<u64> = (after.max(kept) + 1..=recorded).take(most).collect();
            prop_assert_eq!(ids, expected);
        }
    }

    #[test]
    fn readers_get_the_newest_counts_twenty_times_a_second() {
        let mut pace = DrainPace::default();
        let now = Moment::from_nanos(5_000_000_000);
        assert_eq!((0..100).filter(|_| pace.allows(now)).count(), 20);
        assert!(!pace.allows(now + Duration::from_millis(999)));
        assert!(pace.allows(now + Duration::from_secs(1)));
    }
}
