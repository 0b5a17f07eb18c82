//! The pump: one thread of a log that carries events to its sinks and wakes its streams.

use std::{sync::Arc, thread, time::Duration};

use super::{core::Core, lock, sink::SinkSeat};
use crate::clock::{Clock, Moment};

/// How late a count may show in a sink or a stream.
const TICK: Duration = Duration::from_millis(250);
/// How often a stream that is silent shows that it lives.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Starts the pump where it does not run. Whether it runs.
pub(super) fn ensure(core: &Arc<Core>) -> bool {
    let mut state = core.state();
    if state.pump.is_none() {
        let core = Arc::clone(core);
        // made by its own thread: one that can't be started must not be dropped here, for its drop takes this lock
        let run = move || Pump::new(core).run();
        let thread = thread::Builder::new().name(String::from("tollgate-events")).spawn(run);
        state.pump = thread.ok().map(|thread| thread.thread().id());
    }
    state.pump.is_some()
}

/// Waits for one whole round of the pump. Whether every sink has taken everything.
pub(super) fn flush(core: &Arc<Core>) -> bool {
    if lock(&core.arrivals).is_empty() && core.state().pump.is_none() {
        return true;
    }
    if !ensure(core) {
        return false;
    }
    let mut state = core.state();
    if state.pump == Some(thread::current().id()) {
        // a sink can't wait for itself
        return false;
    }
    state.flushes_asked += 1;
    let asked = state.flushes_asked;
    state.asleep = false;
    core.work.notify_one();
    let state = core.done.wait_while(state, |state| state.flushes_done < asked);
    state.unwrap_or_else(std::sync::PoisonError::into_inner).flushed_all
}

struct Pump {
    core: Arc<Core>,
    sinks: Vec<SinkSeat>,
    drained: Moment,
    beat: Moment,
}

impl Pump {
    fn new(core: Arc<Core>) -> Self {
        let now = core.clock.now();
        Self { core, sinks: Vec::new(), drained: now, beat: now }
    }

    fn run(mut self) {
        let mut shown = 0;
        loop {
            let round = self.wait(shown);
            let now = self.core.clock.now();
            if round.closed || now.since(self.drained) >= TICK {
                self.drained = now;
                self.core.drain();
            }
            let beat = now.since(self.beat) >= HEARTBEAT;
            if beat {
                self.beat = now;
                self.core.streams.beat();
            }
            let newest = self.core.state().ring.newest();
            if beat || round.closed || newest != shown {
                shown = newest;
                self.core.streams.wake();
            }
            let all = self.deliver();
            self.answer_flushes(round.flushes, all);
            if round.closed {
                return;
            }
        }
    }

    fn wait(&self, shown: u64) -> Round {
        let mut state = self.core.state();
        state.asleep = true;
        let idle = |state: &mut super::core::State| {
            state.ring.newest() == shown && state.flushes_asked == state.flushes_done && !state.closed
        };
        let waited = self.core.work.wait_timeout_while(state, TICK, idle);
        let mut state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        state.asleep = false;
        Round { closed: state.closed, flushes: state.flushes_asked }
    }

    /// Offers each sink what it has not taken. Whether all of it was taken.
    fn deliver(&mut self) -> bool {
        self.sinks.append(&mut lock(&self.core.arrivals));
        let mut all = true;
        self.sinks.retain_mut(|seat| {
            all &= seat.deliver(&self.core);
            seat.is_alive()
        });
        all
    }

    fn answer_flushes(&self, flushes: u64, all: bool) {
        let mut state = self.core.state();
        if state.flushes_done < flushes {
            state.flushes_done = flushes;
            state.flushed_all = all;
            drop(state);
            self.core.done.notify_all();
        }
    }
}

impl Drop for Pump {
    /// Should a sink have torn the thread down: nobody waits for it, and the next who needs it starts another.
    fn drop(&mut self) {
        let mut state = self.core.state();
        state.pump = None;
        if state.flushes_done < state.flushes_asked {
            state.flushes_done = state.flushes_asked;
            state.flushed_all = false;
        }
        drop(state);
        self.core.done.notify_all();
    }
}

struct Round {
    closed: bool,
    flushes: u64,
}
