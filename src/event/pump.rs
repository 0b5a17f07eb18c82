//! The pump: one thread of a log that carries events to its sinks and wakes its streams.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{lock, shared::Shared, sink_seat::SinkSeat};
use crate::util::clock::{Clock, Moment};

/// How late a count may show in a sink or a stream.
const TICK: Duration = Duration::from_millis(250);
/// How often a stream that is silent shows that it lives.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Starts the pump where it does not run. Whether it runs.
pub(super) fn ensure(shared: &Arc<Shared>) -> bool {
    ensure_by(shared, |run| thread::Builder::new().name(String::from("tollgate-events")).spawn(run))
}

fn ensure_by(shared: &Arc<Shared>, spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>) -> bool {
    let mut state = shared.state();
    if state.pump.is_none() {
        let shared = Arc::clone(shared);
        // made by its own thread: one that can't be started must not be dropped here, for its drop takes this lock
        let thread = spawn(Box::new(move || Pump::new(shared).run()));
        state.pump = thread.ok().map(|thread| thread.thread().id());
    }
    state.pump.is_some()
}

/// Waits for one whole round of the pump. Whether every sink has taken everything.
pub(super) fn flush(shared: &Arc<Shared>) -> bool {
    if lock(&shared.arrivals).is_empty() && shared.state().pump.is_none() {
        return true;
    }
    if !ensure(shared) {
        return false;
    }
    let mut state = shared.state();
    if state.pump == Some(thread::current().id()) {
        // a sink can't wait for itself
        return false;
    }
    state.flushes_asked += 1;
    let asked = state.flushes_asked;
    state.asleep = false;
    shared.work.notify_one();
    let state = shared.done.wait_while(state, |state| state.flushes_done < asked);
    state.unwrap_or_else(std::sync::PoisonError::into_inner).flushed_all
}

struct Pump {
    shared: Arc<Shared>,
    sinks: Vec<SinkSeat>,
    drained: Moment,
    beat: Moment,
}

impl Pump {
    fn new(shared: Arc<Shared>) -> Self {
        let now = shared.clock.now();
        Self { shared, sinks: Vec::new(), drained: now, beat: now }
    }

    fn run(mut self) {
        let mut shown = 0;
        loop {
            let round = self.wait(shown);
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
                self.shared.streams.wake();
            }
            let all = self.deliver();
            self.answer_flushes(round.flushes, all);
            if round.closed {
                return;
            }
        }
    }

    fn wait(&self, shown: u64) -> Round {
        let mut state = self.shared.state();
        state.asleep = true;
        let idle = |state: &mut super::shared::State| {
            state.ring.newest() == shown && state.flushes_asked == state.flushes_done && !state.closed
        };
        let waited = self.shared.work.wait_timeout_while(state, TICK, idle);
        let mut state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        state.asleep = false;
        Round { closed: state.closed, flushes: state.flushes_asked }
    }

    /// Offers each sink what it has not taken. Whether all of it was taken.
    fn deliver(&mut self) -> bool {
        self.sinks.extend(lock(&self.shared.arrivals).drain(..).map(|(sink, next)| SinkSeat::new(sink, next)));
        let mut all = true;
        self.sinks.retain_mut(|seat| {
            all &= seat.deliver(&self.shared);
            seat.is_alive()
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
    /// Should a sink have torn the thread down: nobody waits for it, and the next who needs it starts another.
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_cannot_be_started_hangs_nothing_and_the_next_try_starts_it() {
        let (sender, tried) = mpsc::channel();
        // on a thread of its own, so that a hang is a failure
        thread::spawn(move || {
            let shared = Arc::new(Shared::new(10));
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
