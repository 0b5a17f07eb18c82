//! A queue that sends messages in the background.

mod attempts;
mod channel_queue;
mod recent;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::{runtime::Handle, sync::watch};

use self::{
    channel_queue::{ChannelQueue, Job, Pushed, work},
    settings::Settings,
};
use super::{channel::Channel, message::Message, sender::AnySender};
use crate::{
    tenant::Tenant,
    util::{clock::Clock, fmt::named_enum},
};

named_enum! {
    /// Why a message was not delivered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub(crate) enum Undelivered {
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
    pub(crate) fn as_str;
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
pub(crate) struct Queue {
    settings: Arc<Settings>,
    channels: Vec<(Channel, Arc<ChannelQueue>)>,
    /// Notifies workers when the last clone is dropped.
    alive: Arc<watch::Sender<()>>,
}

impl Queue {
    /// Creates a queue without senders.
    pub(crate) fn new() -> Self {
        Self { settings: Arc::default(), channels: Vec::new(), alive: Arc::new(watch::Sender::new(())) }
    }

    /// Returns this queue with this sender of a channel.
    pub(crate) fn with_channel(mut self, channel: Channel, sender: AnySender) -> Self {
        self.channels.retain(|(other, _)| *other != channel);
        self.channels.push((channel, Arc::new(ChannelQueue::new(sender))));
        self
    }

    /// Returns this queue with this many messages per channel that are sent concurrently.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn with_workers(self, workers: usize) -> Self {
        self.with(|settings| settings.workers = workers)
    }

    /// Returns this queue with another clock.
    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|settings| settings.clock = clock)
    }

    /// Returns this queue with a function that is called for each undelivered message. It must be quick, because it runs
    /// where the failure was detected.
    pub(crate) fn on_undelivered(self, report: impl Fn(&Message, Undelivered) + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.report = Some(Arc::new(report)))
    }

    /// Returns whether this channel has a sender.
    pub(crate) fn has(&self, channel: Channel) -> bool {
        self.find(channel).is_some()
    }

    /// Queues a message without waiting. Returns whether it was queued.
    ///
    /// In a full queue, it takes the place of the newest job of the tenant with the most, if its own tenant has fewer. Notices
    /// use at most half of a queue, so that they can't displace codes. Don't show the result to the caller who requested
    /// a code.
    pub(crate) fn push(&self, channel: Channel, message: Message) -> bool {
        self.push_job(channel, Job { message, is_decoy: false })
    }

    /// Queues a decoy: a message that is never sent. Use it if the requested code has no recipient.
    ///
    /// It takes a place in the queue like a message, and keeps a worker busy for as long as a recent message did. So
    /// neither the call nor the time of later messages reveals which of the two it was.
    pub(crate) fn push_decoy(&self, channel: Channel, message: Message) -> bool {
        self.push_job(channel, Job { message, is_decoy: true })
    }

    fn push_job(&self, channel: Channel, job: Job) -> bool {
        let Some(queue) = self.find(channel) else {
            self.give_up(&job, Undelivered::NoSender);
            return false;
        };
        let Ok(runtime) = Handle::try_current() else {
            self.give_up(&job, Undelivered::Stopped);
            return false;
        };
        let Pushed { slot, refused, is_taken } = queue.push(job, &self.settings);
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
    pub(crate) fn forget(&self, tenant: &Tenant, to: &str) {
        for (_, queue) in &self.channels {
            queue.forget(tenant, to);
        }
    }

    /// Returns how many messages and decoys wait for a worker.
    #[cfg(test)]
    fn waiting(&self, channel: Channel) -> usize {
        self.find(channel).unwrap().waiting()
    }

    fn find(&self, channel: Channel) -> Option<&Arc<ChannelQueue>> {
        self.channels.iter().find(|(of, _)| *of == channel).map(|(_, queue)| queue)
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
