//! The sections. Each of them prints one table.

pub mod alloc;
pub mod bearer;
pub mod calls;
pub mod timing;
pub mod instructions;
pub mod layer;
pub mod logins;
pub mod maps;
pub mod memory;
pub mod passwords;
pub mod redis;
pub mod server;
pub mod sessions;
pub mod signatures;
pub mod size;
pub mod stalls;
pub mod steps;
pub mod store;
pub mod threads;
pub mod tokens;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::Empty;

use crate::{
    random::Random,
    report::unless_quick,
    service::{Limited, answer},
};

/// The programs of this package that sections start.
pub struct Programs<'a> {
    pub one: &'a Path,
    /// The bundled server.
    pub server: &'a Path,
}

/// The name of a section, and what runs it.
type Section = (&'static str, fn(&Programs<'_>));

/// All sections by their names, which are also those of their markers in `BENCHMARKS.md`.
pub const ALL: [Section; 19] = [
    ("layer", |_| layer::run()),
    ("threads", |_| threads::run()),
    ("calls", |_| calls::run()),
    ("server", |programs| server::run(programs.one)),
    ("callgrind", |programs| instructions::run(programs.one)),
    ("alloc", |_| alloc::run()),
    ("size", |_| size::run()),
    ("memory", |programs| memory::run(programs.one)),
    ("stalls", |_| stalls::run()),
    ("maps", |_| maps::run()),
    ("sessions", |_| sessions::run()),
    ("store", |_| store::run()),
    ("passwords", |programs| passwords::run(programs.one)),
    ("logins", |programs| logins::run(programs.one)),
    ("steps", |programs| steps::run(programs.one)),
    ("timing", |_| timing::run()),
    ("bearer", |_| bearer::run()),
    ("tokens", tokens::run),
    ("redis", |_| redis::run()),
];

/// Returns how many calls take about this long.
fn calls_in(mut run: impl FnMut(u64) -> Duration, time: Duration) -> u64 {
    let mut calls = 32;
    loop {
        let took = run(calls);
        if took * 8 >= time || calls >= 1 << 24 {
            let wanted = calls as f64 * time.as_secs_f64() / took.as_secs_f64().max(1e-9);
            return (wanted as u64).max(16);
        }
        calls *= 4;
    }
}

/// Returns the number of rounds, which is 2 in a quick run.
fn rounds(count: usize) -> usize {
    unless_quick(count, 2)
}

/// The numbers of tenants, and their names in figures. A quick run has fewer.
fn tenant_counts() -> [(&'static str, u64); 3] {
    [("1", 1), ("10k", unless_quick(10_000, 1_000)), ("1M", unless_quick(1_000_000, 20_000))]
}

/// Makes calls and returns how long they took together.
pub type Run = Box<dyn FnMut(u64) -> Duration>;

/// Creates calls of this service, each with a random value of a header. All responses must be 200.
fn driven<S: Limited>(mut service: S, name: HeaderName, values: Vec<HeaderValue>) -> Run {
    let mut random = Random(1);
    Box::new(move |calls| {
        let mut good = 0;
        let began = Instant::now();
        for _ in 0..calls {
            let mut request = Request::new(Empty::new());
            let value = &values[random.below(values.len() as u64) as usize];
            request.headers_mut().insert(&name, value.clone());
            let response = answer(&mut service, request);
            good += u64::from(std::hint::black_box(&response).status() == StatusCode::OK);
        }
        let took = began.elapsed();
        assert_eq!(good, calls, "every response is a 200");
        took
    })
}
