use super::Sink;
use crate::event::Event;

/// Shows each event through `tracing`, at level INFO with the target
/// `tollgate::event` (feature `tracing`).
///
/// It stands outside the spans of the request, for it runs on the log's own thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSink;

impl Sink for TracingSink {
    fn write(&mut self, events: &[Event]) -> usize {
        for event in events {
            tracing::info!(
                target: "tollgate::event",
                id = event.id,
                at = event.at.as_millis(),
                kind = event.kind.as_str(),
                tenant = event.tenant.as_ref().map(|tenant| tenant.as_str()),
                policy = event.policy,
                mode = event.mode.as_str(),
                limit = event.policy.map(|_| event.limit),
                remaining = event.policy.map(|_| event.remaining),
                reset = event.policy.and(event.reset).map(|reset| reset.as_secs_ceil()),
                count = event.count,
            );
        }
        events.len()
    }
}
