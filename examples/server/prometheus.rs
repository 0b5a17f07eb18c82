//! Counters in the text format of Prometheus, on a listener of its own.

use std::{
    collections::BTreeMap,
    fmt::Write,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::net::TcpListener;

/// Counts by name and labels. Everything that tollgate counts is a counter.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<BTreeMap<Name, Arc<AtomicU64>>>>);

/// The name of a counter, and its labels as text.
type Name = (String, String);

/// Counts from now on, and serves `/metrics` at this address.
pub(crate) async fn serve(address: SocketAddr) -> Result<SocketAddr, String> {
    let listener = TcpListener::bind(address).await.map_err(|error| format!("metrics_listen: {address}: {error}"))?;
    let bound = listener.local_addr().map_err(|error| format!("metrics_listen: {error}"))?;
    let counters = Counters::default();
    metrics::set_global_recorder(counters.clone()).map_err(|error| format!("metrics_listen: {error}"))?;
    let answer = async move || ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], counters.text());
    let routes = Router::new().route("/metrics", get(answer));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(bound)
}

impl Counters {
    fn text(&self) -> String {
        let (mut text, mut last) = (String::new(), None);
        for ((name, labels), count) in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            if last.replace(name) != Some(name) {
                let _ = writeln!(text, "# TYPE {name} counter");
            }
            let _ = writeln!(text, "{name}{labels} {}", count.load(Relaxed));
        }
        text
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        // values are names in the source code, which need no escapes
        let labels: Vec<_> = key.labels().map(|label| format!("{}={:?}", label.key(), label.value())).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::from_arc(Arc::clone(counters.entry((key.name().to_owned(), labels)).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
