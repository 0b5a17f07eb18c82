//! Metrics of the event log.
#![cfg(feature = "metrics")]
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
    mpsc,
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tollgate::{
    EventLog,
    clock::UnixTime,
    event::{Event, EventKind},
};

/// Records counters by name.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<Vec<Named>>>);

type Named = (String, Arc<AtomicU64>);

impl Counters {
    fn shown(&self) -> Vec<(String, u64)> {
        self.0.lock().unwrap().iter().map(|(name, count)| (name.clone(), count.load(SeqCst))).collect()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.0.lock().unwrap();
        let place = counters.iter().position(|(name, _)| name == key.name()).unwrap_or(counters.len());
        if place == counters.len() {
            counters.push((key.name().to_owned(), Arc::default()));
        }
        Counter::from_arc(Arc::clone(&counters.get(place).unwrap().1))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn events_lost_by_a_slow_sink_are_counted() {
    let counters = Counters::default();
    // installed globally, because the log counts on its own thread
    metrics::set_global_recorder(counters.clone()).unwrap();
    let (offered, began) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let mut first = true;
    let log = EventLog::builder().capacity(10).unwrap().sink(move |_: &[Event]| {
        if std::mem::take(&mut first) {
            offered.send(()).unwrap();
            wait.recv().unwrap();
        }
    });
    let log = log.build();
    let event = Event::new(EventKind::RateLimited, UnixTime::from_secs(5));
    log.record(event.clone());
    began.recv().unwrap();
    for _ in 0..100 {
        log.record(event.clone());
    }
    assert_eq!(counters.shown(), []);
    go_on.send(()).unwrap();
    assert!(log.flush());
    assert_eq!(counters.shown(), [(String::from("tollgate_events_lost_total"), 90)]);
    assert_eq!(log.stats().lost, 90);
}
