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
    sink::SinkPosition,
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

/// Offers each sink its outstanding events, on this thread. Returns whether all of them were accepted. If there are sinks, it also
/// starts the pump again if it has ended.
pub(super) fn deliver(shared: &Arc<Shared>) -> bool {
    let own = thread::current().id();
    if shared.state().delivering == Some(own) {
        // a sink that flushes would wait for itself
        return false;
    }
    let mut sinks = lock(&shared.sinks);
    if !sinks.is_empty() {
        ensure(shared);
    }
    shared.state().delivering = Some(own);
    let mut all = true;
    sinks.retain_mut(|position| {
        all &= position.deliver(shared);
        position.sink.is_some()
    });
    shared.state().delivering = None;
    all
}

struct Pump {
    shared: Arc<Shared>,
    drained: Moment,
    beat: Moment,
}

impl Pump {
    fn new(shared: Arc<Shared>) -> Self {
        let now = shared.clock.now();
        Self { shared, drained: now, beat: now }
    }

    fn run_pump(mut self) {
        let mut shown = 0;
        loop {
            let is_closed = self.wait_for_events(shown);
            let now = self.shared.clock.now();
            if is_closed || now.since(self.drained) >= TICK {
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
                state.complete = is_closed;
                state.ring.newest()
            };
            if beat || is_closed || newest != shown {
                shown = newest;
                self.shared.streams.wake_streams();
            }
            deliver(&self.shared);
            if is_closed {
                lock(&self.shared.sinks).clear();
                return;
            }
        }
    }

    /// Waits for something to do. Returns whether the log is closed.
    fn wait_for_events(&self, shown: u64) -> bool {
        // not asleep: events don't wake the pump yet
        let paused = self.shared.work.wait_timeout_while(self.shared.state(), PAUSE, |state| !state.closed);
        let mut state = paused.unwrap_or_else(PoisonError::into_inner).0;
        state.asleep = true;
        let is_idle = |state: &mut State| !state.closed && state.ring.newest() == shown;
        let waited = self.shared.work.wait_timeout_while(state, TICK, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.asleep = false;
        state.closed
    }
}

impl Drop for Pump {
    /// Also runs if the thread panics, so that the next caller starts a new one.
    fn drop(&mut self) {
        self.shared.state().pump = None;
    }
}

/// The number of events that are copied for a sink at a time.
const BATCH: usize = 256;

impl SinkPosition {
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
    use crate::{event::Event, util::clock::SystemClock};

    #[test]
    fn a_failed_thread_start_does_not_block_and_the_next_delivery_tries_again() {
        let (sender, tried) = mpsc::channel();
        // on another thread, so that a deadlock fails the test
        thread::spawn(move || {
            let shared = Arc::new(Shared::new(10, 1_000, Arc::new(SystemClock::new())));
            let refused = ensure_by(&shared, |run| {
                drop(run);
                Err(io::ErrorKind::WouldBlock.into())
            });
            // without sinks, nothing needs the thread
            let flushed = deliver(&shared);
            let is_idle = shared.state().pump.is_none();
            shared.add_sink(Box::new(|_: &[Event]| ()));
            let flushed = flushed && deliver(&shared);
            let started = shared.state().pump.is_some();
            shared.close();
            sender.send((refused, flushed, is_idle, started)).unwrap();
        });
        assert_eq!(tried.recv_timeout(Duration::from_secs(30)), Ok((false, true, true, true)));
    }
}
