//! Two processes with one Redis: logins, tokens and sessions that take turns between them, races at both, and kill -9 of
//! one of them.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests may panic and print"
)]

mod support;

#[path = "two_nodes/person.rs"]
mod person;
#[path = "two_nodes/scenarios.rs"]
mod scenarios;

use std::{
    collections::BTreeSet,
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, routing::get};
use person::{Issued, Person, is_no_grant};
use serde_json::json;
use support::{
    browser::Browser,
    process::{Process, end_with_parent, patiently, say},
    redis_server::{RedisServer, ReservedPort, wait_until},
};
use tokio::{net::TcpListener, task::JoinSet};
use tollgate::{
    AuthService, BearerLayer, Client, ClientIp, ClientTable, Identifier, Limiter, NewUser, Password, Passwords, Plans,
    Quota, StoredUsers, Tenant, Tokens, UserId, Users,
    delivery::{Message, OtpSender, SendError},
    password::PasswordHash,
    policy::Policy,
    store::{AnyStore, Redis, RedisConfig},
    user::EmailAddress,
};

const ISSUER: &str = "http://127.0.0.1:9";
const CALLBACK: &str = "http://127.0.0.1/callback";
const PASSWORD: &str = "correct horse battery staple";
const USERS: usize = 8;
// ---- the nodes

/// Prints codes for the test.
struct Printer;

impl OtpSender for Printer {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        say(message.code());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a node, which the other tests start as a process"]
async fn node() {
    let Ok(url) = std::env::var("NODE_REDIS") else { return };
    end_with_parent();
    let config = RedisConfig::new(&url).unwrap().deadline(Duration::from_secs(5)).unwrap();
    let store = AnyStore::from(Redis::connect_with(config.clone()).await.unwrap());
    let quotas = Plans::new(Quota::per_minute(1_000_000).unwrap());
    let (acme, users, passwords) =
        (Tenant::parse("acme").unwrap(), StoredUsers::new(store.clone()), Passwords::insecure_fast());
    let hash = passwords.hash(Password::new(PASSWORD)).await.unwrap();
    create_users(&users, &hash).await.unwrap();
    let again = (users.clone(), hash.clone());
    let client =
        |id: &str| Client::new(id, acme.clone()).unwrap().redirect_uri(CALLBACK).unwrap().scopes("openid").unwrap();
    let auth = AuthService::builder(ISSUER, store)
        .clients(ClientTable::new([client("web"), client("mfa").policy(Policy::any(2).unwrap())]).unwrap())
        .users(users)
        .client_ip(ClientIp::unknown())
        .passwords(passwords)
        .email(Printer)
        .limiter(Limiter::redis(config, quotas).connect().await.unwrap())
        .tokens(Tokens::new())
        .insecure_loopback()
        .build()
        .unwrap();
    auth.prepare().await.unwrap();
    let by_token = Router::new().route("/api", get(async || "ok")).layer(BearerLayer::new(auth.verifier()));
    let by_session = Router::new().route("/account", get(async || "ok")).layer(auth.session_layer().required());
    let end_everything = auth.clone();
    let by_test = Router::new()
        // what a flush has deleted
        .route("/users", get(async move || create_users(&again.0, &again.1).await.map_or("down", |()| "ok")))
        .route("/end-everything", get(async move || end_everything.end_everything().await.map_or("down", |()| "ok")));
    let app = by_token.merge(by_session).merge(by_test).fallback_service(auth);
    let port = std::env::var("NODE_PORT").unwrap();
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
    say("ready");
    axum::serve(listener, app).await.unwrap();
}

async fn create_users(users: &StoredUsers, hash: &PasswordHash) -> Result<(), Box<dyn Error>> {
    let acme = Tenant::parse("acme")?;
    for number in 0..USERS {
        let (id, name) = (UserId::parse(format!("u-{number}"))?, format!("user{number}"));
        if users.by_id(&acme, &id).await?.is_none() {
            let user = NewUser::new(id, Identifier::parse(&name)?)
                .password(hash.clone())
                .contact(EmailAddress::parse(format!("{name}@example.com"))?);
            users.create(&acme, user).await?;
        }
    }
    Ok(())
}

fn origin(port: &ReservedPort) -> String {
    format!("http://127.0.0.1:{}", port.number)
}

struct Nodes {
    redis: RedisServer,
    running: [Process; 2],
    origins: Arc<Mutex<[String; 2]>>,
    /// Also those of nodes that were killed: people still ask there until they learn the new address.
    ports: Vec<ReservedPort>,
}

impl Nodes {
    async fn start() -> Option<Self> {
        Some(Self::on(RedisServer::start(&[])?).await)
    }

    async fn on(redis: RedisServer) -> Self {
        // one after the other, because the first one creates the users
        let ((one, at_one), (other, at_other)) = (Self::node(&redis).await, Self::node(&redis).await);
        let origins = [origin(&at_one), origin(&at_other)];
        Self { redis, running: [one, other], origins: Arc::new(Mutex::new(origins)), ports: vec![at_one, at_other] }
    }

    async fn node(redis: &RedisServer) -> (Process, ReservedPort) {
        let port = ReservedPort::new();
        let mut node = Process::start("node", &[("NODE_REDIS", &redis.url()), ("NODE_PORT", &port.number.to_string())]);
        patiently(node.line()).await.expect("a node starts").unwrap();
        (node, port)
    }

    async fn restart(&mut self, number: usize) {
        let (node, port) = Self::node(&self.redis).await;
        self.running[number] = node;
        self.origins.lock().unwrap()[number] = origin(&port);
        self.ports.push(port);
    }

    /// Waits until both nodes reach the server again. Creates the users that it has lost.
    async fn recovered(&self) {
        let origins = self.origins.lock().unwrap().clone();
        for origin in origins {
            let is_up = async {
                while !matches!(
                    Browser::new(&origin, "").try_send("GET", "/users", &[], "").await,
                    Ok(answer) if answer.text == "ok"
                ) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            patiently(is_up).await.expect("a node recovers");
        }
    }

    /// Waits until the clock of the server shows a later second.
    fn next_second(&self) {
        let second = || self.redis.cli(&["time"]).lines().next().map(str::to_owned);
        let now = second();
        wait_until(|| second() != now);
    }

    /// Returns a person whose next request goes to this node.
    fn person(&self, user: usize, first_node: usize) -> Person {
        Person {
            browser: Browser::new("", ""),
            origins: Arc::clone(&self.origins),
            turn: first_node,
            name: format!("user{user}"),
            client: "web",
            verifier: String::new(),
            login: String::new(),
            answered: Arc::default(),
            lost: 0,
            awaits_store: false,
        }
    }
}

// ---- the tests

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_a_login_goes_on_at_the_other_node() {
    let Some(mut nodes) = Nodes::start().await else { return };
    scenarios::steps_go_on_at_the_other_node(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_both_nodes_get_at_the_same_time_counts_once() {
    let Some(nodes) = Nodes::start().await else { return };
    scenarios::calls_at_the_same_time_count_once(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ends_at_one_node_is_refused_at_the_other_at_once() {
    let Some(nodes) = Nodes::start().await else { return };
    scenarios::endings_reach_both_nodes_at_once(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b36_a_restart_of_the_server_refuses_old_tokens_once_and_no_new_one() {
    for settings in [&["--appendonly", "yes", "--appendfsync", "always"][..], &[]] {
        for redis in RedisServer::each(settings) {
            let mut nodes = Nodes::on(redis).await;
            let mut person = nodes.person(0, 0);
            let old = person.sign_in().await.unwrap();
            assert_eq!([person.api(&old.access).await, person.api(&old.access).await], [200; 2]);
            nodes.redis.kill();
            nodes.redis.restart();
            nodes.recovered().await;
            assert_eq!([person.api(&old.access).await, person.api(&old.access).await], [401; 2]);
            if settings.is_empty() {
                assert!(is_no_grant(&person.refresh(&old.refresh).await.0));
                scenarios::new_tokens_stay_valid(&nodes).await;
                continue;
            }
            // one refresh
            let new = Issued::of(&person.refresh(&old.refresh).await.0);
            scenarios::new_tokens_stay_valid(&nodes).await;
            assert_eq!([person.api(&new.access).await, person.api(&new.access).await], [200; 2]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b37_after_a_flush_logins_that_alternate_between_the_nodes_go_on() {
    for redis in RedisServer::each(&[]) {
        let nodes = Nodes::on(redis).await;
        for _ in 0..2 {
            for turn in 0..2 {
                assert!(nodes.person(turn, turn).sign_in().await.is_some());
            }
            nodes.redis.cli(&["flushall"]);
            nodes.recovered().await;
            scenarios::new_tokens_stay_valid(&nodes).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b37_everything_ends_at_both_nodes_at_once_and_accounts_stay() {
    let Some(nodes) = Nodes::start().await else { return };
    scenarios::everything_ends_at_both_nodes(&nodes).await;
}

/// Returns the table, the bytes and the seconds until its end of each row. A row without an end has none.
fn rows(redis: &RedisServer) -> Vec<(String, u64, Option<u64>)> {
    let script = "local rows = {}
        for _, key in ipairs(redis.call('KEYS', '*')) do
            local rest = string.match(key, '^tollgate:{%d+}(.+)$')
            if rest then
                local table = string.sub(rest, 2, 1 + string.byte(rest))
                rows[#rows + 1] = table .. ' ' .. redis.call('MEMORY', 'USAGE', key) .. ' ' .. redis.call('PTTL', key)
            end
        end
        return rows";
    let number = |text: &str| text.parse::<i64>().unwrap();
    let row = |line: &str| {
        let parts: Vec<&str> = line.split(' ').collect();
        // rows without an end have one that is centuries away
        let seconds = u64::try_from(number(parts[2]) / 1000).ok().filter(|seconds| *seconds < 100 * 365 * 86_400);
        (parts[0].to_owned(), u64::try_from(number(parts[1])).unwrap(), seconds)
    };
    redis.cli(&["eval", script, "0"]).lines().filter(|line| line.contains(' ')).map(row).collect()
}

/// `docs/scale.md` says what each kind of row costs and how long it stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b41_each_kind_of_row_costs_what_the_document_says() {
    let Some(nodes) = Nodes::start().await else { return };
    // a stranger begins a login, tries a made-up name, and a user signs in
    nodes.person(0, 0).start().await;
    let mut stranger = Person { name: "nobody@example.com".into(), ..nodes.person(0, 0) };
    stranger.start().await;
    assert_eq!(stranger.password("guess").await.0.status, 401);
    let mut person = Person { client: "mfa", ..nodes.person(1, 0) };
    person.start().await;
    assert_eq!(person.password(PASSWORD).await.0.status, 200);
    let mailbox = format!("{}@example.com", person.name);
    assert_eq!(person.call("authenticate", json!({ "method": "email", "email": mailbox })).await.0.status, 200);
    let mut person = nodes.person(2, 0);
    let issued = person.sign_in().await.unwrap();
    let code = nodes.person(3, 0).log_in().await;
    assert!(code.is_some());
    person.revoke(&issued.refresh).await;
    assert!(nodes.person(4, 0).sign_in().await.is_some());
    let found = rows(&nodes.redis);
    let (document, mut wrong) = (include_str!("../docs/scale.md"), Vec::new());
    for table in found.iter().map(|(table, ..)| table).collect::<BTreeSet<_>>() {
        let of_table = || found.iter().filter(|(own, ..)| own == table);
        let bytes = of_table().map(|(_, bytes, _)| *bytes);
        let (least, most) = (bytes.clone().min().unwrap(), bytes.max().unwrap());
        let ends = of_table().map(|(.., ends)| *ends).collect::<BTreeSet<_>>();
        println!("{table}: {} rows of {least} to {most} bytes, until {ends:?}", of_table().count());
        let Some(line) = document.lines().find(|line| line.starts_with(&format!("| `{table}` |"))) else {
            wrong.push(format!("no row of docs/scale.md has the table {table}"));
            continue;
        };
        let stays = line.split('|').nth(4).unwrap();
        let times = [("a minute", 60), ("12 minutes", 720), ("an hour", 3_600), ("a day", 86_400)];
        let times: Vec<u64> =
            times.into_iter().filter(|(words, _)| stays.contains(words)).map(|(_, time)| time).collect();
        let is_said = |end: &Option<u64>| match end {
            None => stays.contains("for ever") || stays.contains("until it is removed"),
            // some seconds ago, and the others depend on another row
            Some(end) => times.is_empty() || times.iter().any(|time| (end + 1..end + 40).contains(time)),
        };
        if !ends.iter().all(is_said) {
            wrong.push(format!("{table}: {ends:?}, and the document says{stays}"));
        }
        let said: u64 = line.split('|').nth(3).unwrap().trim().parse().unwrap();
        assert!(
            most <= said + said / 4 && said <= most + most / 4,
            "{table}: {most} bytes, and the document says {said}"
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_loses_nothing_that_it_has_answered() {
    let Some(mut nodes) = Nodes::start().await else { return };
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut people = JoinSet::new();
    for user in 0..USERS {
        let person = Person { answered: Arc::clone(&answered), ..nodes.person(user, user) };
        people.spawn(scenarios::live(person, Arc::clone(&is_over)));
    }
    // in the middle of many steps: each time after another number of answers
    for (round, more) in [37, 61, 23, 90, 48, 71].into_iter().enumerate() {
        for after_kill in [false, true] {
            let until = answered.load(SeqCst) + more;
            // the other node goes on, or people lose their patience
            while answered.load(SeqCst) < until {
                assert!(people.try_join_next().is_none(), "someone gave up");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if after_kill {
                nodes.restart(round % 2).await;
            } else {
                nodes.running[round % 2].kill().await;
            }
        }
    }
    is_over.store(true, SeqCst);
    let lives = people.join_all().await;
    let (rounds, lost) = lives.iter().fold((0, 0), |sum, life| (sum.0 + life.0, sum.1 + life.1));
    println!("{rounds} sign-ins, {lost} lost requests");
    assert!(rounds >= 10 && lost > 0, "{rounds} sign-ins, {lost} lost requests");
}
