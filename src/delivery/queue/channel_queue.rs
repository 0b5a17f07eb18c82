use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::yield_now,
    time::{Instant, timeout},
};

use super::{
    Undelivered,
    attempts::{deliver, jitter, remaining_validity},
    recent::RecentTimes,
    settings::Settings,
};
use crate::{
    delivery::{message::Message, sender::AnySender},
    support::fair_queue::FairQueue,
    tenant::Tenant,
    util::lock::lock,
};

/// The jobs of one channel. Workers exist only while there are jobs.
pub(super) struct ChannelQueue {
    sender: AnySender,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: FairQueue<Tenant, Job>,
    /// How many of the jobs are notices.
    notices: usize,
    workers: usize,
    recent: RecentTimes,
}

/// A message, or a decoy that takes its place.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) message: Message,
    pub(super) is_decoy: bool,
}

impl Job {
    fn is_notice(&self) -> bool {
        self.message.notice().is_some()
    }
}

/// What became of a job that was pushed.
pub(super) struct Pushed {
    /// The place of a worker that must be started.
    pub(super) slot: Option<WorkerSlot>,
    /// The job that found no room: this one, or one of another tenant that had more.
    pub(super) refused: Option<Job>,
    pub(super) is_taken: bool,
}

impl ChannelQueue {
    pub(super) fn new(sender: AnySender) -> Self {
        Self { sender, state: Mutex::default() }
    }

    /// Queues a job, if there is room. Decoys are treated like the codes whose places they take.
    pub(super) fn push(self: &Arc<Self>, job: Job, settings: &Settings) -> Pushed {
        let (mut state, tenant) = (lock(&self.state), job.message.tenant().clone());
        // notices use at most half of the room, so that they leave some to codes
        let has_room = !job.is_notice() || state.notices < settings.capacity.div_ceil(2);
        let is_full = state.jobs.len() >= settings.capacity;
        let refused = if has_room && is_full { state.jobs.displace(&tenant) } else { None };
        if !has_room || (is_full && refused.is_none()) {
            return Pushed { slot: None, refused: Some(job), is_taken: false };
        }
        if let Some(displaced) = &refused {
            state.notices -= usize::from(displaced.is_notice());
        }
        state.notices += usize::from(job.is_notice());
        state.jobs.push(tenant, job);
        let starts = state.workers < settings.workers;
        state.workers += usize::from(starts);
        let slot = starts.then(|| WorkerSlot { queue: Arc::clone(self), taken: true });
        Pushed { slot, refused, is_taken: true }
    }

    /// Removes the messages to this recipient.
    pub(super) fn forget(&self, tenant: &Tenant, to: &str) {
        let mut state = lock(&self.state);
        let notices = Cell::new(0);
        state.jobs.retain(|job| {
            let is_kept = job.is_decoy || job.message.tenant() != tenant || job.message.to() != to;
            notices.set(notices.get() + usize::from(is_kept && job.is_notice()));
            is_kept
        });
        state.notices = notices.get();
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).jobs.len()
    }
}

/// A running worker. Releases its place when it is dropped, even if the runtime shuts down.
pub(super) struct WorkerSlot {
    queue: Arc<ChannelQueue>,
    taken: bool,
}

impl WorkerSlot {
    /// Returns the next job. If the queue is empty, releases the place under the same lock, so that
    /// the next push starts a worker.
    fn next(&mut self) -> Option<Job> {
        let mut state = lock(&self.queue.state);
        let job = state.jobs.pop();
        match &job {
            Some(job) => state.notices -= usize::from(job.is_notice()),
            None => {
                state.workers -= 1;
                self.taken = false;
            }
        }
        job
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        if self.taken {
            lock(&self.queue.state).workers -= 1;
        }
    }
}

/// Processes jobs until none is left.
pub(super) async fn work(mut slot: WorkerSlot, settings: Arc<Settings>, mut alive: watch::Receiver<()>) {
    let mut overslept = Duration::ZERO;
    while let Some(Job { message, is_decoy }) = slot.next() {
        let queue = Arc::clone(&slot.queue);
        if is_decoy {
            overslept = keep_place(&queue, &message, &settings, &mut alive, overslept).await;
        } else {
            let (began, is_timely) = (Instant::now(), remaining_validity(&message, &settings).is_some());
            let mut pending = Pending { settings: &settings, message: &message, outcome: None };
            let outcome = deliver(&queue.sender, &message, &settings, &mut alive).await;
            pending.outcome = Some(outcome);
            if message.link().is_some() && outcome == Err(Undelivered::Refused) {
                // a sender may refuse all links at once, which would show whose place this is
                keep_place(&queue, &message, &settings, &mut alive, began.elapsed()).await;
            } else if is_timely && outcome != Err(Undelivered::Stopped) {
                lock(&queue.state).recent.note(began.elapsed());
            }
        }
        // a message and a decoy take one step each, so that others can run in between
        yield_now().await;
    }
}

/// Waits as long as a message would take. Timers are late by up to a few milliseconds, so decoys before this one have
/// `overslept`, which it makes up for. Returns by how much they have then.
async fn keep_place(
    queue: &ChannelQueue,
    decoy: &Message,
    settings: &Settings,
    alive: &mut watch::Receiver<()>,
    overslept: Duration,
) -> Duration {
    // like a message, it is dropped if it is too late for it
    let (Some(left), true) = (remaining_validity(decoy, settings), alive.has_changed().is_ok()) else {
        return overslept;
    };
    let time = lock(&queue.state).recent.draw(jitter()).min(left);
    let Some(wait) = time.checked_sub(overslept).filter(|wait| !wait.is_zero()) else { return overslept - time };
    let began = Instant::now();
    let _stopped = timeout(wait, alive.changed()).await;
    began.elapsed().saturating_sub(wait)
}

/// Accounts for each message, even if its worker is dropped.
struct Pending<'a> {
    settings: &'a Settings,
    message: &'a Message,
    outcome: Option<Result<(), Undelivered>>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Err(why) = self.outcome.unwrap_or(Err(Undelivered::Stopped)) {
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
            link::{Link, LinkKind},
            notice::{Notice, NoticeKind},
            outbox::Outbox,
        },
        util::clock::UnixTime,
    };

    fn code() -> Job {
        of_tenant("acme")
    }

    fn notice(tenant: &str) -> Job {
        let notice = Notice::new(NoticeKind::PasskeyAdded, UnixTime::default());
        let late = UnixTime::from_secs(1);
        let message = Message::of_notice(Channel::Sms, tenant.parse().unwrap(), "+15555550100", notice, late);
        Job { message, is_decoy: false }
    }

    fn of_tenant(tenant: &str) -> Job {
        let late = UnixTime::from_secs(1);
        let message = Message::new(Channel::Sms, tenant.parse().unwrap(), "+15555550100", "123456", late);
        Job { message, is_decoy: false }
    }

    #[test]
    fn notices_leave_half_of_the_room_to_codes_and_decoys_count_as_codes() {
        let queue = Arc::new(ChannelQueue::new(Outbox::new().into()));
        let settings = Settings { capacity: 4, ..Settings::default() };
        let notice = notice("acme");
        let mut slots = Vec::new();
        let mut push = |job: Job| {
            let pushed = queue.push(job, &settings);
            slots.extend(pushed.slot);
            pushed.is_taken
        };
        let decoy = || Job { is_decoy: true, ..code() };
        assert!(push(notice.clone()) && push(notice.clone()));
        assert!(!push(notice));
        assert!(push(decoy()) && push(code()) && !push(code()) && !push(decoy()));
    }

    #[test]
    fn b02_waiting_decoys_of_other_tenants_suppress_no_notice() {
        let queue = Arc::new(ChannelQueue::new(Outbox::new().into()));
        let settings = Settings { capacity: 4, ..Settings::default() };
        let mut slots = Vec::new();
        let mut push = |job: Job| {
            let pushed = queue.push(job, &settings);
            slots.extend(pushed.slot);
            pushed.is_taken
        };
        for _ in 0..4 {
            assert!(push(Job { is_decoy: true, ..code() }));
        }
        assert!(push(notice("globex")) && push(notice("globex")));
        assert!(!push(notice("globex")), "notices have half of the room");
    }

    #[test]
    fn b02_a_full_channel_has_room_for_a_tenant_with_fewer_jobs() {
        let queue = Arc::new(ChannelQueue::new(Outbox::new().into()));
        let settings = Settings { capacity: 4, ..Settings::default() };
        let mut slots = Vec::new();
        let mut push = |job: Job| {
            let pushed = queue.push(job, &settings);
            slots.extend(pushed.slot);
            (pushed.is_taken, pushed.refused.map(|job| job.message.tenant().to_string()))
        };
        for number in 0..4 {
            assert_eq!(push(Job { is_decoy: number % 2 == 0, ..code() }), (true, None));
        }
        let from_acme = Some("acme".to_owned());
        assert_eq!(push(of_tenant("globex")), (true, from_acme.clone()));
        assert_eq!(push(of_tenant("globex")), (true, from_acme.clone()));
        // both have two now
        assert_eq!(push(code()), (false, from_acme));
        assert_eq!(push(of_tenant("globex")), (false, Some("globex".to_owned())));
        assert_eq!(queue.waiting(), 4);
    }

    struct OnlyCodes;

    impl crate::delivery::OtpSender for OnlyCodes {
        async fn send(&self, message: &Message) -> Result<(), crate::delivery::SendError> {
            if message.link().is_some() {
                return Err(crate::delivery::SendError::permanent("only codes"));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn c133_a_link_that_is_refused_at_once_keeps_its_place_as_long_as_a_code() {
        let queue = Arc::new(ChannelQueue::new(OnlyCodes.into()));
        let (settings, (_running, alive)) = (Arc::new(Settings::default()), watch::channel(()));
        let link = Link::new(LinkKind::Invitation, "https://auth.example/sign-up#invitation=x");
        let to = "ada@example.com";
        let message = Message::of_link(Channel::Email, "acme".parse().unwrap(), to, link, UnixTime::FOREVER);
        let (tenant, until) = (message.tenant().clone(), message.expires_at());
        let sent = Job { message: Message::new(Channel::Email, tenant, to, "123456", until), is_decoy: false };
        let refused = Job { message, is_decoy: false };
        let run = async |job: &Job| {
            let slot = queue.push(job.clone(), &settings).slot.unwrap();
            let began = Instant::now();
            work(slot, Arc::clone(&settings), alive.clone()).await;
            began.elapsed().as_millis()
        };
        let near = |took: u128, expected: u128| assert!(took.abs_diff(expected) <= 2, "{took}, not {expected}");
        near(run(&refused).await, 200);
        near(run(&sent).await, 300);
        for _ in 0..16 {
            near(run(&refused).await, 300);
        }
        near(run(&Job { is_decoy: true, ..sent.clone() }).await, 300);
    }

    #[test]
    fn a_push_after_a_worker_ran_dry_starts_another() {
        let queue = Arc::new(ChannelQueue::new(Outbox::new().into()));
        let settings = Settings { workers: 1, ..Settings::default() };
        let starts_one = || queue.push(code(), &settings).slot;
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
