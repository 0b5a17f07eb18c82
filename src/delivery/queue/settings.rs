use std::sync::Arc;

use super::Undelivered;
use crate::{
    delivery::message::Message,
    util::{
        clock::{Clock, SystemClock, UnixTime},
        trace::warning,
    },
};

type Report = dyn Fn(&Message, Undelivered) + Send + Sync;

/// Settings that all channels share.
#[derive(Clone)]
pub(super) struct Settings {
    /// How many jobs can wait per channel.
    pub(super) capacity: usize,
    /// How many messages per channel are sent concurrently.
    pub(super) workers: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) report: Option<Arc<Report>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { capacity: 1024, workers: 4, clock: Arc::new(SystemClock::new()), report: None }
    }
}

impl Settings {
    pub(super) fn now(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }

    /// Reports an undelivered message.
    pub(super) fn report(&self, message: &Message, why: Undelivered) {
        let what = match (message.notice(), message.link()) {
            (Some(_), _) => "notice",
            (None, Some(_)) => "link",
            (None, None) => "one-time code",
        };
        warning!("failed to deliver a {what} by {}: {}", message.channel().as_str(), why.as_str());
        if let Some(report) = &self.report {
            report(message, why);
        }
    }
}
