use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, task::yield_now};

use super::{LaneStats, Undelivered, attempts::deliver, settings::Settings};
use crate::delivery::{message::Message, sender::AnySender};

/// The jobs of one channel. Workers exist only while there are jobs.
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

    /// Queues a job, or returns it if there is no room. If a worker must be started, its slot is
    /// returned.
    pub(super) fn push(
        self: &Arc<Self>,
        job: Option<Message>,
        settings: &Settings,
    ) -> Result<Option<WorkerSlot>, Option<Message>> {
        let mut state = self.lock();
        // decoys and notices use at most half of the room, so that they can't displace codes
        let is_code = job.as_ref().is_some_and(|message| message.notice().is_none());
        let room = if is_code { settings.capacity } else { settings.capacity.div_ceil(2) };
        if state.jobs.len() >= room {
            state.undelivered += u64::from(job.is_some());
            return Err(job);
        }
        state.jobs.push_back(job);
        if state.workers >= settings.workers {
            return Ok(None);
        }
        state.workers += 1;
        Ok(Some(WorkerSlot { lane: Arc::clone(self), taken: true }))
    }

    /// Counts a message that was not queued.
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

/// A running worker. Releases its place when it is dropped, even if the runtime shuts down.
pub(super) struct WorkerSlot {
    lane: Arc<Lane>,
    taken: bool,
}

impl WorkerSlot {
    /// Returns the next job. If the lane is empty, releases the place under the same lock, so that
    /// the next push starts a worker.
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

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        if self.taken {
            self.lane.lock().workers -= 1;
        }
    }
}

/// Processes jobs until none is left.
pub(super) async fn work(mut slot: WorkerSlot, settings: Arc<Settings>, alive: watch::Receiver<()>) {
    while let Some(job) = slot.next() {
        if let Some(message) = job {
            let lane = Arc::clone(&slot.lane);
            let mut pending = Pending { lane: &lane, settings: &settings, message: &message, outcome: None };
            pending.outcome = Some(deliver(&lane.sender, &message, &settings, &mut alive.clone()).await);
        }
        // a message and a decoy take one step each, so that others can run in between
        yield_now().await;
    }
}

/// Accounts for each message, even if its worker is dropped.
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
    use crate::{
        delivery::{
            channel::Channel,
            notice::{Notice, NoticeKind},
            outbox::Outbox,
        },
        util::clock::UnixTime,
    };

    #[test]
    fn notices_and_decoys_leave_half_of_the_room_to_codes() {
        let lane = Arc::new(Lane::new(Outbox::new().into()));
        let settings = Settings { capacity: 4, ..Settings::default() };
        let (tenant, late) = ("acme".parse().unwrap(), UnixTime::from_secs(1));
        let notice = Notice::new(NoticeKind::PasskeyAdded, UnixTime::default());
        let notice = Message::of_notice(Channel::Sms, tenant, "+15555550100", notice, late);
        let code = Message::new(Channel::Sms, "acme".parse().unwrap(), "+15555550100", "123456", late);
        let mut slots = Vec::new();
        let mut push = |job: Option<&Message>| lane.push(job.cloned(), &settings).map(|slot| slots.push(slot)).is_ok();
        assert!(push(Some(&notice)) && push(Some(&notice)));
        assert!(!push(Some(&notice)) && !push(None));
        assert!(push(Some(&code)) && push(Some(&code)) && !push(Some(&code)));
        assert_eq!(lane.stats().undelivered, 2);
    }

    #[test]
    fn a_push_after_a_worker_ran_dry_starts_another() {
        let lane = Arc::new(Lane::new(Outbox::new().into()));
        let settings = Settings { workers: 1, ..Settings::default() };
        let starts_one = || lane.push(None, &settings).unwrap();
        let mut first = starts_one().unwrap();
        assert!(starts_one().is_none());
        assert!(first.next().is_some() && first.next().is_some() && first.next().is_none());
        // the first one still exists, but does not look for jobs again
        let second = starts_one().unwrap();
        drop(first);
        assert!(starts_one().is_none(), "a place was released twice");
        drop(second);
        assert!(starts_one().is_some());
    }
}
