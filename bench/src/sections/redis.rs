//! Limits, logins and tokens on a real redis-server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{aio::MultiplexedConnection, cmd};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};
use tollgate::{
    AuthService, Limiter, Passwords, Plan, Plans, Quota, Tenant,
    bearer::Algorithm,
    limit::{Fallback, SharedLimiter},
    store::{AnyStore, Memory, Redis, RedisConfig},
};

use super::rounds;
use crate::{
    login::{Ask, Local, PASSWORD, Setup, address, identifier, username},
    machine,
    random::{Random, tenant_id},
    redis_server::{RedisServer, Watch, Work},
    report::{figure, skipped},
    stats::{Table, by_round, median, ratio},
};

const TENANTS: u64 = 10_000;
const ROUNDS: usize = 11;
const ROUND: Duration = Duration::from_millis(300);
const CALLERS: [usize; 2] = [1, 64];
const ONE_WINDOW: &str = "Limiter::redis, one window";
const THREE_QUOTAS: &str = "three quotas";
const LOGINS: u64 = 300;
/// How long each way to check skewed tenants is measured.
const SKEWED: Duration = Duration::from_secs(2);

pub fn run() {
    let Some(server) = RedisServer::start() else {
        println!("### Redis\n");
        skipped("redis-server is not installed");
        return;
    };
    if machine::cores() > 1 {
        machine::pin(machine::cores() - 1);
    }
    let runtime = Builder::new_current_thread().enable_all().build().expect("the runtime starts");
    runtime.block_on(checks(&server));
    runtime.block_on(leases(&server));
    logins(&runtime, &server);
    machine::unpin();
}

// ---- checks

/// One way to check a limit.
#[derive(Clone)]
enum Way {
    /// A script that is called by its hash, without tollgate.
    Bare {
        connection: MultiplexedConnection,
        hash: String,
        prefix: &'static str,
        arguments: [&'static str; 3],
    },
    Tollgate(SharedLimiter),
    /// A hold that is committed at once.
    Hold(SharedLimiter),
}

struct Subject {
    name: &'static str,
    way: Way,
    /// For each number of callers: the checks per second of all rounds.
    rates: [Vec<f64>; CALLERS.len()],
    /// Microseconds of the server per call.
    costs: Vec<f64>,
    /// Calls to the server per check.
    calls: Vec<f64>,
}

async fn checks(server: &RedisServer) {
    println!("### Checks per second on Redis\n");
    println!(
        "One connection to a redis-server on its own core, {TENANTS} tenants chosen uniformly, quotas that never run \
         out. The bare scripts are called in a loop with the same client crate and connection: `gcra` keeps one \
         number, `buckets` a window of seven counts that is not exact. Both use the time of the server. Medians of \
         {ROUNDS} interleaved rounds; ratios are medians of per-round ratios. `server` is the time of one script, \
         `calls` are those to the server per check. A hold is opened and committed in one call each, and a slot likewise.\n"
    );
    let mut subjects = subjects(server).await;
    let mut watch = Watch(server.connect().await);
    // the first round warms up
    for round in 0..=rounds(ROUNDS) {
        for (place, callers) in CALLERS.into_iter().enumerate() {
            for subject in &mut subjects {
                let before = watch.work().await;
                let (checks, rate) = load(subject, callers).await;
                let work = watch.work().await - before;
                if round > 0 {
                    subject.rates[place].push(rate);
                    subject.costs.push(work.micros / work.scripts);
                    subject.calls.push((work.scripts + work.reads) / checks);
                }
            }
        }
    }
    let base = subjects.first().map(|first| first.rates.clone()).unwrap_or_default();
    let mut table = Table::new(["subject", "1 caller", "÷ gcra", "64 callers", "÷ gcra", "server, µs", "calls"]);
    for subject in &subjects {
        let [one, many] = &subject.rates;
        table.row([
            subject.name.to_owned(),
            format!("{:.0}", median(one)),
            ratio(by_round(one, &base[0], |own, base| own / base)),
            format!("{:.0}", median(many)),
            ratio(by_round(many, &base[1], |own, base| own / base)),
            format!("{:.1}", median(&subject.costs)),
            format!("{:.2}", median(&subject.calls)),
        ]);
        if subject.name == ONE_WINDOW {
            figure("redis/calls", median(&subject.calls));
        }
        if subject.name == THREE_QUOTAS {
            figure("redis/three", by_round(many, &base[1], |own, base| own / base));
        }
    }
    table.print();
}

async fn subjects(server: &RedisServer) -> Vec<Subject> {
    let subject = |name, way| Subject { name, way, rates: Default::default(), costs: Vec::new(), calls: Vec::new() };
    let window = ["60000000", "1000000", "1"];
    let mut subjects = vec![
        subject("bare script, gcra", bare(server, "gcra", include_str!("gcra.lua"), ["60", "1000000", "1"]).await),
        subject("bare script, buckets", bare(server, "buckets", include_str!("buckets.lua"), window).await),
    ];
    let minute = Duration::from_secs(60);
    let quota = |limit| Quota::per_minute(limit).expect("a valid quota");
    let several = [
        quota(1_000_000),
        Quota::fixed(1_000_000, minute).and_then(|quota| quota.with_name("fixed")).expect("a valid quota"),
        Quota::per_day(100_000_000).and_then(|quota| quota.with_name("day")).expect("a valid quota"),
    ];
    let plans = [
        (ONE_WINDOW, Plan::from(quota(1_000_000))),
        ("one smooth quota", Plan::from(Quota::smooth(1_000_000, minute, 1_000_000).expect("a valid quota"))),
        ("one fixed quota", Plan::from(Quota::fixed(1_000_000, minute).expect("a valid quota"))),
        (THREE_QUOTAS, Plan::new(several).expect("a valid plan")),
        ("one window, refused", Plan::from(quota(1))),
    ];
    for (name, plan) in plans {
        subjects.push(subject(name, Way::Tollgate(shared(server, name, plan).await)));
    }
    let slots = Quota::concurrent(1_000).expect("a valid quota");
    for (name, quota) in [("a hold and its commit", quota(1_000_000)), ("a slot and its end", slots)] {
        subjects.push(subject(name, Way::Hold(shared(server, name, quota.into()).await)));
    }
    subjects
}

async fn bare(server: &RedisServer, prefix: &'static str, text: &str, arguments: [&'static str; 3]) -> Way {
    let mut connection = server.connect().await;
    let hash = cmd("SCRIPT").arg("LOAD").arg(text).query_async(&mut connection).await.expect("it is valid");
    Way::Bare { connection, hash, prefix, arguments }
}

async fn shared(server: &RedisServer, name: &str, plan: Plan) -> SharedLimiter {
    let prefix: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let limiter = Limiter::redis(config(server, &prefix), Plans::new(plan)).fallback(Fallback::Closed).connect().await;
    limiter.expect("the server answers")
}

/// Returns settings with which no check is late on a busy machine.
fn config(server: &RedisServer, prefix: &str) -> RedisConfig {
    let config = RedisConfig::new(&server.url()).and_then(|config| config.key_prefix(prefix));
    config.and_then(|config| config.deadline(Duration::from_secs(5))).expect("valid settings")
}

/// Checks tenants chosen uniformly with this many callers at a time. Returns the checks, and how many there were per second.
async fn load(subject: &Subject, callers: usize) -> (f64, f64) {
    let (began, mut all) = (Instant::now(), JoinSet::new());
    for caller in 0..callers {
        let mut random = Random(caller as u64);
        match subject.way.clone() {
            Way::Bare { mut connection, hash, prefix, arguments } => all.spawn(async move {
                let mut checks = 0_u64;
                while began.elapsed() < ROUND {
                    let key = format!("{prefix}:limit:{{{}}}", tenant(random.below(TENANTS)));
                    let mut call = cmd("EVALSHA");
                    call.arg(&hash).arg(1).arg(key).arg(&arguments);
                    let reply: (u32, u64, String) = call.query_async(&mut connection).await.expect("it answers");
                    assert_eq!(reply.0, 1, "it is admitted");
                    checks += 1;
                }
                checks
            }),
            Way::Tollgate(limiter) => all.spawn(async move {
                let mut checks = 0_u64;
                while began.elapsed() < ROUND {
                    let decision = limiter.check(&tenant(random.below(TENANTS)), 1).await;
                    assert!(decision.standing().is_some(), "the server answers");
                    checks += 1;
                }
                checks
            }),
            Way::Hold(limiter) => all.spawn(async move {
                let mut holds = 0_u64;
                while began.elapsed() < ROUND {
                    let hold = limiter.hold(&tenant(random.below(TENANTS)), 1, 1, Duration::from_secs(60)).await;
                    hold.expect("there is room").commit(0);
                    holds += 1;
                }
                holds
            }),
        };
    }
    let checks = all.join_all().await.into_iter().sum::<u64>() as f64;
    (checks, checks / began.elapsed().as_secs_f64())
}

// ---- leases

async fn leases(server: &RedisServer) {
    println!("### Leases on Redis\n");
    println!(
        "64 callers at one node, {TENANTS} tenants, of which the one with rank r gets a share of 1 / r (Zipf), one window \
         that never runs out. Medians of {} interleaved rounds of {} s. `round trips` are calls to the server per \
         check, with those that return units.\n",
        ROUNDS / 2,
        SKEWED.as_secs()
    );
    let quotas = || Plans::new(Quota::per_minute(100_000_000).expect("a valid quota"));
    let plain = Limiter::redis(config(server, "plain"), quotas()).fallback(Fallback::Closed).connect().await;
    let leased = Limiter::leased(config(server, "leased"), quotas()).fallback(Fallback::Closed).connect().await;
    let ways =
        [("plain", plain), ("leased", leased)].map(|(name, limiter)| (name, limiter.expect("the server answers")));
    let mut figures: [[Vec<f64>; 2]; 2] = Default::default();
    let mut watch = Watch(server.connect().await);
    // the first round warms up
    for round in 0..=rounds(ROUNDS / 2) {
        for ((_, limiter), [rates, trips]) in ways.iter().zip(&mut figures) {
            let before = watch.work().await;
            let checks = skewed(limiter).await;
            // unused units are returned when the leases have expired
            tokio::time::sleep(SKEWED).await;
            let work = watch.work().await - before;
            if round > 0 {
                rates.push(checks / SKEWED.as_secs_f64());
                trips.push(work.scripts / checks);
            }
        }
    }
    let [[plain_rates, plain_trips], _] = figures.clone();
    let mut table = Table::new(["checks", "a second", "÷ plain", "round trips", "plain ÷"]);
    for ((name, _), [rates, trips]) in ways.iter().zip(&figures) {
        table.row([
            (*name).to_owned(),
            format!("{:.0}", median(rates)),
            ratio(by_round(rates, &plain_rates, |own, plain| own / plain)),
            format!("{:.4}", median(trips)),
            ratio(by_round(trips, &plain_trips, |own, plain| plain / own)),
        ]);
    }
    table.print();
}

/// Checks skewed tenants with 64 callers. Returns the number of checks.
async fn skewed(limiter: &SharedLimiter) -> f64 {
    let tenants: Arc<[Tenant]> = (0..TENANTS).map(tenant).collect();
    let (began, mut all) = (Instant::now(), JoinSet::new());
    for caller in 0..64 {
        let (limiter, tenants, mut random) = (limiter.clone(), Arc::clone(&tenants), Random(caller));
        all.spawn(async move {
            let mut checks = 0_u64;
            while began.elapsed() < SKEWED {
                let rank = (TENANTS as f64).powf(random.below(1 << 30) as f64 / (1_u64 << 30) as f64);
                let decision = limiter.check(&tenants[rank as usize - 1], 1).await;
                assert!(decision.is_admitted(), "the quota never runs out");
                checks += 1;
                // a check by a lease is ready at once, and lets no other caller run
                if checks.is_multiple_of(16) {
                    tokio::task::yield_now().await;
                }
            }
            checks
        });
    }
    all.join_all().await.into_iter().sum::<u64>() as f64
}

fn tenant(number: u64) -> Tenant {
    let name = tenant_id(number);
    Tenant::parse(std::str::from_utf8(&name).expect("it is ASCII")).expect("it is a name of a tenant")
}

// ---- logins and tokens

/// A service, and how long its calls took.
struct Service {
    name: &'static str,
    auth: AuthService,
    /// Microseconds of each login, exchange and refresh.
    times: [Vec<f64>; 3],
    work: [Work; 3],
}

fn logins(runtime: &Runtime, server: &RedisServer) {
    println!("### A login and its tokens on Redis\n");
    println!(
        "Calls in process, without HTTP, one after another: {LOGINS} logins by password (start, authenticate, \
         complete, authorize; argon2 at its least cost), the exchange of each code, and a refresh. ES256. Medians in \
         microseconds. `calls` are those to the server for each of them.\n"
    );
    let config = RedisConfig::new(&server.url()).expect("a valid URL");
    let redis = runtime.block_on(Redis::connect_with(config)).expect("the server answers");
    let service = |name, store: AnyStore| {
        let setup = Setup { store, users: LOGINS, passwords: Passwords::insecure_fast() };
        let auth = runtime.block_on(setup.with_tokens(Algorithm::Es256));
        Service { name, auth, times: Default::default(), work: Default::default() }
    };
    let mut services = [service("Memory", Memory::new().into()), service("Redis", redis.into())];
    let mut watch = Watch(runtime.block_on(server.connect()));
    for user in 0..LOGINS {
        for service in &mut services {
            service.log_in(runtime, &mut watch, user);
        }
    }
    let mut table = Table::new(["call", "store", "µs", "÷ Memory", "calls"]);
    let [memory, _] = &services;
    for (place, call) in ["a login", "a code", "a refresh"].into_iter().enumerate() {
        for service in &services {
            let (times, work) = (&service.times[place], service.work[place]);
            table.row([
                call.to_owned(),
                service.name.to_owned(),
                format!("{:.0}", median(times)),
                ratio(median(times) / median(&memory.times[place])),
                format!("{:.1}", (work.scripts + work.reads) / LOGINS as f64),
            ]);
        }
    }
    table.print();
}

impl Service {
    fn log_in(&mut self, runtime: &Runtime, watch: &mut Watch, user: u64) {
        let mut local = Local::new(address(user));
        let mut refresh = String::new();
        for place in 0..3 {
            let before = runtime.block_on(watch.work());
            let took = match place {
                0 => {
                    let asks: [fn(&Local, u64) -> Ask; 4] = [
                        |local, user| local.browser.start(&identifier(user)),
                        |local, user| local.browser.password(&username(user), PASSWORD),
                        |local, _| local.browser.complete(),
                        |local, _| local.browser.authorize(),
                    ];
                    let mut took = Duration::ZERO;
                    for ask in asks {
                        let answer = local.send(runtime, &self.auth, ask(&local, user));
                        took += answer.took;
                        match answer.location.split_once("code=") {
                            Some((_, code)) => code.split('&').next().unwrap_or_default().clone_into(&mut refresh),
                            None => assert_eq!(answer.status, 200, "{}", answer.text),
                        }
                        if local.browser.login.is_empty() {
                            local.browser.began(&answer.text);
                        }
                    }
                    took
                }
                _ => {
                    let ask = if place == 1 { local.browser.by_code(&refresh) } else { Ask::by_refresh(&refresh) };
                    let answer = local.send(runtime, &self.auth, ask);
                    assert_eq!(answer.status, 200, "{}", answer.text);
                    let (_, after) = answer.text.split_once(r#""refresh_token":""#).expect("it is there");
                    after.split('"').next().unwrap_or_default().clone_into(&mut refresh);
                    answer.took
                }
            };
            self.times[place].push(took.as_secs_f64() * 1e6);
            let work = runtime.block_on(watch.work()) - before;
            self.work[place].scripts += work.scripts;
            self.work[place].reads += work.reads;
        }
    }
}
