//! The page of the event log in a real browser.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod support;

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    response::Html,
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tollgate::{
    EventLog, EventService, Head, LimitKey, SecretDigest,
    clock::UnixTime,
    event::{Event, EventKind, PublicId, TenantsAndOperator},
    tenant::TenantError,
};

use support::chromium::Chromium;

/// Fills in the form, and reports to the test whenever the page changes.
const DRIVER: &str = r#"<script>
addEventListener("DOMContentLoaded", () => {
  const text = (cells) => Array.from(cells, (cell) => cell.textContent);
  const tell = () => fetch("/seen", { method: "POST", body: JSON.stringify({
    state: document.getElementById("state").textContent,
    head: text(document.querySelectorAll("th")),
    rows: Array.from(document.getElementById("rows").rows, (row) => text(row.cells)),
  }) });
  new MutationObserver(tell).observe(document.body, { childList: true, subtree: true, characterData: true });
  const [header, key] = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  document.getElementById("header").value = header;
  document.getElementById("key").value = key;
  document.getElementById("form").requestSubmit();
});
</script>"#;

struct Browser {
    _chromium: Chromium,
    seen: mpsc::UnboundedReceiver<Value>,
}

impl Browser {
    /// Opens the log with this header and key. Returns `None` if there is no browser.
    async fn watch(log: &EventLog, header: &str, key: &str) -> Option<Self> {
        let (address, seen) = serve(log).await;
        let mut chromium = Chromium::start(&format!("events-{}", address.port())).await?;
        let entry = serde_json::to_string(&[header, key]).unwrap();
        let entry = percent_encoding::utf8_percent_encode(&entry, percent_encoding::NON_ALPHANUMERIC);
        chromium.open(&format!("http://{address}/events/driven#{entry}")).await;
        Some(Self { _chromium: chromium, seen })
    }

    /// Returns the content of the page once this condition holds.
    async fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        loop {
            let Ok(seen) = timeout(Duration::from_secs(60), self.seen.recv()).await else {
                panic!("timed out; the page shows {last}");
            };
            last = seen.unwrap();
            if holds(&last) {
                return last;
            }
        }
    }
}

/// Serves the page unchanged, and a second time with the driver.
async fn serve(log: &EventLog) -> (SocketAddr, mpsc::UnboundedReceiver<Value>) {
    let nobody = |_: Head<'_>| Err::<Option<LimitKey>, _>(TenantError::unknown("unknown API key"));
    let access = TenantsAndOperator::new(nobody).operator_key("an-operator-s-secret").unwrap();
    let page = format!("{}{DRIVER}", include_str!("../src/event/page.html"));
    let (tell, seen) = mpsc::unbounded_channel();
    let app = Router::new()
        .route("/events/driven", get(async move || Html(page)))
        .route("/seen", post(async move |body: String| drop(tell.send(serde_json::from_str(&body).unwrap()))))
        .nest_service("/events", EventService::new(log.clone(), access));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (address, seen)
}

#[tokio::test]
async fn each_event_is_shown_with_its_session() {
    let log = EventLog::new();
    let Some(mut browser) = Browser::watch(&log, "x-operator-key", "an-operator-s-secret").await else { return };
    let session = PublicId::of_digest(&SecretDigest::of_secret("a secret"));
    let mut event = Event::new(EventKind::RateLimited, UnixTime::from_secs(5)).tenant("acme".parse().unwrap());
    event.policy = Some("per-minute");
    log.record(event.clone());
    event.session = Some(session);
    log.record(event);
    let seen = browser.until(|seen| seen["rows"][0][0] == "2").await;
    assert_eq!(seen["state"], "Connected.");
    let column = |name: &str| seen["head"].as_array().unwrap().iter().position(|head| head == name).unwrap();
    assert_eq!(seen["rows"][0][column("Tenant")], "acme");
    assert_eq!(seen["rows"][0][column("Session")], session.to_string());
    assert_eq!(seen["rows"][1][column("Session")], "");
    assert_eq!(seen["rows"][0][column("Policy")], "per-minute");
    assert_eq!(seen["rows"][0].as_array().unwrap().len(), seen["head"].as_array().unwrap().len());
}

#[tokio::test]
async fn unusable_headers_are_reported_before_connecting() {
    let no_name = "This is not a valid header name.";
    for (header, key, says) in [
        ("x api key", "k", no_name),
        ("x-schlüssel", "k", no_name),
        (" ", "k", no_name),
        ("x-api-key", "ключ", "This key cannot be sent in a header because it has characters outside Latin-1."),
        ("cookie", "k", "Browsers do not allow pages to send this header."),
    ] {
        let Some(mut browser) = Browser::watch(&EventLog::new(), header, key).await else { return };
        let seen = browser.until(|seen| seen["state"] != json!("Enter a key to watch the log.")).await;
        assert_eq!(seen["state"], says, "{header}: {key}");
    }
}
