use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering::Relaxed,
};

use super::{Query, Sink, shared::Shared};

/// A sink, and how far it has come.
pub(super) struct SinkSeat {
    /// `None` once it has panicked.
    sink: Option<Box<dyn Sink>>,
    next: u64,
    dropped: u64,
}

/// Events that are copied for a sink at once.
const BATCH: usize = 256;

impl SinkSeat {
    pub(super) fn new(sink: Box<dyn Sink>, next: u64) -> Self {
        Self { sink: Some(sink), next, dropped: 0 }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.sink.is_some()
    }

    /// Offers the sink what it has not taken. Whether it took all of it.
    pub(super) fn deliver(&mut self, shared: &Shared) -> bool {
        loop {
            let mut query = Query::new().since(self.next);
            query.limit = BATCH;
            let page = shared.page(&query);
            if page.lost > 0 {
                count_lost(shared, page.lost);
            }
            let Some(first) = page.events.first() else { return true };
            self.next = first.id - 1;
            let Some(sink) = &mut self.sink else { return false };
            let taken = catch_unwind(AssertUnwindSafe(|| (sink.write(&page.events), sink.dropped())));
            let Ok((taken, dropped)) = taken else {
                self.sink = None;
                shared.failures.fetch_add(1, Relaxed);
                crate::util::trace::warning!("a sink of the event log has panicked and is let go");
                return false;
            };
            shared.dropped.fetch_add(dropped.saturating_sub(self.dropped), Relaxed);
            self.dropped = dropped;
            if let Some(last) = page.events.iter().take(taken).next_back() {
                self.next = last.id;
            }
            if taken < page.events.len() {
                shared.failures.fetch_add(1, Relaxed);
                return false;
            }
        }
    }
}

fn count_lost(shared: &Shared, lost: u64) {
    shared.lost.fetch_add(lost, Relaxed);
    #[cfg(feature = "metrics")]
    metrics::counter!("tollgate_events_lost_total").increment(lost);
}
