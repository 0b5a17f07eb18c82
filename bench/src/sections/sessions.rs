//! Requests with a session.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use tollgate::{Session, SessionLayer, Sessions, Tenant, UserId, session::NewSession, store::Memory};
use tower::service_fn;
use tower_layer::Layer;
use tower_sessions::SessionManagerLayer;
use tower_sessions_memory_store::MemoryStore;

use super::{Run, calls_in, driven};
use crate::{
    heap,
    random::tenant_id,
    report::figure,
    service::{Req, Res, finish},
    stats::{Table, by_round, least, median, nanos, ratio, tenants},
};

const ROUNDS: usize = 25;
const ROUND: Duration = Duration::from_millis(15);
const COUNTED: u64 = 10_000;

pub fn run() {
    println!("### Sessions: nanoseconds and heap allocations of a whole call, one thread\n");
    println!(
        "Each request has the cookie of a live session, and the service reads a 16-byte user id from the \
         session. `SessionLayer` is required and uses `Memory`. tower-sessions uses its `MemoryStore` and one \
         `session.get::<String>(\"user\")`. Nothing is written, because no session is due for an update. \
         `call` is the median of {ROUNDS} interleaved rounds, `layer` the call minus the service alone. The \
         ratios are medians of per-round ratios to tower-sessions.\n"
    );
    for count in [1, 10_000] {
        println!("#### {} live session(s), uniform\n", tenants(count));
        table(count);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionLayerKind {
    /// The service alone.
    Inner,
    Tollgate,
    TowerSessions,
}

const ALL: [SessionLayerKind; 3] =
    [SessionLayerKind::Inner, SessionLayerKind::Tollgate, SessionLayerKind::TowerSessions];

impl SessionLayerKind {
    fn name(self) -> &'static str {
        match self {
            Self::Inner => "service alone",
            Self::Tollgate => "tollgate, SessionLayer",
            Self::TowerSessions => "tower-sessions",
        }
    }

    pub fn by_tag(tag: &str) -> Option<Self> {
        ALL.into_iter().find(|kind| format!("{kind:?}") == tag)
    }
}

struct Measured {
    kind: SessionLayerKind,
    calls: u64,
    run: Run,
    nanos: Vec<f64>,
    allocations: f64,
}

fn table(count: u64) {
    let mut all: Vec<Measured> = ALL
        .into_iter()
        .map(|kind| {
            let mut run = subject(kind, count);
            let calls = calls_in(&mut run, ROUND);
            let (_, counts) = heap::count(|| run(COUNTED));
            Measured { kind, calls, run, nanos: Vec::new(), allocations: counts.allocations as f64 / COUNTED as f64 }
        })
        .collect();
    for _ in 0..ROUNDS {
        for one in &mut all {
            one.nanos.push((one.run)(one.calls).as_nanos() as f64 / one.calls as f64);
        }
    }
    let figures = |kind| all.iter().find(|one| one.kind == kind).map_or(&[][..], |one| one.nanos.as_slice());
    let net = |values: &[f64]| -> Vec<f64> {
        values.iter().zip(figures(SessionLayerKind::Inner)).map(|(value, inner)| value - inner).collect()
    };
    let rival = figures(SessionLayerKind::TowerSessions);
    let mut table = Table::new([
        "subject",
        "call",
        "min",
        "layer",
        "call ÷ tower-sessions",
        "layer ÷ tower-sessions",
        "allocations",
    ]);
    for one in &all {
        let (layer, layer_ratio) = match one.kind {
            SessionLayerKind::Inner => (f64::NAN, f64::NAN),
            _ => {
                let layer = net(&one.nanos);
                (median(&layer), by_round(&layer, &net(rival), |a, b| a / b))
            }
        };
        table.row([
            one.kind.name().to_owned(),
            nanos(median(&one.nanos)),
            nanos(least(&one.nanos)),
            nanos(layer),
            ratio(by_round(&one.nanos, rival, |a, b| a / b)),
            ratio(layer_ratio),
            ratio(one.allocations),
        ]);
        let name = format!("sessions/{}/{:?}", tenants(count), one.kind);
        figure(format!("{name}/nanos"), median(&one.nanos));
        figure(format!("{name}/ratio"), by_round(&one.nanos, rival, |a, b| a / b));
    }
    table.print();
}

/// Creates the service behind this layer, with random requests from this many live sessions.
pub fn subject(kind: SessionLayerKind, count: u64) -> Run {
    match kind {
        SessionLayerKind::Inner => {
            let cookies = cookies(count, |user| format!("__Host-session={user:a<43}"));
            driven(service_fn(async |_: Req| answered(Some("0123456789abcdef"))), header::COOKIE, cookies)
        }
        SessionLayerKind::Tollgate => {
            let sessions = Sessions::new(Memory::new());
            let cookies = cookies(count, |user| ours(&sessions, user));
            let inner = service_fn(async |request: Req| {
                answered(Session::from_extensions(request.extensions()).map(|session| session.user().as_str()))
            });
            driven(SessionLayer::new(sessions).required().layer(inner), header::COOKIE, cookies)
        }
        SessionLayerKind::TowerSessions => {
            let store = MemoryStore::default();
            let cookies = cookies(count, |user| theirs(&store, user));
            let inner = service_fn(|request: Req| async move {
                let session = request.extensions().get::<tower_sessions::Session>();
                let session = session.expect("the layer adds the session");
                answered(session.get::<String>("user").await.ok().flatten().as_deref())
            });
            driven(SessionManagerLayer::new(store).layer(inner), header::COOKIE, cookies)
        }
    }
}

/// Responds with an empty 200 if there is a user.
#[inline]
fn answered(user: Option<&str>) -> Result<Res, Infallible> {
    let mut response = Response::new(Body::empty());
    if std::hint::black_box(user).is_none_or(|user| user.len() != 16) {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    Ok(response)
}

fn cookies(count: u64, begin: impl Fn(&str) -> String) -> Vec<HeaderValue> {
    let cookie = |user| {
        let id = tenant_id(user);
        let cookie = begin(str::from_utf8(&id).expect("it is ASCII"));
        HeaderValue::from_str(&cookie).expect("a valid cookie")
    };
    (0..count).map(cookie).collect()
}

fn ours(sessions: &Sessions, user: &str) -> String {
    let tenant = Tenant::parse("acme").expect("a valid name");
    let new = NewSession::new(tenant, UserId::parse(user).expect("a valid id"));
    let (cookie, _) = finish(sessions.create(new)).expect("the session can be stored");
    let cookie = cookie.header_value();
    let pair = cookie.to_str().ok().and_then(|text| text.split(';').next());
    pair.expect("a valid cookie").to_owned()
}

fn theirs(store: &MemoryStore, user: &str) -> String {
    let session = tower_sessions::Session::new(None, Arc::new(store.clone()), None);
    finish(session.insert("user", user)).expect("a valid value");
    finish(session.save()).expect("the session can be stored");
    format!("id={}", session.id().expect("it was saved"))
}
