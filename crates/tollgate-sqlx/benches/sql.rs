//! A session check and a login on SQLite and PostgreSQL, next to memory and Redis:
//!
//!     cargo bench -p tollgate-sqlx
//!
//! Prints a table in Markdown. Needs PostgreSQL with its contributed modules, and redis-server.

#![allow(
    dead_code,
    missing_docs,
    clippy::disallowed_methods,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a benchmark may panic and print"
)]

#[path = "../../../bench/src/login/browser.rs"]
mod browser;
#[path = "../../../bench/src/login/local.rs"]
mod local;
#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    convert::Infallible,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use browser::{Ask, Browser};
use http::{Request, Response};
use local::Local;
use sqlx::{AssertSqlSafe, Executor};
use support::{Cluster, temporary};
use tokio::{runtime::Runtime, time::Instant};
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, Identifier, Limiter, NewUser, Password, Passwords, Plans, Quota,
    Session, SessionLayer, Sessions, StoredUsers, Tenant, Tokens, UserId,
    session::NewSession,
    store::{AnyStore, Memory, Redis},
    user::AnyUsers,
};
use tollgate_sqlx::{Database, SqlStore, SqlUsers};
use tower::{Layer, Service as _, service_fn};

const LOGINS: usize = 200;
const CHECKS: usize = 3000;
const PASSWORD: &str = "correct horse battery staple";

/// What is measured: a store with its users, or a table of tower-sessions.
struct Subject {
    name: &'static str,
    store: AnyStore,
    auth: AuthService,
    counter: Counter,
}

/// How round trips to the server are counted.
enum Counter {
    Nothing,
    Redis(u16),
    Postgres,
}

impl Counter {
    fn read(&self, cluster: &Cluster) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Postgres => {
                let sum = "select coalesce(sum(calls), 0) from pg_stat_statements where query not like '%pg_stat%'";
                cluster.sql(sum).parse().unwrap()
            }
            Self::Redis(port) => {
                let mut info = Command::new("redis-cli");
                info.args(["-p", &port.to_string(), "info", "commandstats"]);
                let text = String::from_utf8(info.output().unwrap().stdout).unwrap();
                let called = |name: &str| {
                    let found = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
                    found.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
                };
                // scripts and reads; what scripts call does not travel
                ["evalsha", "eval", "mget"].into_iter().map(called).sum()
            }
        }
    }
}

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

async fn subject(name: &'static str, store: AnyStore, users: Option<SqlUsers>, counter: Counter) -> Subject {
    let passwords = Passwords::insecure_fast();
    let hash = passwords.hash(Password::new(PASSWORD)).await.unwrap();
    let stored = StoredUsers::new(store.clone());
    for number in 0..LOGINS {
        let (id, name) = (UserId::parse(format!("u-{number}")).unwrap(), format!("user{number}"));
        let new = NewUser::new(id, Identifier::parse(name).unwrap()).password(hash.clone());
        match &users {
            Some(users) => users.create(&acme(), new).await.map(drop).unwrap(),
            None => stored.create(&acme(), new).await.map(drop).unwrap(),
        }
    }
    let web = Client::new("web", acme()).unwrap().redirect_uri("https://app.example/callback").unwrap();
    let users = users.map_or_else(|| AnyUsers::from(stored), AnyUsers::from);
    let auth = AuthService::builder("https://auth.example", store.clone())
        .clients(ClientTable::new([web.scopes("openid").unwrap()]).unwrap())
        .users(users)
        .client_ip(ClientIp::peer())
        .passwords(passwords)
        .limiter(Limiter::memory(Plans::new(Quota::per_minute(1_000_000).unwrap())))
        .tokens(Tokens::new())
        .build()
        .unwrap();
    auth.prepare().await.unwrap();
    Subject { name, store, auth, counter }
}

impl Subject {
    /// Logs in by password up to the code. Returns the microseconds of the service.
    fn log_in(&self, runtime: &Runtime, user: usize) -> f64 {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + u32::try_from(user).unwrap());
        let (mut local, mut took, name) = (Local::new(address.into()), Duration::ZERO, format!("user{user}"));
        let asks: [&dyn Fn(&Local) -> Ask; 4] = [
            &|local| local.browser.start(&name),
            &|local| local.browser.password(&name, PASSWORD),
            &|local| local.browser.complete(),
            &|local| local.browser.authorize(),
        ];
        for (place, ask) in asks.into_iter().enumerate() {
            let answer = local.send(runtime, &self.auth, ask(&local));
            took += answer.took;
            match place {
                0 => local.browser.began(&answer.text),
                3 => assert!(answer.location.contains("code="), "{}", answer.location),
                _ => assert_eq!(answer.status, 200, "{}", answer.text),
            }
        }
        took.as_secs_f64() * 1e6
    }

    /// Returns a closure that sends a request with a session through a `SessionLayer`, and returns its microseconds.
    fn checks(&self, runtime: &Runtime) -> impl FnMut(&Runtime) -> f64 + use<> {
        let sessions = Sessions::new(self.store.clone());
        let new = NewSession::new(acme(), UserId::parse("0123456789abcdef").unwrap());
        let (cookie, _) = runtime.block_on(sessions.create(new)).unwrap();
        let cookie = cookie.header_value().to_str().unwrap().split(';').next().unwrap().to_owned();
        let service = service_fn(async |request: Request<()>| {
            let session = Session::from_extensions(request.extensions()).expect("a session");
            Ok::<_, Infallible>(Response::new(session.user().as_str().len()))
        });
        let mut service = SessionLayer::new(sessions).required().layer(service);
        move |runtime| {
            let request = Request::get("/").header("cookie", &cookie).body(()).unwrap();
            runtime.block_on(async {
                let began = Instant::now();
                let response = service.call(request).await.unwrap();
                assert_eq!(response.status(), 200);
                began.elapsed().as_secs_f64() * 1e6
            })
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The statements of tower-sessions-sqlx-store 0.15.0, with which it creates its table and loads a session.
const TABLE: &str =
    "create table tower_sessions (id text primary key not null, data TYPE not null, expiry_date bigint not null)";
const LOAD: &str = "select data from tower_sessions where id = $1 and expiry_date > $2";

/// Returns a closure that loads a session as tower-sessions does.
fn loads(runtime: &Runtime, database: &Database) -> Box<dyn FnMut(&Runtime) -> f64> {
    let id = "AAAAAAAAAAAAAAAAAAAAAA";
    let data = vec![7_u8; 64];
    macro_rules! on {
        ($pool:expr, $type:literal) => {{
            let pool = $pool.clone();
            runtime.block_on(async {
                pool.execute(AssertSqlSafe(TABLE.replace("TYPE", $type))).await.unwrap();
                let insert = "insert into tower_sessions values ($1, $2, 9000000000000)";
                sqlx::query(insert).bind(id).bind(&data).execute(&pool).await.unwrap();
            });
            Box::new(move |runtime: &Runtime| {
                runtime.block_on(async {
                    let began = Instant::now();
                    let query = sqlx::query_as(LOAD).bind(id).bind(1_800_000_000_i64);
                    let found: Option<(Vec<u8>,)> = query.fetch_optional(&pool).await.unwrap();
                    assert!(found.is_some());
                    began.elapsed().as_secs_f64() * 1e6
                })
            })
        }};
    }
    match database.postgres_pool() {
        Some(pool) => on!(pool, "bytea"),
        None => on!(database.sqlite_pool().unwrap(), "blob"),
    }
}

/// A redis-server without persistence, which ends with its value.
struct RedisServer(Child, u16);

impl RedisServer {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = ["--port", &port.to_string(), "--save", "", "--appendonly", "no"];
        let child = Command::new("redis-server").args(arguments).stdout(Stdio::null()).spawn().unwrap();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::yield_now();
        }
        Self(child, port)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    if std::env::args().all(|argument| argument != "--bench") {
        return;
    }
    let settings = ["shared_preload_libraries=pg_stat_statements"];
    let cluster = Cluster::start(&settings).expect("PostgreSQL is installed");
    cluster.sql("create extension pg_stat_statements");
    let (redis, path) = (RedisServer::start(), temporary("bench"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (sqlite, postgres, at_redis) = runtime.block_on(async {
        let sqlite = Database::connect(&format!("sqlite://{}", path.display())).await.unwrap();
        let postgres = Database::connect(&cluster.url()).await.unwrap();
        for database in [&sqlite, &postgres] {
            database.migrate().await.unwrap();
        }
        (sqlite, postgres, Redis::connect(&format!("redis://127.0.0.1:{}", redis.1)).await.unwrap())
    });
    let of = |database: &Database| (AnyStore::from(SqlStore::new(database)), Some(SqlUsers::new(database)));
    let ((in_sqlite, sqlite_users), (in_postgres, postgres_users)) = (of(&sqlite), of(&postgres));
    let subjects = runtime.block_on(async {
        [
            subject("memory", Memory::new().into(), None, Counter::Nothing).await,
            subject("Redis", at_redis.into(), None, Counter::Redis(redis.1)).await,
            subject("SQLite", in_sqlite, sqlite_users, Counter::Nothing).await,
            subject("PostgreSQL", in_postgres, postgres_users, Counter::Postgres).await,
        ]
    });

    // interleaved, so that what else the machine does affects all of them
    let mut checks: Vec<_> = subjects.iter().map(|subject| (subject.checks(&runtime), Vec::new())).collect();
    let mut rivals = [&sqlite, &postgres].map(|database| (loads(&runtime, database), Vec::new()));
    for _ in 0..CHECKS {
        for (check, times) in &mut checks {
            times.push(check(&runtime));
        }
        for (load, times) in &mut rivals {
            times.push(load(&runtime));
        }
    }
    let mut trips = Vec::new();
    for (subject, (check, _)) in subjects.iter().zip(&mut checks) {
        let before = subject.counter.read(&cluster);
        for _ in 0..100 {
            check(&runtime);
        }
        trips.push(per(subject, before, &cluster, 100));
    }
    let checks: Vec<f64> = checks.into_iter().map(|(_, times)| median(times)).collect();
    let [at_sqlite, at_postgres] = rivals.map(|(_, times)| median(times));
    println!("| call | store | µs | ÷ memory | ÷ tower-sessions | round trips |\n|---|---|--:|--:|--:|--:|");
    for (place, subject) in subjects.iter().enumerate() {
        let rival = match subject.name {
            "SQLite" => format!("{:.2}", checks[place] / at_sqlite),
            "PostgreSQL" => format!("{:.2}", checks[place] / at_postgres),
            _ => "–".to_owned(),
        };
        let (us, ratio) = (checks[place], checks[place] / checks[0]);
        println!("| a session check | {} | {us:.1} | {ratio:.1} | {rival} | {} |", subject.name, trips[place]);
    }
    println!("| tower-sessions loads a session | SQLite | {at_sqlite:.1} | {:.1} | 1.00 | – |", at_sqlite / checks[0]);
    println!(
        "| tower-sessions loads a session | PostgreSQL | {at_postgres:.1} | {:.1} | 1.00 | 1.0 |",
        at_postgres / checks[0]
    );

    let mut times = subjects.each_ref().map(|_| Vec::new());
    let mut trips = subjects.each_ref().map(|_| String::new());
    for user in 0..LOGINS {
        for (subject, times) in subjects.iter().zip(&mut times) {
            if user != 0 {
                times.push(subject.log_in(&runtime, user));
            }
        }
    }
    for (subject, trips) in subjects.iter().zip(&mut trips) {
        let before = subject.counter.read(&cluster);
        for user in 1..21 {
            subject.log_in(&runtime, user);
        }
        *trips = per(subject, before, &cluster, 20);
    }
    let times = times.map(median);
    for (place, subject) in subjects.iter().enumerate() {
        let (us, ratio) = (times[place], times[place] / times[0]);
        println!("| a login | {} | {us:.0} | {ratio:.1} | – | {} |", subject.name, trips[place]);
    }
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
}

/// Returns how many round trips a call took on average.
fn per(subject: &Subject, before: u64, cluster: &Cluster, calls: u32) -> String {
    match subject.counter {
        Counter::Nothing => "–".to_owned(),
        Counter::Redis(_) | Counter::Postgres => {
            format!("{:.1}", (subject.counter.read(cluster) - before) as f64 / f64::from(calls))
        }
    }
}
