//! `/readyz`: whether the server can serve. `/healthz` only says that it runs.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CACHE_CONTROL},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tollgate::AuthService;

/// How long an answer counts, so that a flood of probes costs the store nothing.
const LASTS: Duration = Duration::from_secs(1);
/// The longest time that a check of the store takes.
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Readiness {
    auth: AuthService,
    last: Arc<Mutex<Option<Checked>>>,
}

/// When the store was checked, and what is wrong with it.
type Checked = (Instant, Result<(), String>);

pub(crate) fn router(auth: AuthService) -> Router {
    let readiness = Readiness { auth, last: Arc::default() };
    Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(ready)).with_state(readiness)
}

async fn ready(State(Readiness { auth, last }): State<Readiness>) -> Response {
    // others wait for the check that is under way
    let mut last = last.lock().await;
    let answer = match &*last {
        Some((at, answer)) if at.elapsed() < LASTS => answer.clone(),
        _ => {
            let answer = match timeout(LONGEST, auth.check_store()).await {
                Ok(checked) => checked.map_err(|error| error.to_string()),
                Err(_) => Err("the store does not answer".to_owned()),
            };
            last.insert((Instant::now(), answer)).1.clone()
        }
    };
    drop(last);
    let no_store = [(CACHE_CONTROL, "no-store")];
    match answer {
        Ok(()) => (no_store, "ok\n").into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, no_store, format!("{why}\n")).into_response(),
    }
}
