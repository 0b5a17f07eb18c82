use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

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
    pub(super) capacity: usize,
    pub(super) workers: usize,
    pub(super) attempts: u32,
    pub(super) timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) report: Option<Arc<Report>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            capacity: 1024,
            workers: 4,
            attempts: 4,
            timeout: Duration::from_secs(30),
            clock: Arc::new(SystemClock::new()),
            report: None,
        }
    }
}

impl Settings {
    pub(super) fn now(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }

    /// Reports an undelivered message. A panicking report function does no harm.
    pub(super) fn report(&self, message: &Message, why: Undelivered) {
        let what = match (message.notice(), message.link()) {
            (Some(_), _) => "notice",
            (None, Some(_)) => "link",
            (None, None) => "one-time code",
        };
        warning!("failed to deliver a {what} by {}: {}", message.channel().as_str(), why.as_str());
        if let Some(report) = &self.report {
            let _panicked = catch_unwind(AssertUnwindSafe(|| report(message, why)));
        }
    }
}
