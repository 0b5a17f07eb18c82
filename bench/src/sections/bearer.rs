//! The cost of signing tokens, and of checking them at an API.

use std::time::{Duration, Instant};

use axum::body::Body;
use http::{HeaderValue, Response, header};
use tokio::runtime::Runtime;
use tollgate::{AccessToken, AuthService, BearerLayer, Passwords, bearer::Algorithm, store::Memory};
use tower::service_fn;
use tower_layer::Layer;

use super::{Run, calls_in, driven};
use crate::{
    heap,
    login::{Answer, Ask, Local, PASSWORD, Setup, address, identifier, runtime, username},
    service::{Inner, Limited, Req},
    stats::{Table, by_round, median, nanos, ratio},
};

const ALGORITHMS: [(Algorithm, &str); 3] =
    [(Algorithm::Es256, "ES256"), (Algorithm::EdDsa, "EdDSA"), (Algorithm::Rs256, "RS256")];
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(30);
const EXCHANGES: usize = 100;
const COUNTED: u64 = 1_000;
/// The number of tokens that an API sees, one per user.
const TOKENS: usize = 1_000;

pub fn run() {
    let runtime = runtime();
    let mut apps: Vec<_> =
        ALGORITHMS.into_iter().map(|(algorithm, name)| App::new(&runtime, algorithm, name)).collect();
    signing(&runtime, &mut apps);
    checking(&runtime, &mut apps);
}

// ---- signing

fn signing(runtime: &Runtime, apps: &mut [App]) {
    println!("### The cost of an exchange, by signing algorithm\n");
    println!(
        "A refresh token is exchanged in process, without HTTP, on `Memory`. The service signs an access \
         token and an id_token, or with `scope=email` only an access token. The difference is the cost of \
         building, signing and returning one token. Medians of {ROUNDS} interleaved rounds of {EXCHANGES}; \
         differences and ratios are medians of per-round values.\n"
    );
    let mut rounds = vec![[Vec::new(), Vec::new()]; apps.len()];
    for _ in 0..super::rounds(ROUNDS) {
        for (app, micros) in apps.iter_mut().zip(&mut rounds) {
            for (micros, scope) in micros.iter_mut().zip(["", "email"]) {
                let began = Instant::now();
                for _ in 0..EXCHANGES {
                    app.refresh(runtime, scope);
                }
                micros.push(began.elapsed().as_nanos() as f64 / 1e3 / EXCHANGES as f64);
            }
        }
    }
    let first = rounds.first().cloned().unwrap_or_default();
    let head = ["signed by", "µs, two tokens", "one token", "difference", "two ÷ ES256", "bytes of an access token"];
    let mut table = Table::new(head);
    for (app, [two, one]) in apps.iter().zip(&rounds) {
        table.row([
            app.name.to_owned(),
            format!("{:.1}", median(two)),
            format!("{:.1}", median(one)),
            format!("{:.1}", by_round(two, one, |two, one| two - one)),
            ratio(by_round(two, &first[0], |a, b| a / b)),
            app.access.len().to_string(),
        ]);
    }
    table.print();
}

/// Makes refreshes for a profiler. Returns `None` if the algorithm is unknown.
pub fn refreshes(algorithm: &str, scope: &str, count: u64) -> Option<()> {
    let (algorithm, name) = ALGORITHMS.into_iter().find(|(_, name)| *name == algorithm)?;
    let runtime = runtime();
    let mut app = App::new(&runtime, algorithm, name);
    for _ in 0..count {
        app.refresh(&runtime, scope);
    }
    Some(())
}

/// A login service, and a client with refresh tokens.
struct App {
    name: &'static str,
    service: AuthService,
    local: Local,
    refresh: String,
    access: String,
}

impl App {
    fn new(runtime: &Runtime, algorithm: Algorithm, name: &'static str) -> Self {
        let setup = Setup { store: Memory::new().into(), users: 1, passwords: Passwords::insecure_fast() };
        let service = runtime.block_on(setup.with_tokens(algorithm));
        let mut local = Local::new(address(0));
        local.browser.scope = "openid+email";
        local.start(runtime, &service, &identifier(0));
        local.send(runtime, &service, local.browser.password(&username(0), PASSWORD));
        local.send(runtime, &service, local.browser.complete());
        let location = local.send(runtime, &service, local.browser.authorize()).location;
        let (_, code) = location.split_once("code=").expect("the redirect has a code");
        let ask = local.browser.by_code(code.split('&').next().unwrap_or_default());
        let answer = local.send(runtime, &service, ask);
        let mut app = Self { name, service, local, refresh: String::new(), access: String::new() };
        app.keep(&answer);
        app
    }

    /// Refreshes with these scopes, or with all scopes if the list is empty.
    fn refresh(&mut self, runtime: &Runtime, scope: &str) {
        let answer = self.local.send(runtime, &self.service, Ask::by_refresh_for(&self.refresh, scope));
        self.keep(&answer);
    }

    fn keep(&mut self, answer: &Answer) {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let member = |name: &str| {
            let (_, after) = answer.text.split_once(&format!(r#""{name}":""#)).expect("it is there");
            after.split('"').next().unwrap_or_default().to_owned()
        };
        (self.refresh, self.access) = (member("refresh_token"), member("access_token"));
    }
}

// ---- checking

struct Measured {
    name: String,
    tokens: usize,
    calls: u64,
    run: Run,
    nanos: Vec<f64>,
    allocations: f64,
}

fn checking(runtime: &Runtime, apps: &mut [App]) {
    println!("### BearerLayer: nanoseconds and heap allocations of a whole call, one thread\n");
    println!(
        "Each request has a valid token, chosen at random, and the service reads its subject. For `known` \
         tokens the verifier has cached the signature check, as it does by default. For `not known` tokens \
         the cache is off (`cache(0)`). Each call asks the store, `Memory`, for revocations. `layer` is the \
         call minus the service alone. Medians of {ROUNDS} interleaved rounds.\n"
    );
    let mut all = vec![measured("service alone", vec![HeaderValue::from_static("Bearer none")], Inner::default())];
    for app in apps {
        let mut shown = Vec::new();
        for _ in 0..TOKENS {
            app.refresh(runtime, "");
            shown.push(HeaderValue::from_str(&format!("Bearer {}", app.access)).expect("a valid header"));
        }
        for (name, verifier) in
            [("known", app.service.verifier()), ("not known", app.service.verifier().to_builder().cache(0).build())]
        {
            for count in [1, TOKENS] {
                let inner = service_fn(async |request: Req| {
                    let subject = AccessToken::from_extensions(request.extensions()).map(AccessToken::subject);
                    assert!(std::hint::black_box(subject).is_some());
                    Ok(Response::new(Body::empty()))
                });
                let service = BearerLayer::new(verifier.clone()).layer(inner);
                let shown = shown.iter().take(count).cloned().collect();
                all.push(measured(&format!("{}, {name}", app.name), shown, service));
            }
        }
    }
    for _ in 0..super::rounds(ROUNDS) {
        for one in &mut all {
            one.nanos.push((one.run)(one.calls).as_nanos() as f64 / one.calls as f64);
        }
    }
    let alone = all.first().map(|one| one.nanos.clone()).unwrap_or_default();
    let mut table = Table::new(["subject", "tokens", "call", "layer", "allocations"]);
    for one in &all {
        table.row([
            one.name.clone(),
            one.tokens.to_string(),
            nanos(median(&one.nanos)),
            nanos(by_round(&one.nanos, &alone, |call, alone| call - alone)),
            ratio(one.allocations),
        ]);
    }
    table.print();
}

fn measured(name: &str, shown: Vec<HeaderValue>, service: impl Limited) -> Measured {
    let tokens = shown.len();
    let mut run = driven(service, header::AUTHORIZATION, shown);
    // makes all tokens known
    run(tokens as u64 * 10);
    let calls = calls_in(&mut run, ROUND);
    let (_, counts) = heap::count(|| run(COUNTED));
    let allocations = counts.allocations as f64 / COUNTED as f64;
    Measured { name: name.to_owned(), tokens, calls, run, nanos: Vec::new(), allocations }
}
