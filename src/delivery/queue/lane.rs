use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, task::yield_now};

use super::{LaneStats, Undelivered, attempts::deliver, settings::Settings};
use crate::delivery::{message::Message, sender::AnySender};

/// The jobs of one channel. A worker is there while there are jobs, and no longer.
pub(super) struct Lane {
    sender: AnySender,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Option<Message>>,
    workers: usize,
    sent: u64,
    undelivered: u64,
}

impl Lane {
    pub(super) fn new(sender: AnySender) -> Self {
        Self { sender, state: Mutex::default() }
    }

    /// Takes a job, or gives it back where there is no room. The seat is for a worker that the caller starts.
    pub(super) fn push(
        self: &Arc<Self>,
        job: Option<Message>,
        settings: &Settings,
    ) -> Result<Option<Seat>, Option<Message>> {
        let mut state = self.lock();
        // what is only there for show leaves half of the room to what is real, and a place that it does not get nobody misses
        let room = if job.is_some() { settings.capacity } else { settings.capacity.div_ceil(2) };
        if state.jobs.len() >= room {
            state.undelivered += u64::from(job.is_some());
            return Err(job);
        }
        state.jobs.push_back(job);
        if state.workers >= settings.workers {
            return Ok(None);
        }
        state.workers += 1;
        Ok(Some(Seat { lane: Arc::clone(self), taken: true }))
    }

    /// Counts a message that never got in.
    pub(super) fn lost(&self, is_message: bool) {
        self.lock().undelivered += u64::from(is_message);
    }

    pub(super) fn stats(&self) -> LaneStats {
        let state = self.lock();
        LaneStats { waiting: state.jobs.len(), sent: state.sent, undelivered: state.undelivered }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("sender", &self.sender).field("stats", &self.stats()).finish()
    }
}

/// A worker's place. It is free again when the worker ends, also if its runtime ends with it.
pub(super) struct Seat {
    lane: Arc<Lane>,
    taken: bool,
}

impl Seat {
    /// The next job. Where there is none the place is given up in the same breath: who pushes then starts a worker.
    fn next(&mut self) -> Option<Option<Message>> {
        let mut state = self.lane.lock();
        let job = state.jobs.pop_front();
        if job.is_none() {
            state.workers -= 1;
            self.taken = false;
        }
        job
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.taken {
            self.lane.lock().workers -= 1;
        }
    }
}

/// Works until no job is left.
pub(super) async fn work(mut seat: Seat, settings: Arc<Settings>, alive: watch::Receiver<()>) {
    while let Some(job) = seat.next() {
        if let Some(message) = job {
            let lane = Arc::clone(&seat.lane);
            let mut pending = Pending { lane: &lane, settings: &settings, message: &message, outcome: None };
            pending.outcome = Some(deliver(&lane.sender, &message, &settings, &mut alive.clone()).await);
        }
        // a message and a decoy are a step each, and others have their turn in between
        yield_now().await;
    }
}

/// Sees to it that each message is accounted for, also one whose worker is dropped.
struct Pending<'a> {
    lane: &'a Lane,
    settings: &'a Settings,
    message: &'a Message,
    outcome: Option<Result<(), Undelivered>>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or(Err(Undelivered::Stopped));
        {
            let mut state = self.lane.lock();
            state.sent += u64::from(outcome.is_ok());
            state.undelivered += u64::from(outcome.is_err());
        }
        if let Err(why) = outcome {
            self.settings.report(self.message, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::outbox::Outbox;

    #[test]
    fn who_pushes_once_a_worker_has_found_nothing_starts_another() {
        let lane = Arc::new(Lane::new(Outbox::new().into()));
        let settings = Settings { workers: 1, ..Settings::default() };
        let starts_one = || lane.push(None, &settings).unwrap();
        let mut first = starts_one().unwrap();
        assert!(starts_one().is_none());
        assert!(first.next().is_some() && first.next().is_some() && first.next().is_none());
        // the first is still there, and will not look again
        let second = starts_one().unwrap();
        drop(first);
        assert!(starts_one().is_none(), "a place was freed twice");
        drop(second);
        assert!(starts_one().is_some());
    }
}
