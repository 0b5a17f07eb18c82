//! A queue that sends messages in the background.

mod attempts;
mod guard;
mod lane;
mod recent;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::{runtime::Handle, sync::watch};

use self::{
    lane::{Job, Lane, Pushed, work},
    settings::Settings,
};
use super::{channel::Channel, message::Message, sender::AnySender};
use crate::{
    tenant::Tenant,
    util::{builder::setters, clock::Clock, error::ConfigError, fmt::named_enum},
};

named_enum! {
    /// Why a message was not delivered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Undelivered {
        /// The queue of its channel was full, or became full while other tenants had fewer messages in it.
        Full = "full",
        /// Its channel has no sender.
        NoSender = "no_sender",
        /// The sender failed permanently or panicked.
        Refused = "refused",
        /// All attempts failed.
        Exhausted = "exhausted",
        /// It expired, or would have expired before the next attempt.
        Expired = "expired",
        /// The queue was dropped or its runtime ended first. The message may have been sent.
        Stopped = "stopped",
    }

    /// Returns a stable name for logs.
    pub fn as_str;
}

/// Counters of a channel. Decoys count only while they wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelStats {
    /// Messages and decoys that wait for a worker.
    pub waiting: usize,
    /// Sent messages.
    pub sent: u64,
    /// Messages that could not be delivered.
    pub undelivered: u64,
}

/// Sends messages in the background. [`push`](Self::push) never waits.
///
/// Tenants take turns, so a flood of one does not delay the others. If a requested code has no recipient, a
/// [decoy](Self::push_decoy) waits in its place and then keeps a worker busy for as long as one of the last messages
/// did. The owner of a mailbox therefore cannot infer, from when their own message arrives, how many of the codes
/// requested before it were sent.
///
/// Each channel has its own sender, bounded queue and workers, so a slow gateway does not delay the
/// other channels. Temporary failures are retried after half a second, one second, two seconds and
/// so on, plus up to half of that at random. Expired codes are not sent. If a sender panics, only
/// that message is lost.
///
/// Clones share the same queue. Workers are tasks of the runtime in which `push` is called, and
/// exist only while there is something to send. When the last clone is dropped, running attempts
/// are finished, and everything else is reported as undelivered. Messages that still wait when a runtime ends are sent
/// by the next runtime in which `push` is called.
#[derive(Clone)]
#[must_use]
pub struct Queue {
    settings: Arc<Settings>,
    lanes: Vec<(Channel, Arc<Lane>)>,
    /// Notifies workers when the last clone is dropped.
    alive: Arc<watch::Sender<()>>,
}

impl Queue {
    /// Returns a builder for a queue.
    pub fn builder() -> QueueBuilder {
        QueueBuilder::default()
    }

    /// Returns this queue with one more channel.
    pub(crate) fn with_lane(mut self, channel: Channel, sender: AnySender) -> Self {
        set_lane(&mut self.lanes, channel, sender);
        self
    }

    /// Returns this queue with another clock.
    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|settings| settings.clock = clock)
    }

    /// Adds a report function that is called before the existing one.
    pub(crate) fn also_on_undelivered(self, report: impl Fn(&Message, Undelivered) + Send + Sync + 'static) -> Self {
        self.with(|settings| {
            let other = settings.report.take();
            settings.report = Some(Arc::new(move |message: &Message, why: Undelivered| {
                report(message, why);
                if let Some(other) = &other {
                    other(message, why);
                }
            }));
        })
    }

    /// Returns whether this channel has a sender.
    pub fn has(&self, channel: Channel) -> bool {
        self.find(channel).is_some()
    }

    /// Queues a message without waiting. Returns whether it was queued.
    ///
    /// In a full queue, it takes the place of the newest job of the tenant with the most, if its own tenant has fewer. Notices
    /// use at most half of a queue, so that they can't displace codes. Don't show the result to the caller who requested
    /// a code.
    pub fn push(&self, channel: Channel, message: Message) -> bool {
        self.push_job(channel, Job { message, is_decoy: false })
    }

    /// Queues a decoy: a message that is never sent. Use it if the requested code has no recipient.
    ///
    /// It takes a place in the queue like a message, and keeps a worker busy for as long as a recent message did. So
    /// neither the call nor the time of later messages reveals which of the two it was.
    pub fn push_decoy(&self, channel: Channel, message: Message) -> bool {
        self.push_job(channel, Job { message, is_decoy: true })
    }

    fn push_job(&self, channel: Channel, job: Job) -> bool {
        let Some(lane) = self.find(channel) else {
            self.give_up(&job, Undelivered::NoSender);
            return false;
        };
        let Ok(runtime) = Handle::try_current() else {
            lane.lost(&job);
            self.give_up(&job, Undelivered::Stopped);
            return false;
        };
        let Pushed { slot, refused, is_taken } = lane.push(job, &self.settings);
        if let Some(slot) = slot {
            runtime.spawn(work(slot, Arc::clone(&self.settings), self.alive.subscribe()));
        }
        if let Some(job) = refused {
            self.give_up(&job, Undelivered::Full);
        }
        is_taken
    }

    /// Removes the queued messages to this recipient, for example after an account was deleted. A message that is being
    /// sent is not stopped.
    pub fn forget(&self, tenant: &Tenant, to: &str) {
        for (_, lane) in &self.lanes {
            lane.forget(tenant, to);
        }
    }

    /// Returns the counters of this channel.
    pub fn stats(&self, channel: Channel) -> Option<ChannelStats> {
        self.find(channel).map(|lane| lane.stats())
    }

    fn find(&self, channel: Channel) -> Option<&Arc<Lane>> {
        self.lanes.iter().find(|(of, _)| *of == channel).map(|(_, lane)| lane)
    }

    fn give_up(&self, job: &Job, why: Undelivered) {
        if !job.is_decoy {
            self.settings.report(&job.message, why);
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

/// Settings of a [`Queue`].
#[derive(Default)]
#[must_use]
pub struct QueueBuilder {
    settings: Settings,
    lanes: Vec<(Channel, Arc<Lane>)>,
}

impl QueueBuilder {
    /// Sets the sender of a channel.
    pub fn channel(mut self, channel: Channel, sender: impl Into<AnySender>) -> Self {
        set_lane(&mut self.lanes, channel, sender.into());
        self
    }

    /// Sets how many jobs can wait per channel. Defaults to 1,024.
    ///
    /// # Errors
    ///
    /// Returns an error if `jobs` is zero.
    pub fn capacity(mut self, jobs: usize) -> Result<Self, ConfigError> {
        ConfigError::check_range("queue capacity", jobs, 1.., "must be at least 1")?;
        self.settings.capacity = jobs;
        Ok(self)
    }

    /// Sets how many messages per channel are sent concurrently. Defaults to 4.
    ///
    /// # Errors
    ///
    /// Returns an error if `workers` is zero.
    pub fn workers(mut self, workers: usize) -> Result<Self, ConfigError> {
        ConfigError::check_range("workers per channel", workers, 1.., "must be at least 1")?;
        self.settings.workers = workers;
        Ok(self)
    }

    /// Sets the maximum number of attempts per message. Defaults to 4.
    ///
    /// # Errors
    ///
    /// Returns an error if `attempts` is zero.
    pub fn attempts(mut self, attempts: u32) -> Result<Self, ConfigError> {
        ConfigError::check_range("attempts", attempts, 1.., "must be at least 1")?;
        self.settings.attempts = attempts;
        Ok(self)
    }

    setters! {
        /// Sets the clock.
        pub fn clock(clock: impl Clock) { settings.clock: Arc::new(clock) }

        /// Sets a function that is called for each undelivered message. It must be quick, because it
        /// runs where the failure was detected.
        pub fn on_undelivered(report: impl Fn(&Message, Undelivered) + Send + Sync + 'static) {
            settings.report: Some(Arc::new(report))
        }
    }

    /// Creates the queue.
    pub fn build(self) -> Queue {
        Queue { settings: Arc::new(self.settings), lanes: self.lanes, alive: Arc::new(watch::Sender::new(())) }
    }
}

fn set_lane(lanes: &mut Vec<(Channel, Arc<Lane>)>, channel: Channel, sender: AnySender) {
    lanes.retain(|(other, _)| *other != channel);
    lanes.push((channel, Arc::new(Lane::new(sender))));
}

crate::util::fmt::debug_fields!(Queue { lanes });

crate::util::fmt::debug_fields!(QueueBuilder { lanes });
