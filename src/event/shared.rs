//! The state of a log, shared by those who record, read, and carry on.
//!
//! The order of the locks: who holds a stripe or `arrivals` may take `state`; who
//! holds `state` takes no other lock. The places of the streams and `pace` are
//! held beside none.

use std::{
    mem,
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::ThreadId,
};

use super::{Event, Page, Query, Sink, Stats, budget::Pace, coalesce::Stripes, lock, ring::Ring, streams::Streams};
use crate::util::clock::{Clock, SystemClock};

pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes the pump.
    pub(super) work: Condvar,
    /// Wakes those who wait for the pump.
    pub(super) done: Condvar,
    pub(super) stripes: Stripes,
    pub(super) streams: Streams,
    pub(super) clock: SystemClock,
    pace: Mutex<Pace>,
    /// Sinks that the pump has not taken over yet, each with the event before its first.
    pub(super) arrivals: Mutex<Vec<(Box<dyn Sink>, u64)>>,
    pub(super) lost: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) failures: AtomicU64,
}

pub(super) struct State {
    pub(super) ring: Ring,
    pub(super) closed: bool,
    /// It is closed, and every count is in the ring.
    pub(super) complete: bool,
    /// The pump, once it runs.
    pub(super) pump: Option<ThreadId>,
    /// The pump sleeps, and whoever has work for it must wake it.
    pub(super) asleep: bool,
    pub(super) flushes_asked: u64,
    pub(super) flushes_done: u64,
    /// Whether all sinks had taken everything at the last flush.
    pub(super) flushed_all: bool,
}

impl State {
    /// Nothing will be added any more; without a pump there is nobody who would.
    pub(super) fn is_over(&self) -> bool {
        self.closed && (self.complete || self.pump.is_none())
    }
}

/// Events that are looked at under one lock.
const CHUNK: usize = 256;

impl Shared {
    pub(super) fn new(capacity: usize) -> Self {
        let state = State {
            ring: Ring::new(capacity),
            closed: false,
            complete: false,
            pump: None,
            asleep: false,
            flushes_asked: 0,
            flushes_done: 0,
            flushed_all: true,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
            stripes: Stripes::new(),
            streams: Streams::default(),
            clock: SystemClock::new(),
            pace: Mutex::default(),
            arrivals: Mutex::default(),
            lost: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn append(&self, event: Event) -> u64 {
        let mut state = self.state();
        let id = state.ring.push(event);
        self.wake_pump(state);
        id
    }

    pub(super) fn wake_pump(&self, mut state: MutexGuard<'_, State>) {
        let asleep = mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.work.notify_one();
        }
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

    /// What the ring holds for this query. Others record between its chunks.
    pub(super) fn page(&self, query: &Query) -> Page {
        let newest = self.state().ring.newest();
        // a number from another life of the log: begin with the oldest
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
        lock(&self.arrivals).push((sink, next));
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        self.wake_pump(state);
    }

    pub(super) fn stats(&self) -> Stats {
        let recorded = self.state().ring.newest();
        Stats {
            recorded,
            coalesced: self.stripes.coalesced(),
            lost: self.lost.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            sink_failures: self.failures.load(Relaxed),
            streams: self.streams.len(),
        }
    }
}
