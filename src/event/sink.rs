//! Sinks forward the events of a log.

use super::record::Event;
#[cfg(feature = "tracing")]
use crate::{tenant::LimitKey, util::clock::UnixTime};

/// Receives the events of a log, in order, on a background thread of the log or on one that calls
/// [`EventLog::flush`](super::EventLog::flush).
///
/// Only one thread at a time runs the sinks of a log, one after the other. A slow sink delays the other sinks, but never the
/// threads that record. A sink that panics is removed. A sink must work on any of these threads,
/// even on one of an async runtime, and must not wait for another thread that flushes the log. Closures that return nothing
/// are sinks too:
///
/// ```
/// use tollgate::{EventLog, event::Event};
///
/// let log = EventLog::builder()
///     .sink(|events: &[Event]| {
///         for event in events {
///             eprintln!("{}", event.to_json());
///         }
///     })
///     .build();
/// # let _ = log;
/// ```
pub trait Sink: Send + 'static {
    /// Handles the first `n` of these events and returns `n`. The log offers the remaining ones
    /// again within 250 ms, unless they were overwritten.
    fn write(&mut self, events: &[Event]) -> usize;
}

impl<F> Sink for F
where
    F: FnMut(&[Event]) + Send + 'static,
{
    fn write(&mut self, events: &[Event]) -> usize {
        self(events);
        events.len()
    }
}

/// A sink and its position in the log.
pub(super) struct SinkPosition {
    /// `None` after the sink has panicked.
    pub(super) sink: Option<Box<dyn Sink>>,
    /// The number of the event before its next one.
    pub(super) next: u64,
}

/// Counts events by their kind in the counter `tollgate_events_total` of the `metrics` facade, with the label `kind` (feature
/// `metrics`).
///
/// Events that the sink missed are counted in `tollgate_events_lost_total`.
#[cfg(feature = "metrics")]
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsSink;

#[cfg(feature = "metrics")]
impl Sink for MetricsSink {
    fn write(&mut self, events: &[Event]) -> usize {
        for event in events {
            metrics::counter!("tollgate_events_total", "kind" => event.kind.as_str()).increment(event.count);
        }
        events.len()
    }
}

/// Emits each event through `tracing`, at level INFO with the target `tollgate::event` (feature
/// `tracing`).
///
/// Events are outside the spans of their requests, because the sink usually runs on the background thread
/// of the log.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSink;

#[cfg(feature = "tracing")]
impl Sink for TracingSink {
    fn write(&mut self, events: &[Event]) -> usize {
        for event in events {
            tracing::info!(
                target: "tollgate::event",
                id = event.id,
                at = event.at.as_millis(),
                kind = event.kind.as_str(),
                tenant = event.tenant.as_ref().map(LimitKey::as_str),
                session = event.session.map(tracing::field::display),
                subject = event.subject.map(tracing::field::display),
                method = event.method,
                reason = event.reason,
                policy = event.policy,
                mode = event.mode.as_str(),
                limit = event.policy.map(|_| event.limit),
                remaining = event.policy.map(|_| event.remaining),
                reset = event.policy.and(event.reset).map(UnixTime::as_secs_ceil),
                count = event.count,
            );
        }
        events.len()
    }
}

#[cfg(feature = "tracing")]
#[cfg(test)]
mod tests {
    use std::{
        fmt,
        sync::{Arc, Mutex},
    };

    use tracing::{
        Metadata, Subscriber,
        field::{Field, Visit},
        span,
    };

    use super::*;
    use crate::event::kind::EventKind;

    #[derive(Clone, Default)]
    struct Fields(Arc<Mutex<Vec<String>>>);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.lock().unwrap().push(format!("{field}={value:?}"));
        }
    }

    impl Subscriber for Fields {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "tollgate::event"
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn an_event_is_emitted_with_the_fields_that_it_has() {
        let fields = Fields::default();
        let event = Event::new(EventKind::TenantReset, UnixTime::from_secs(5)).tenant("acme".parse().unwrap());
        let event = event.method("password").reason("proofs");
        tracing::subscriber::with_default(fields.clone(), || TracingSink.write(&[event]));
        let expected = [
            "id=0",
            "at=5000",
            "kind=\"tenant_reset\"",
            "tenant=\"acme\"",
            "method=\"password\"",
            "reason=\"proofs\"",
            "mode=\"enforced\"",
            "count=1",
        ];
        assert_eq!(*fields.0.lock().unwrap(), expected);
    }
}
