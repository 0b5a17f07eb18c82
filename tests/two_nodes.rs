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
    redis_server::RedisServer,
};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tollgate::{
    AuthService, BearerLayer, Client, ClientIp, ClientTable, Identifier, Limiter, NewUser, Password, Passwords, Policy,
    Quota, Quotas, RedisConfig, StoredUsers, Tenant, Tokens, UserId, Users,
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
    for number in 0..USERS {
        let (id, name) = (UserId::parse(format!("u-{number}")).unwrap(), format!("user{number}"));
        if users.by_id(&acme, &id).await.unwrap().is_none() {
            let user = NewUser::new(id, Identifier::parse(&name).unwrap())
                .password(hash.clone())
                .contact(EmailAddress::parse(format!("{name}@example.com")).unwrap());
            users.create(&acme, user).await.unwrap();
        }
    }
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
    let app = by_token.merge(by_session).fallback_service(auth);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    say(&listener.local_addr().unwrap().to_string());
    axum::serve(listener, app).await.unwrap();
}

struct Nodes {
    redis: RedisServer,
    running: [Process; 2],
    origins: Arc<Mutex<[String; 2]>>,
}

impl Nodes {
    async fn start() -> Option<Self> {
        let redis = RedisServer::start(&[])?;
        // one after the other, because the first one creates the users
        let ((one, at_one), (other, at_other)) = (Self::node(&redis).await, Self::node(&redis).await);
        Some(Self { redis, running: [one, other], origins: Arc::new(Mutex::new([at_one, at_other])) })
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
