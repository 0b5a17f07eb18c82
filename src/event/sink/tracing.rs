use super::Sink;
use crate::{event::Event, tenant::Tenant, util::clock::UnixTime};

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
                tenant = event.tenant.as_ref().map(Tenant::as_str),
                session = event.session.map(tracing::field::display),
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
    use crate::event::EventKind;

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
    fn an_event_shows_the_fields_that_it_has() {
        let fields = Fields::default();
        let event = Event::new(EventKind::TenantReset, UnixTime::from_secs(5)).tenant("acme".parse().unwrap());
        tracing::subscriber::with_default(fields.clone(), || TracingSink.write(&[event]));
        let expected = ["id=0", "at=5000", "kind=\"tenant_reset\"", "tenant=\"acme\"", "mode=\"enforced\"", "count=1"];
        assert_eq!(*fields.0.lock().unwrap(), expected);
    }
}
