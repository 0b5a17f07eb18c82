//! The queue: nobody who asks for a code waits for it to be sent.

mod attempts;
mod guard;
mod lane;
mod settings;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::watch};

use self::{
    lane::{Lane, work},
    settings::Settings,
};
use super::{channel::Channel, message::Message, sender::AnySender};
use crate::util::{clock::Clock, error::ConfigError};

/// Why a message will not arrive, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Undelivered {
    /// There was no room in its lane.
    Full,
    /// There is no sender for its channel.
    NoSender,
    /// The sender said that it never will, or panicked.
    Refused,
    /// Each attempt failed.
    Exhausted,
    /// Its code ended, or would have before the next attempt.
    Expired,
    /// The queue or its runtime ended first. It may have been sent.
    Stopped,
}

impl Undelivered {
    /// A stable name, for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::NoSender => "no_sender",
            Self::Refused => "refused",
            Self::Exhausted => "exhausted",
            Self::Expired => "expired",
            Self::Stopped => "stopped",
        }
    }
}

/// What a lane has done so far. Decoys count only while they wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStats {
    /// Jobs that wait for a worker.
    pub waiting: usize,
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that were given up.
    pub undelivered: u64,
}

/// Sends messages behind the caller's back: [`push`](Self::push) never waits.
///
/// Each channel has a lane with a sender, a bounded queue and workers of its
/// own, so that a gateway that hangs holds up nobody else. A transient failure
/// is tried again after half a second, one second, two seconds and so on, each
/// plus up to half of it at random, as long as the code is valid; nothing is
/// sent after its end. A sender that panics loses that message only.
///
/// Clones are the same queue; a setter changes only the one that it answers
/// with, so set first and clone then. Workers are tasks of the runtime in which
/// `push` is called, and are there only while there is something to send: with
/// the last clone, what waits is given up, what is being sent is finished, and
/// nothing is tried again. What waits when a runtime ends is sent by the next
/// one in which `push` is called.
#[derive(Clone)]
#[must_use]
pub struct Queue {
    settings: Arc<Settings>,
    lanes: Vec<(Channel, Arc<Lane>)>,
    /// Workers see when the last of these is gone.
    alive: Arc<watch::Sender<()>>,
}

impl Queue {
    /// Returns a builder for a queue.
    pub fn builder() -> QueueBuilder {
        QueueBuilder::default()
    }

    /// Returns this queue with one more lane.
    pub(crate) fn with_lane(mut self, channel: Channel, sender: AnySender) -> Self {
        set_lane(&mut self.lanes, channel, sender);
        self
    }

    /// Returns this queue with another clock.
    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|settings| settings.clock = clock)
    }

    /// Tells `report` too, before whoever is told already.
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

    /// Whether this channel has a sender.
    pub fn has(&self, channel: Channel) -> bool {
        self.find(channel).is_some()
    }

    /// Takes a message for this channel, or a decoy (`None`), and says whether
    /// it did. It never waits.
    ///
    /// A decoy takes a place as a message does and is dropped when its turn
    /// comes, so the time that the call takes says nothing about which of the
    /// two it was. Decoys get half of a lane at most: who makes them can't keep
    /// messages out. Don't show the answer to whoever asked for the code.
    pub fn push(&self, channel: Channel, job: Option<Message>) -> bool {
        let Some(lane) = self.find(channel) else {
            self.give_up(job, Undelivered::NoSender);
            return false;
        };
        let Ok(runtime) = Handle::try_current() else {
            lane.lost(job.is_some());
            self.give_up(job, Undelivered::Stopped);
            return false;
        };
        match lane.push(job, &self.settings) {
            Ok(None) => true,
            Ok(Some(seat)) => {
                runtime.spawn(work(seat, Arc::clone(&self.settings), self.alive.subscribe()));
                true
            }
            Err(job) => {
                self.give_up(job, Undelivered::Full);
                false
            }
        }
    }

    /// What the lane of this channel has done so far.
    pub fn stats(&self, channel: Channel) -> Option<LaneStats> {
        self.find(channel).map(|lane| lane.stats())
    }

    fn find(&self, channel: Channel) -> Option<&Arc<Lane>> {
        self.lanes.iter().find(|(of, _)| *of == channel).map(|(_, lane)| lane)
    }

    fn give_up(&self, job: Option<Message>, why: Undelivered) {
        if let Some(message) = job {
            self.settings.report(&message, why);
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

/// Settings and lanes of a [`Queue`].
#[derive(Default)]
#[must_use]
pub struct QueueBuilder {
    settings: Settings,
    lanes: Vec<(Channel, Arc<Lane>)>,
}

impl QueueBuilder {
    /// Sends what is for this channel through `sender`, in place of an earlier one.
    pub fn lane(mut self, channel: Channel, sender: impl Into<AnySender>) -> Self {
        set_lane(&mut self.lanes, channel, sender.into());
        self
    }

    /// How many jobs wait in a lane at most: 1,024 by default.
    pub fn capacity(mut self, jobs: usize) -> Result<Self, ConfigError> {
        match jobs {
            0 => Err(ConfigError::new("queue capacity", jobs, "must be at least 1")),
            jobs => {
                self.settings.capacity = jobs;
                Ok(self)
            }
        }
    }

    /// How many messages of a lane are being sent at once: 4 by default.
    pub fn workers(mut self, workers: usize) -> Result<Self, ConfigError> {
        match workers {
            0 => Err(ConfigError::new("workers of a lane", workers, "must be at least 1")),
            workers => {
                self.settings.workers = workers;
                Ok(self)
            }
        }
    }

    /// How often a message is tried at most: 4 times by default, at least once.
    pub fn attempts(mut self, attempts: u32) -> Result<Self, ConfigError> {
        match attempts {
            0 => Err(ConfigError::new("attempts", attempts, "must be at least 1")),
            attempts => {
                self.settings.attempts = attempts;
                Ok(self)
            }
        }
    }

    /// When an attempt counts as failed, whatever its sender does: after 30 seconds by default.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        if timeout.is_zero() {
            return Err(ConfigError::new("attempt timeout", "0 s", "must be more than nothing"));
        }
        self.settings.timeout = timeout;
        Ok(self)
    }

    /// Takes the time from this clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Tells `report` of each message that will not arrive. It is called where
    /// the message was given up, so it must be quick.
    pub fn on_undelivered(mut self, report: impl Fn(&Message, Undelivered) + Send + Sync + 'static) -> Self {
        self.settings.report = Some(Arc::new(report));
        self
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

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

impl fmt::Debug for QueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}
