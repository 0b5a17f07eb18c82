//! The cost of knowing when a call ends: holds, slots, and tracked bodies.

use std::{
    convert::Infallible,
    future::Future,
    hint::black_box,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use tokio::sync::Semaphore;
use tollgate::{LimitKey, Limiter, Plan, Plans, Quota, RateLimitLayer, tenant::HeaderTenant};
use tower::{Layer, Service};

use super::{Run, calls_in, rounds};
use crate::{
    report::figure,
    service::{Inner, Req, TENANT},
    stats::{Table, by_round, median, nanos, ratio},
};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(40);
/// How many calls are open meanwhile.
const OPEN: usize = 100;
const LIFETIME: Duration = Duration::from_secs(600);

struct Measured {
    name: &'static str,
    tag: &'static str,
    /// The row that it is compared with.
    with: usize,
    run: Run,
    calls: u64,
    times: Vec<f64>,
}

pub fn run() {
    println!("### Calls that last: nanoseconds of a whole call\n");
    println!(
        "One thread and one tenant. `open` means that {OPEN} other calls of the tenant are open meanwhile. Medians of {} interleaved \
         rounds; the ratios are medians of per-round ratios.\n",
        rounds(ROUNDS)
    );
    let mut all: Vec<Measured> = subjects().into_iter().map(measured).collect();
    for _ in 0..rounds(ROUNDS) {
        for one in &mut all {
            one.times.push((one.run)(one.calls).as_nanos() as f64 / one.calls as f64);
        }
    }
    let mut table = Table::new(["call", "", "÷", "compared with"]);
    for one in &all {
        let other = &all[one.with];
        let compared = by_round(&one.times, &other.times, |a, b| a / b);
        figure(format!("calls/{}", one.tag), median(&one.times));
        figure(format!("calls/{}/ratio", one.tag), compared);
        let is_itself = one.tag == other.tag;
        let (shown, with) = if is_itself { ("–".to_owned(), "") } else { (ratio(compared), other.name) };
        table.row([one.name.to_owned(), nanos(median(&one.times)), shown, with.to_owned()]);
    }
    table.print();
}

fn measured((name, tag, with, mut run): (&'static str, &'static str, usize, Run)) -> Measured {
    let calls = calls_in(&mut run, ROUND);
    Measured { name, tag, with, run, calls, times: Vec::new() }
}

fn subjects() -> Vec<(&'static str, &'static str, usize, Run)> {
    let rate = || Quota::per_minute(u32::MAX / 2).expect("valid");
    let slots = || Quota::concurrent(1_000).expect("valid");
    let both = || Plan::new([rate(), slots()]).expect("valid");
    vec![
        ("`check` and `refund` of a rate", "refund", 0, checks(rate())),
        ("`hold` and `commit` of a rate", "hold", 0, holds(rate(), 0)),
        ("`hold` and `commit` of a rate, open", "hold-open", 0, holds(rate(), OPEN)),
        ("a permit of a tokio `Semaphore`", "semaphore", 3, permits()),
        ("`hold` and `commit` of `Quota::concurrent`", "slot", 3, holds(slots(), 0)),
        ("`hold` and `commit` of `Quota::concurrent`, open", "slot-open", 3, holds(slots(), OPEN)),
        ("`hold` and `commit` of both", "both", 1, holds(both(), 0)),
        ("a request through `RateLimitLayer`", "layer", 7, plain(rate().into())),
        ("the same with `tracking_bodies`, a rate and slots", "tracking", 7, tracking(both(), false)),
        ("the same, metered", "metered", 7, tracking(both(), true)),
    ]
}

fn limiter(plan: impl Into<Plan>) -> Limiter {
    Limiter::memory(Plans::new(plan.into()))
}

fn key() -> LimitKey {
    LimitKey::parse("acme").expect("valid")
}

fn timed(calls: u64, mut call: impl FnMut()) -> Duration {
    let began = Instant::now();
    (0..calls).for_each(|_| call());
    began.elapsed()
}

fn checks(plan: Quota) -> Run {
    let (limiter, key) = (limiter(plan), key());
    Box::new(move |calls| {
        timed(calls, || {
            let decision = limiter.check(&key, 1);
            assert!(decision.is_admitted());
            black_box(limiter.refund(decision.into_spend()));
        })
    })
}

fn holds(plan: impl Into<Plan>, open: usize) -> Run {
    let (limiter, key) = (limiter(plan), key());
    let hold = move || limiter.hold(&key, 1, 1, LIFETIME).expect("there is room");
    let open: Vec<_> = (0..open).map(|_| hold()).collect();
    Box::new(move |calls| {
        black_box(&open);
        timed(calls, || hold().commit(0))
    })
}

fn permits() -> Run {
    let semaphore = Arc::new(Semaphore::new(1_000));
    Box::new(move |calls| {
        timed(calls, || {
            let permit = Arc::clone(&semaphore).try_acquire_owned();
            drop(black_box(permit.expect("there is room")));
        })
    })
}

fn layer(plan: Plan) -> RateLimitLayer {
    RateLimitLayer::new(HeaderTenant::new(TENANT).expect("valid"), limiter(plan))
}

fn plain(plan: Plan) -> Run {
    served(layer(plan).layer(Inner::default()))
}

fn tracking(plan: Plan, is_metered: bool) -> Run {
    let layer = layer(plan).tracking_bodies();
    if is_metered {
        return served(layer.metered(10, 50).layer(Inner::default()));
    }
    served(layer.layer(Inner::default()))
}

/// Creates calls of a service with any body.
fn served<B>(mut service: impl Service<Req, Response = Response<B>, Error = Infallible> + 'static) -> Run {
    let tenant = HeaderValue::from_static("acme");
    Box::new(move |calls| {
        timed(calls, || {
            let mut request = Request::new(Empty::new());
            request.headers_mut().insert(TENANT, tenant.clone());
            let mut future = pin!(service.call(request));
            let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("it is ready")
            };
            assert_eq!(black_box(&response).status(), StatusCode::OK);
        })
    })
}
