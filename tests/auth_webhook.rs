//! A login whose code goes through an HTTP gateway that hangs, fails and recovers.

#![cfg(feature = "webhook")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};
use support::login_server;

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use serde_json::{Value, json};
use support::browser::Browser;
use support::login_server::{ADAS_PHONE, WEB};
use tokio::{sync::mpsc, time::timeout};
use tollgate::delivery::Webhook;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq)]
enum Health {
    Hangs,
    Fails,
    Works,
}

/// A gateway in this state. It reports the requests it gets.
#[derive(Clone)]
struct Gateway {
    health: Arc<Mutex<Health>>,
    tell: mpsc::UnboundedSender<(Health, Value)>,
}

async fn take(State(gateway): State<Gateway>, Json(message): Json<Value>) -> StatusCode {
    let health = *gateway.health.lock().unwrap();
    gateway.tell.send((health, message)).unwrap();
    match health {
        Health::Hangs => pending().await,
        Health::Fails => StatusCode::BAD_GATEWAY,
        Health::Works => StatusCode::ACCEPTED,
    }
}

#[tokio::test]
async fn a_login_does_not_wait_for_a_hanging_gateway_and_completes_after_it_recovers() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let gateway = Gateway { health: Arc::new(Mutex::new(Health::Hangs)), tell };
    let (listener, address) = login_server::listen().await;
    let app = Router::new().route("/otp", post(take)).with_state(gateway.clone());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let key = b"a key of thirty-two plain bytes.";
    let webhook = Webhook::new(&format!("http://{address}/otp"), key).unwrap();
    let webhook = webhook.timeout(Duration::from_millis(300)).unwrap();
    let server =
        login_server::axum("", [], |auth| Router::new().fallback_service(auth.sms(webhook).build().unwrap())).await;
    let mut browser = Browser::new(&server.origin(), "");
    let id = browser.start(&WEB, "ada").await;
    let ask = json!({ "session_id": id, "method": "sms", "phone_number": ADAS_PHONE });

    // the gateway recovers only after this response
    let asked =
        timeout(PATIENCE, browser.call("authenticate", &WEB, ask)).await.expect("the response waits for the gateway");
    assert_eq!((asked.status, asked.json()["status"].as_str()), (200, Some("pending")), "{asked:?}");
    let mut next = async |health| {
        loop {
            let (was, message) = timeout(PATIENCE, told.recv()).await.expect("the gateway got no request").unwrap();
            if was == health {
                return message;
            }
        }
    };
    let first = next(Health::Hangs).await;
    *gateway.health.lock().unwrap() = Health::Fails;
    let second = next(Health::Fails).await;
    // the login continues meanwhile
    let status = browser.open(&format!("/authentication/status?session_id={id}")).await;
    assert_eq!((status.status, status.json()["status"].as_str()), (200, Some("pending")));
    *gateway.health.lock().unwrap() = Health::Works;
    let third = next(Health::Works).await;

    // one message, three attempts
    assert_eq!((&first, &second), (&second, &third));
    assert_eq!(
        (&third["channel"], &third["to"], &third["tenant"]),
        (&json!("sms"), &json!(ADAS_PHONE), &json!("acme"))
    );
    let proved = browser.call("verify-otp", &WEB, json!({ "session_id": id, "otp": third["code"] })).await;
    assert_eq!((proved.status, proved.json()["status"].as_str()), (200, Some("success")), "{proved:?}");
    browser.finish(&WEB, &id).await;
}
