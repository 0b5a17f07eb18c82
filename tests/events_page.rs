//! The page of the event log in a real browser.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod support;

use std::net::SocketAddr;

use axum::Router;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{
    EventLog, EventService, Head, LimitKey, Limiter, Plans, Quota, SecretDigest, Tenant,
    clock::UnixTime,
    event::{Event, EventKind, PublicId, TenantsAndOperator, Viewer},
    tenant::TenantError,
};

use support::{
    chromium::Chromium,
    inspector::{DESKTOP, Inspector, PHONE},
};

const OPERATOR: &str = "an-operator-s-secret";

/// Serves the page for readers with a key.
async fn serve_with_key(log: &EventLog) -> SocketAddr {
    let nobody = |_: Head<'_>| Err::<Option<LimitKey>, _>(TenantError::unknown("unknown API key"));
    let access = TenantsAndOperator::new(nobody).operator_key(OPERATOR).unwrap();
    serve(EventService::new(log.clone(), access)).await
}

/// Serves the page for this reader, who needs no key.
async fn serve_to(viewer: Viewer, log: &EventLog, limiter: &Limiter) -> SocketAddr {
    let access = move |_: Head<'_>| viewer.clone();
    serve(EventService::builder(log.clone(), access).limiter(limiter.clone()).build()).await
}

async fn serve(service: EventService) -> SocketAddr {
    let app = Router::new().nest_service("/events", service);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

async fn open(name: &str, address: SocketAddr) -> Option<Chromium> {
    let mut tab = Chromium::start(&format!("{name}-{}", address.port())).await?;
    tab.open(&format!("http://{address}/events/")).await;
    tab.until("document.readyState === 'complete'").await;
    Some(tab)
}

impl Chromium {
    async fn watch(&mut self, header: &str, key: &str) {
        let (header, key) = (json!(header), json!(key));
        let script = format!(
            "document.getElementById('header').value = {header}; document.getElementById('key').value = {key};
                     document.getElementById('form').requestSubmit()"
        );
        self.ask(&script).await.unwrap();
    }

    /// Sets a filter.
    async fn filter(&mut self, id: &str, value: &str) {
        let script = format!(
            "(() => {{ const field = document.getElementById('{id}'); field.value = '{value}';
               field.dispatchEvent(new Event('input')); }})()"
        );
        self.ask(&script).await.unwrap();
    }

    /// Returns the texts of these cells, from top to bottom.
    async fn column(&mut self, number: u32) -> Vec<String> {
        let script = format!(
            "Array.from(document.querySelectorAll('#rows td:nth-child({number})'), (cell) => cell.textContent)"
        );
        serde_json::from_value(self.ask(&script).await.unwrap()).unwrap()
    }
}

fn has_rows(count: u32) -> String {
    format!("document.getElementById('rows').rows.length === {count}")
}

fn says(id: &str, text: &str) -> String {
    format!("document.getElementById('{id}').textContent.includes({})", json!(text))
}

fn event(kind: EventKind, tenant: &str) -> Event {
    Event::new(kind, UnixTime::from_secs(5)).tenant(tenant.parse().unwrap())
}

fn limiter(log: &EventLog) -> Limiter {
    let per_minute = |limit| Quota::per_minute(limit).unwrap().with_name("per-minute").unwrap();
    let plans = Plans::new(per_minute(600));
    plans.set(Tenant::parse("globex").unwrap(), per_minute(60));
    Limiter::builder(plans).events(log.clone()).build().unwrap()
}

#[tokio::test]
async fn each_event_is_shown_and_opens_with_all_its_fields() {
    let log = EventLog::new();
    let Some(mut tab) = open("events", serve_with_key(&log).await).await else { return };
    let session = PublicId::of_digest(&SecretDigest::of_secret("a secret"));
    let mut refusal = event(EventKind::RateLimited, "acme");
    (refusal.policy, refusal.limit, refusal.count) = (Some("per-minute"), 600, 7);
    log.record(event(EventKind::TenantReset, "globex"));
    log.record(refusal.session(session));
    tab.watch("x-operator-key", OPERATOR).await;
    tab.until(&has_rows(2)).await;
    assert_eq!(tab.ask("document.getElementById('state').textContent").await.unwrap(), "Connected.");
    assert_eq!(tab.column(1).await, ["00:00:05.000", "00:00:05.000"]);
    assert_eq!(tab.column(2).await, ["rate_limited", "tenant_reset"]);
    assert_eq!(tab.column(3).await, ["acme", "globex"]);
    assert!(tab.column(4).await[0].contains("per-minute: 0 of 600 left"));
    assert_eq!(tab.column(5).await, ["7", ""]);
    // by keyboard: the time of an event is a button
    tab.ask("document.querySelector('#rows button').focus()").await.unwrap();
    tab.press("Enter").await;
    tab.until("document.getElementById('details').open").await;
    for text in [session.to_string(), "per-minute".to_owned(), "1970-01-01 00:00:05.000".to_owned()] {
        tab.until(&says("fields", &text)).await;
    }
    // what else happened in this session
    tab.click("#fields button").await;
    tab.until(&has_rows(1)).await;
    assert_eq!(tab.column(2).await, ["rate_limited"]);
    tab.filter("by-tenant", "").await;
    tab.until(&has_rows(2)).await;
    assert_eq!(tab.complaints(), [""; 0]);
}

#[tokio::test]
async fn the_form_for_a_key_is_accessible_and_fits_a_phone() {
    let looks = [("light", PHONE), ("dark", PHONE), ("light", DESKTOP), ("dark", DESKTOP)];
    let Some(inspector) = Inspector::find("en", &looks) else { return };
    let Some(mut tab) = open("events-form", serve_with_key(&EventLog::new()).await).await else { return };
    inspector.inspect(&mut tab, "events-key").await;
    tab.watch("x-operator-key", "guessed").await;
    tab.until(&says("state", "The server responded with status 401.")).await;
    inspector.inspect(&mut tab, "events-wrong-key").await;
}

#[tokio::test]
async fn unusable_headers_are_reported_before_connecting() {
    let Some(mut tab) = open("events-headers", serve_with_key(&EventLog::new()).await).await else { return };
    let no_name = "This is not a valid header name.";
    for (header, key, expected) in [
        ("x api key", "k", no_name),
        ("x-schlüssel", "k", no_name),
        (" ", "k", no_name),
        ("x-api-key", "ключ", "This key cannot be sent in a header because it has characters outside Latin-1."),
        ("cookie", "k", "Browsers do not allow pages to send this header."),
    ] {
        tab.ask("document.getElementById('state').textContent = ''").await.unwrap();
        tab.watch(header, key).await;
        assert_eq!(tab.ask("document.getElementById('state').textContent").await.unwrap(), expected, "{header}: {key}");
    }
    assert_eq!(tab.complaints(), [""; 0]);
    tab.watch("x-operator-key", "guessed").await;
    tab.until(&says("state", "The server responded with status 401.")).await;
}

#[tokio::test]
async fn a_known_reader_needs_no_key_and_sees_who_is_limited() {
    let log = EventLog::new();
    let limiter = limiter(&log);
    let address = serve_to(Viewer::Operator, &log, &limiter).await;
    let Some(mut tab) = open("events-known", address).await else { return };
    assert_eq!(tab.ask("document.getElementById('form').hidden").await.unwrap(), true);
    // a tenant with a plan of its own has a gauge before it sends anything
    tab.until(&says("tenants", "0 of 60 used, per-minute")).await;
    tab.until(&says("limited", "0")).await;
    let acme = LimitKey::parse("acme").unwrap();
    let refused = (0..700).filter(|_| !limiter.check(&acme, 1).is_admitted()).count();
    assert_eq!(refused, 100);
    tab.until(&says("limited", "1")).await;
    tab.until(&format!("{} && {}", says("tenants", "600 of 600 used"), says("tenants", "Limited since"))).await;
    let order = "Array.from(document.querySelectorAll('#tenants li'), (item) => [item.dataset.tenant, item.className])";
    assert_eq!(tab.ask(order).await.unwrap(), json!([["acme", "limited"], ["globex", ""]]));
    // no refusal is lost
    tab.until(
        "Array.from(document.querySelectorAll('#rows td:nth-child(5)'), (cell) => Number(cell.textContent || 1))
        .reduce((sum, count) => sum + count, 0) === 100",
    )
    .await;
    tab.until("/\\d+ admitted, \\d+ refused per second/.test(document.getElementById('requests').ariaLabel)").await;
    assert_eq!(tab.complaints(), [""; 0]);
}

#[tokio::test]
async fn a_tenant_sees_its_own_budget_alone() {
    let log = EventLog::new();
    let limiter = limiter(&log);
    let globex = Tenant::parse("globex").unwrap();
    // it has a plan of its own, too, so an operator would see it
    let acme = Tenant::parse("acme").unwrap();
    limiter.plans().set(acme.clone(), Quota::per_minute(600).unwrap());
    _ = limiter.check(&acme, 1);
    _ = limiter.check(&globex, 1);
    let address = serve_to(Viewer::Tenant(globex), &log, &limiter).await;
    let Some(mut tab) = open("events-tenant", address).await else { return };
    tab.until(&says("tenants", "1 of 60 used")).await;
    let answer = tab.ask("fetch('usage').then((answer) => answer.json())").await.unwrap();
    let names: Vec<_> = answer["tenants"].as_array().unwrap().iter().map(|one| one["tenant"].clone()).collect();
    assert_eq!((json!(names), &answer["admitted"]), (json!(["globex"]), &Value::Null));
    assert_eq!(tab.complaints(), [""; 0]);
    let status = tab.ask("fetch('usage?tenant=acme').then((answer) => answer.status)").await;
    assert_eq!(status.unwrap(), 403);
}

#[tokio::test]
async fn filters_and_a_pause_choose_what_the_table_shows() {
    let log = EventLog::new();
    let address = serve_to(Viewer::Operator, &log, &limiter(&log)).await;
    let Some(mut tab) = open("events-filters", address).await else { return };
    log.record(event(EventKind::RateLimited, "acme"));
    log.record(event(EventKind::TenantReset, "acme"));
    log.record(event(EventKind::RateLimited, "globex"));
    tab.until(&has_rows(3)).await;
    tab.filter("by-tenant", "acme").await;
    assert_eq!(tab.column(3).await, ["acme", "acme"]);
    tab.filter("by-kind", "~refusals").await;
    assert_eq!((tab.column(2).await, tab.column(3).await), (vec!["rate_limited".into()], vec!["acme".into()]));
    tab.filter("by-tenant", "").await;
    assert_eq!(tab.column(3).await, ["globex", "acme"]);
    tab.filter("by-kind", "tenant_reset").await;
    assert_eq!(tab.column(2).await, ["tenant_reset"]);
    // the events are from 1970
    tab.filter("by-kind", "").await;
    tab.filter("by-time", "300").await;
    assert_eq!(tab.column(2).await, [""; 0]);
    tab.filter("by-time", "").await;

    // a count of before arrives late
    let mut late = event(EventKind::RateLimited, "hooli");
    late.at = UnixTime::from_secs(4);
    log.record(late);
    tab.until(&has_rows(4)).await;
    assert_eq!(tab.column(3).await, ["globex", "acme", "acme", "hooli"]);

    tab.click("#pause").await;
    log.record(event(EventKind::TenantReset, "initech"));
    tab.until(&says("shown", "Paused: 1 new events.")).await;
    assert_eq!(tab.column(3).await, ["globex", "acme", "acme", "hooli"]);
    tab.click("#pause").await;
    tab.until(&has_rows(5)).await;
    assert_eq!(tab.column(3).await[0], "initech");
    assert_eq!(tab.complaints(), [""; 0]);
}

#[tokio::test]
async fn a_hundred_thousand_events_make_few_rows_and_little_memory() {
    const EVENTS: u32 = 100_000;
    let log = EventLog::builder().capacity(2 * EVENTS as usize).unwrap().build();
    let address = serve_to(Viewer::Operator, &log, &limiter(&log)).await;
    let Some(mut tab) = open("events-flood", address).await else { return };
    tab.until(&says("state", "Connected.")).await;
    let count = "window.made = 0; window.frames = 0;
        new MutationObserver((changes) => {
          frames++;
          for (const change of changes) made += change.addedNodes.length;
        }).observe(document.getElementById('rows'), { childList: true })";
    tab.ask(count).await.unwrap();
    for number in 0..EVENTS {
        log.record(event(EventKind::RateLimited, &format!("tenant-{number}")));
    }
    // the page answers while it reads
    tab.click("#pause").await;
    tab.until(&says("pause", "Continue")).await;
    tab.click("#pause").await;
    tab.until(&format!("document.querySelector('#rows td:nth-child(3)')?.textContent === 'tenant-{}'", EVENTS - 1))
        .await;
    let rows = tab.ask("document.getElementById('rows').rows.length").await.unwrap();
    assert_eq!(rows, 200);
    let (made, frames) = (tab.ask("made").await.unwrap(), tab.ask("frames").await.unwrap());
    assert!(made.as_u64() <= frames.as_u64().map(|frames| 200 * frames), "{made} rows in {frames} frames");
    let names = tab.ask("document.getElementById('names').children.length").await.unwrap();
    assert!(names.as_u64().unwrap() <= 200, "{names} names");
    tab.call("HeapProfiler.collectGarbage", json!({})).await;
    let heap = tab.call("Runtime.getHeapUsage", json!({})).await;
    assert!(heap["usedSize"].as_f64().unwrap() < 25e6, "{heap}");
    assert_eq!(tab.complaints(), [""; 0]);
}
