//! The pump: a thread of the log that delivers events to its sinks and wakes its streams.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    query::Query,
    shared::{Shared, State},
    sink::Sink,
};
use crate::util::{clock::Moment, lock::lock};

/// The maximum delay of a count in a sink or a stream.
const TICK: Duration = Duration::from_millis(250);
/// The pause after each delivery, so that many events in a short time wake the pump once.
const PAUSE: Duration = Duration::from_millis(10);
/// The interval of keep-alive comments in idle streams.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Starts the pump unless it is running already. Returns whether it is running.
pub(super) fn ensure(shared: &Arc<Shared>) -> bool {
    ensure_by(shared, |run| thread::Builder::new().name(String::from("tollgate-events")).spawn(run))
}

fn ensure_by(shared: &Arc<Shared>, spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>) -> bool {
    let mut state = shared.state();
    if state.pump.is_none() {
        let shared = Arc::clone(shared);
        // the thread itself creates the `Pump`: if the spawn fails, dropping a `Pump` here would
        // take the lock that we hold
        let thread = spawn(Box::new(move || Pump::new(shared).run_pump()));
        state.pump = thread.ok().map(|thread| thread.thread().id());
    }
    state.pump.is_some()
}

/// Waits for one full round of the pump. Returns whether every sink has accepted everything.
pub(super) fn flush(shared: &Arc<Shared>) -> bool {
    if lock(&shared.arrivals).is_empty() && shared.state().pump.is_none() {
        return true;
    }
    if !ensure(shared) {
        return false;
    }
    let mut state = shared.state();
    if state.pump == Some(thread::current().id()) {
        // a sink that flushes would wait for itself
        return false;
    }
    state.flushes_asked += 1;
    let asked = state.flushes_asked;
    shared.work.notify_one();
    let state = shared.done.wait_while(state, |state| state.flushes_done < asked);
    state.unwrap_or_else(PoisonError::into_inner).flushed_all
}

struct Pump {
    shared: Arc<Shared>,
    sinks: Vec<SinkPosition>,
    drained: Moment,
    beat: Moment,
}

impl Pump {
    fn new(shared: Arc<Shared>) -> Self {
        let now = shared.clock.now();
        Self { shared, sinks: Vec::new(), drained: now, beat: now }
    }

    fn run_pump(mut self) {
        let mut shown = 0;
        loop {
            let round = self.wait_for_events(shown);
            let now = self.shared.clock.now();
            if round.closed || now.since(self.drained) >= TICK {
                self.drained = now;
                self.shared.drain();
            }
            let beat = now.since(self.beat) >= HEARTBEAT;
            if beat {
                self.beat = now;
                self.shared.streams.beat();
            }
            let newest = {
                let mut state = self.shared.state();
                state.complete = round.closed;
                state.ring.newest()
            };
            if beat || round.closed || newest != shown {
                shown = newest;
                self.shared.streams.wake_streams();
            }
            let all = self.deliver();
            self.answer_flushes(round.flushes, all);
            if round.closed {
                return;
            }
        }
    }

    fn wait_for_events(&self, shown: u64) -> Round {
        let is_asked = |state: &State| state.closed || state.flushes_asked != state.flushes_done;
        // not asleep: events don't wake the pump yet
        let paused = self.shared.work.wait_timeout_while(self.shared.state(), PAUSE, |state| !is_asked(state));
        let mut state = paused.unwrap_or_else(PoisonError::into_inner).0;
        state.asleep = true;
        let is_idle = |state: &mut State| !is_asked(state) && state.ring.newest() == shown;
        let waited = self.shared.work.wait_timeout_while(state, TICK, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.asleep = false;
        Round { closed: state.closed, flushes: state.flushes_asked }
    }

    /// Offers each sink its outstanding events. Returns whether all of them were accepted.
    fn deliver(&mut self) -> bool {
        self.sinks.extend(lock(&self.shared.arrivals).drain(..).map(|(sink, next)| SinkPosition::new(sink, next)));
        let mut all = true;
        self.sinks.retain_mut(|position| {
            all &= position.deliver(&self.shared);
            position.sink.is_some()
        });
        all
    }

    fn answer_flushes(&self, flushes: u64, all: bool) {
        let mut state = self.shared.state();
        if state.flushes_done < flushes {
            state.flushes_done = flushes;
            state.flushed_all = all;
            drop(state);
            self.shared.done.notify_all();
        }
    }
}

impl Drop for Pump {
    /// Also runs if the thread panics: releases everyone who waits for it, and lets the next caller
    /// start a new one.
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.pump = None;
        if state.flushes_done < state.flushes_asked {
            state.flushes_done = state.flushes_asked;
            state.flushed_all = false;
        }
        drop(state);
        self.shared.done.notify_all();
    }
}

struct Round {
    closed: bool,
    flushes: u64,
}

/// A sink and its position in the log.
struct SinkPosition {
    /// `None` after the sink has panicked.
    sink: Option<Box<dyn Sink>>,
    next: u64,
}

/// The number of events that are copied for a sink at a time.
const BATCH: usize = 256;

impl SinkPosition {
    fn new(sink: Box<dyn Sink>, next: u64) -> Self {
        Self { sink: Some(sink), next }
    }

    /// Offers the sink its outstanding events. Returns whether it accepted all of them.
    fn deliver(&mut self, shared: &Shared) -> bool {
        loop {
            let mut query = Query::new().since(self.next);
            query.limit = BATCH;
            let page = shared.page(&query);
            if page.lost > 0 {
                count_lost(shared, page.lost);
            }
            let Some(first) = page.events.first() else { return true };
            self.next = first.id - 1;
            let Some(sink) = &mut self.sink else { return false };
            let taken = catch_unwind(AssertUnwindSafe(|| sink.write(&page.events)));
            let Ok(taken) = taken else {
                self.sink = None;
                shared.failures.fetch_add(1, Relaxed);
                crate::util::trace::warning!("an event log sink panicked and was removed");
                return false;
            };
            if let Some(last) = page.events.iter().take(taken).next_back() {
                self.next = last.id;
            }
            if taken < page.events.len() {
                shared.failures.fetch_add(1, Relaxed);
                return false;
            }
        }
    }
}

fn count_lost(shared: &Shared, lost: u64) {
    shared.lost.fetch_add(lost, Relaxed);
    #[cfg(feature = "metrics")]
    metrics::counter!("tollgate_events_lost_total").increment(lost);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::util::clock::SystemClock;

    #[test]
    fn a_failed_thread_start_does_not_block_and_the_next_attempt_succeeds() {
        let (sender, tried) = mpsc::channel();
        // on another thread, so that a deadlock fails the test
        thread::spawn(move || {
            let shared = Arc::new(Shared::new(10, 1_000, Arc::new(SystemClock::new())));
            let refused = ensure_by(&shared, |run| {
                drop(run);
                Err(io::ErrorKind::WouldBlock.into())
            });
            let started = ensure(&shared);
            let flushed = flush(&shared);
            shared.close();
            sender.send((refused, started, flushed)).unwrap();
        });
        assert_eq!(tried.recv_timeout(Duration::from_secs(30)), Ok((false, true, true)));
    }
}
