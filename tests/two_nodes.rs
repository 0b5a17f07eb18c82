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
use person::{Issued, Person, count, is_no_grant};
use serde_json::json;
use support::{
    browser::Browser,
    process::{Process, end_with_parent, say},
    redis_server::{RedisServer, wait_until},
};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tollgate::{
    AuthService, BearerLayer, Client, ClientIp, ClientTable, Identifier, Limiter, NewUser, Password, PasswordHash,
    Passwords, Policy, Quota, Quotas, RedisConfig, StoredUsers, Tenant, Tokens, UserId, Users,
    delivery::{Message, OtpSender, SendError},
    store::{AnyStore, Redis},
    user::EmailAddress,
};

const ISSUER: &str = "http://127.0.0.1:9";
const CALLBACK: &str = "http://127.0.0.1/callback";
const PASSWORD: &str = "correct horse battery staple";
const USERS: usize = 8;
/// The patience of a busy machine. No request takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

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
    let quotas = Quotas::new(Quota::per_minute(1_000_000).unwrap());
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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    say(&listener.local_addr().unwrap().to_string());
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

struct Nodes {
    redis: RedisServer,
    running: [Process; 2],
    origins: Arc<Mutex<[String; 2]>>,
}

impl Nodes {
    async fn start() -> Option<Self> {
        Some(Self::on(RedisServer::start(&[])?).await)
    }

    async fn on(redis: RedisServer) -> Self {
        // one after the other, because the first one creates the users
        let ((one, at_one), (other, at_other)) = (Self::node(&redis).await, Self::node(&redis).await);
        Self { redis, running: [one, other], origins: Arc::new(Mutex::new([at_one, at_other])) }
    }

    async fn node(redis: &RedisServer) -> (Process, String) {
        let mut node = Process::start("node", &[("NODE_REDIS", &redis.url())]);
        let address = timeout(PATIENCE, node.line()).await.expect("a node starts").unwrap();
        (node, format!("http://{address}"))
    }

    async fn restart(&mut self, number: usize) {
        let (node, origin) = Self::node(&self.redis).await;
        self.running[number] = node;
        self.origins.lock().unwrap()[number] = origin;
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
            timeout(PATIENCE, is_up).await.expect("a node recovers");
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
        }
    }
}

// ---- the tests

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_a_login_goes_on_at_the_other_node() {
    let Some(mut nodes) = Nodes::start().await else { return };
    for first_node in [0, 1] {
        let mut person = Person { client: "mfa", ..nodes.person(first_node, first_node) };
        person.start().await;
        assert_eq!(person.password(PASSWORD).await.0.json()["remaining_steps"], 1);
        assert_eq!(person.steps().await, 1);
        let mailbox = format!("{}@example.com", person.name);
        let sender = person.turn % 2;
        assert_eq!(person.call("authenticate", json!({ "method": "email", "email": mailbox })).await.0.status, 200);
        let code = timeout(PATIENCE, nodes.running[sender].line()).await.expect("the code is sent").unwrap();
        // the other node checks it, and knows the wrong one before it
        let wrong = if code == "000000" { "000001" } else { "000000" };
        assert_eq!(person.call("verify-otp", json!({ "otp": wrong })).await.0.error(), "invalid_otp");
        let (answer, _) = person.call("verify-otp", json!({ "otp": code })).await;
        assert_eq!((answer.status, &answer.json()["remaining_steps"]), (200, &json!(0)), "{answer:?}");
        assert_eq!(person.call("verify-otp", json!({ "otp": code })).await.0.error(), "no_pending_challenge");
        assert_eq!(person.call("complete", json!({})).await.0.json()["status"], "completed");
        let code = person.authorize().await.0.redirected("code").unwrap();
        assert_eq!(person.authorize().await.0.redirected("code"), None, "the login is used up");
        let mut issued = Issued::of(&person.redeem(&code).await.0);
        assert!(is_no_grant(&person.redeem(&code).await.0));
        for _ in 0..3 {
            assert_eq!(person.api(&issued.access).await, 200);
            issued = Issued::of(&person.refresh(&issued.refresh).await.0);
        }
        assert_eq!([person.page().await, person.page().await], [200; 2]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_both_nodes_get_at_the_same_time_counts_once() {
    let Some(nodes) = Nodes::start().await else { return };
    for user in 0..3 {
        let mut person = nodes.person(user, user);
        person.start().await;
        let answers = person.at_once(4, async |mut own, _| own.password(PASSWORD).await).await;
        assert_eq!(count(&answers, |answer| answer.status == 200), 1, "{answers:?}");
        assert_eq!(count(&answers, |answer| answer.status == 409), 3, "{answers:?}");
        assert_eq!(person.steps().await, 1);
        let answers = person.at_once(8, async |mut own, _| own.call("complete", json!({})).await).await;
        assert_eq!(count(&answers, |answer| answer.json()["status"] == "completed"), 8, "{answers:?}");
        let answers = person.at_once(8, async |mut own, _| own.authorize().await).await;
        let codes: Vec<_> = answers.iter().filter_map(|answer| answer.redirected("code")).collect();
        assert_eq!(codes.len(), 1, "{answers:?}");
        let code = &codes[0];
        let redeem = |mut own: Person, _| {
            let code = code.clone();
            async move { own.redeem(&code).await }
        };
        let answers = person.at_once(8, redeem).await;
        assert_eq!(count(&answers, is_no_grant), 7, "{answers:?}");
        let mut issued = Issued::of(answers.iter().find(|answer| answer.status == 200).unwrap());
        for _ in 0..3 {
            let refresh = |mut own: Person, _| {
                let token = issued.refresh.clone();
                async move { own.refresh(&token).await }
            };
            let answers = person.at_once(8, refresh).await;
            let all: Vec<_> = answers.iter().map(Issued::of).collect();
            assert_eq!(all.iter().map(|issued| &issued.refresh).collect::<BTreeSet<_>>().len(), 1, "{all:?}");
            assert_ne!(all[0].refresh, issued.refresh);
            issued = all[0].clone();
            assert_eq!([person.api(&issued.access).await, person.api(&issued.access).await], [200; 2]);
        }
        // guesses are counted by both together
        let mut guesser = nodes.person(USERS - 1 - user, 0);
        guesser.start().await;
        let answers = guesser.at_once(20, async |mut own, _| own.password("wrong").await).await;
        assert_eq!(count(&answers, |answer| answer.error() == "invalid_credentials"), 5, "{answers:?}");
        assert_eq!(count(&answers, |answer| answer.error() == "too_many_attempts"), 15, "{answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ends_at_one_node_is_refused_at_the_other_at_once() {
    let Some(nodes) = Nodes::start().await else { return };
    for round in 0..6 {
        let mut person = nodes.person(0, round);
        let issued = person.sign_in().await.unwrap();
        // both nodes have seen the session and the token
        for _ in 0..2 {
            assert_eq!((person.page().await, person.api(&issued.access).await), (200, 200));
            person.turn += 1;
        }
        // a revocation ends the tokens alone
        let only_tokens = round % 3 == 2;
        // requests that go on meanwhile
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut requests = JoinSet::new();
        for turn in 0..4 {
            let (mut own, issued, has_ended) =
                (Person { turn, ..person.clone() }, issued.clone(), Arc::clone(&has_ended));
            requests.spawn(async move {
                loop {
                    let is_late = has_ended.load(SeqCst);
                    let is_api = turn < 2 || only_tokens;
                    let seen = if is_api { own.api(&issued.access).await } else { own.page().await };
                    assert!(seen == 401 || seen == 200 && !is_late, "{seen}");
                    if is_late {
                        return;
                    }
                }
            });
        }
        if only_tokens {
            person.revoke(&issued.refresh).await;
        } else {
            person.log_out(&issued).await;
        }
        has_ended.store(true, SeqCst);
        assert_eq!([person.api(&issued.access).await, person.api(&issued.access).await], [401; 2]);
        let page = if only_tokens { 200 } else { 401 };
        assert_eq!([person.page().await, person.page().await], [page; 2]);
        requests.join_all().await;
        for _ in 0..2 {
            assert!(is_no_grant(&person.refresh(&issued.refresh).await.0));
        }
    }
}

/// Signs in a few times in each of several seconds. All tokens work at both nodes until the end.
async fn new_tokens_stay_valid(nodes: &Nodes) {
    let mut issued = Vec::new();
    for round in 0..4 {
        for user in 0..3 {
            let mut person = nodes.person(user, round + user);
            issued.push(person.sign_in().await.unwrap());
        }
        nodes.next_second();
        let mut person = nodes.person(0, 0);
        for (number, issued) in issued.iter().enumerate() {
            let seen = [person.api(&issued.access).await, person.api(&issued.access).await];
            assert_eq!(seen, [200; 2], "token {number} in round {round}");
        }
    }
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
                new_tokens_stay_valid(&nodes).await;
                continue;
            }
            // one refresh
            let new = Issued::of(&person.refresh(&old.refresh).await.0);
            new_tokens_stay_valid(&nodes).await;
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
            new_tokens_stay_valid(&nodes).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b37_everything_ends_at_both_nodes_at_once_and_accounts_stay() {
    let Some(nodes) = Nodes::start().await else { return };
    for ending in [0, 1] {
        let mut person = nodes.person(0, 0);
        let old = person.sign_in().await.unwrap();
        // a login that is under way, and one that is completed
        let (mut begun, mut completed) = (nodes.person(1, 0), nodes.person(2, 0));
        begun.start().await;
        completed.start().await;
        assert_eq!(completed.password(PASSWORD).await.0.status, 200);
        assert_eq!(completed.call("complete", json!({})).await.0.status, 200);
        assert_eq!([person.page().await, person.page().await], [200; 2]);
        let mut operator = nodes.person(0, ending);
        assert_eq!(operator.ask("GET", "/end-everything", &[], "").await.0.text, "ok");
        for _ in 0..2 {
            assert_eq!((person.page().await, person.api(&old.access).await), (401, 401));
            assert!(is_no_grant(&person.refresh(&old.refresh).await.0));
            person.turn += 1;
        }
        assert_eq!(completed.authorize().await.0.redirected("code"), None);
        assert_eq!(begun.password(PASSWORD).await.0.status, 200);
        assert_eq!(begun.call("complete", json!({})).await.0.status, 200);
        assert_eq!(begun.authorize().await.0.redirected("code"), None);
        assert_eq!(begun.page().await, 401);
        // the second by which clocks may differ
        nodes.next_second();
        nodes.next_second();
        new_tokens_stay_valid(&nodes).await;
    }
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
            // a few seconds ago, and the others depend on another row
            Some(end) => times.is_empty() || times.iter().any(|time| (end + 1..end + 10).contains(time)),
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

/// Signs in, refreshes and signs out until the test is over. Returns how often that went through, and how many requests
/// were lost.
async fn live(mut person: Person, is_over: Arc<AtomicBool>) -> (usize, usize) {
    let mut rounds = 0;
    while !is_over.load(SeqCst) {
        let Some(mut issued) = person.sign_in().await else { continue };
        for _ in 0..3 {
            assert_eq!(person.api(&issued.access).await, 200, "an answered token is lost");
            assert_eq!(person.page().await, 200, "an answered session is lost");
            // a lost answer is repeated
            issued = Issued::of(&person.refresh(&issued.refresh).await.0);
        }
        if rounds % 2 == 0 {
            person.log_out(&issued).await;
            assert_eq!([person.page().await, person.page().await], [401; 2], "an answered sign-out is lost");
        } else {
            person.revoke(&issued.refresh).await;
        }
        assert_eq!([person.api(&issued.access).await, person.api(&issued.access).await], [401; 2]);
        assert!(is_no_grant(&person.refresh(&issued.refresh).await.0), "an answered revocation is lost");
        rounds += 1;
    }
    (rounds, person.lost)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_loses_nothing_that_it_has_answered() {
    let Some(mut nodes) = Nodes::start().await else { return };
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut people = JoinSet::new();
    for user in 0..USERS {
        let person = Person { answered: Arc::clone(&answered), ..nodes.person(user, user) };
        people.spawn(live(person, Arc::clone(&is_over)));
    }
    // in the middle of many steps: each time after another number of answers
    for (round, more) in [37, 61, 23, 90, 48, 71].into_iter().enumerate() {
        for after_kill in [false, true] {
            let until = answered.load(SeqCst) + more;
            let went_on = timeout(PATIENCE, async {
                while answered.load(SeqCst) < until {
                    assert!(people.try_join_next().is_none(), "someone gave up");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            went_on.await.expect("the other node goes on");
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
