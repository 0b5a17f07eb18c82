//! Two processes with one database: logins, tokens and sessions that take turns between them, races at both, and kill -9 of
//! a process and of PostgreSQL.

#![cfg(all(unix, feature = "postgres", feature = "sqlite", feature = "users"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    dead_code,
    reason = "tests may panic and print, and use only some of the helpers"
)]

mod support {
    #[path = "../../../../tests/support/browser.rs"]
    pub(crate) mod browser;
    #[path = "mod.rs"]
    pub(crate) mod postgres;
    #[path = "../../../../tests/support/process.rs"]
    pub(crate) mod process;
}
#[path = "../../../tests/two_nodes/person.rs"]
mod person;
#[path = "../../../tests/two_nodes/scenarios.rs"]
mod scenarios;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, routing::get};
use person::Person;
use support::{
    browser::Browser,
    postgres::{Cluster, temporary},
    process::{Process, end_with_parent, say},
};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tollgate::{
    AuthService, BearerLayer, Client, ClientIp, ClientTable, Identifier, Limiter, NewUser, Password, Passwords, Plans,
    Quota, Tenant, Tokens, UserId, Users,
    clock::{Clock, SystemClock},
    delivery::{Message, OtpSender, SendError},
    policy::Policy,
    store::AnyStore,
    user::EmailAddress,
};
use tollgate_sqlx::{Database, SqlStore, SqlUsers};

const ISSUER: &str = "http://127.0.0.1:9";
const CALLBACK: &str = "http://127.0.0.1/callback";
const PASSWORD: &str = "correct horse battery staple";
const USERS: usize = 8;
/// The patience of a busy machine. No request takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

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
    let Ok(url) = std::env::var("NODE_DATABASE") else { return };
    end_with_parent();
    let database = Database::connect(&url).await.unwrap();
    database.migrate().await.unwrap();
    let (store, users) = (AnyStore::from(SqlStore::new(&database)), SqlUsers::new(&database));
    let (acme, passwords) = (Tenant::parse("acme").unwrap(), Passwords::insecure_fast());
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
        .limiter(Limiter::memory(Plans::new(Quota::per_minute(1_000_000).unwrap())))
        .tokens(Tokens::new())
        .insecure_loopback()
        .build()
        .unwrap();
    auth.prepare().await.unwrap();
    let by_token = Router::new().route("/api", get(async || "ok")).layer(BearerLayer::new(auth.verifier()));
    let by_session = Router::new().route("/account", get(async || "ok")).layer(auth.session_layer().required());
    let end_everything = auth.clone();
    let by_test = Router::new()
        .route("/end-everything", get(async move || end_everything.end_everything().await.map_or("down", |()| "ok")));
    let app = by_token.merge(by_session).merge(by_test).fallback_service(auth);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    say(&listener.local_addr().unwrap().to_string());
    axum::serve(listener, app).await.unwrap();
}

/// The database of the nodes.
enum Server {
    Postgres(Cluster),
    Sqlite(PathBuf),
}

impl Server {
    fn url(&self) -> String {
        match self {
            Self::Postgres(cluster) => cluster.url(),
            Self::Sqlite(path) => format!("sqlite://{}/state.db", path.display()),
        }
    }

    /// Returns SQLite, and PostgreSQL if it is installed.
    fn each(settings: &[&str]) -> Vec<Self> {
        let path = temporary("nodes");
        std::fs::create_dir_all(&path).unwrap();
        [Some(Self::Sqlite(path)), Cluster::start(settings).map(Self::Postgres)].into_iter().flatten().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Sqlite(path) = self {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

struct Nodes {
    running: [Process; 2],
    origins: Arc<Mutex<[String; 2]>>,
    server: Server,
}

impl Nodes {
    async fn on(server: Server) -> Self {
        // one after the other, because the first one creates the users
        let ((one, at_one), (other, at_other)) = (Self::node(&server).await, Self::node(&server).await);
        Self { server, running: [one, other], origins: Arc::new(Mutex::new([at_one, at_other])) }
    }

    async fn node(server: &Server) -> (Process, String) {
        let mut node = Process::start("node", &[("NODE_DATABASE", &server.url())]);
        let address = timeout(PATIENCE * 4, node.line()).await.expect("a node starts").unwrap();
        (node, format!("http://{address}"))
    }

    async fn restart(&mut self, number: usize) {
        let (node, origin) = Self::node(&self.server).await;
        self.running[number] = node;
        self.origins.lock().unwrap()[number] = origin;
    }

    /// Waits until the clock shows a later second.
    fn next_second(&self) {
        let second = || SystemClock::new().read().1.as_secs();
        let now = second();
        while second() == now {
            std::thread::yield_now();
        }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_serve_one_login_and_everything_counts_once() {
    for server in Server::each(&["fsync=off"]) {
        let mut nodes = Nodes::on(server).await;
        scenarios::steps_go_on_at_the_other_node(&mut nodes).await;
        scenarios::endings_reach_both_nodes_at_once(&nodes).await;
        scenarios::calls_at_the_same_time_count_once(&nodes).await;
        scenarios::everything_ends_at_both_nodes(&nodes).await;
    }
}

/// People who sign in, refresh and sign out, while something is killed.
struct Crowd {
    people: JoinSet<(usize, usize)>,
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
}

impl Crowd {
    fn of(nodes: &Nodes, awaits_store: bool) -> Self {
        let mut own = Self { people: JoinSet::new(), is_over: Arc::default(), answered: Arc::default() };
        for user in 0..USERS {
            let answered = Arc::clone(&own.answered);
            let person = Person { answered, awaits_store, ..nodes.person(user, user) };
            own.people.spawn(scenarios::live(person, Arc::clone(&own.is_over)));
        }
        own
    }

    /// Waits for this many more answers.
    async fn goes_on(&mut self, more: usize) {
        let until = self.answered.load(SeqCst) + more;
        let went_on = timeout(PATIENCE * 2, async {
            while self.answered.load(SeqCst) < until {
                assert!(self.people.try_join_next().is_none(), "someone gave up");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        went_on.await.expect("it goes on");
    }

    /// Returns how often people have signed in, and how many requests were lost.
    async fn end(self) -> (usize, usize) {
        self.is_over.store(true, SeqCst);
        let lives = self.people.join_all().await;
        lives.iter().fold((0, 0), |sum, life| (sum.0 + life.0, sum.1 + life.1))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_loses_nothing_that_it_has_answered() {
    for server in Server::each(&[]) {
        let mut nodes = Nodes::on(server).await;
        let mut crowd = Crowd::of(&nodes, false);
        // in the middle of many steps: each time after another number of answers
        for (round, more) in [37, 61, 90, 48].into_iter().enumerate() {
            crowd.goes_on(more).await;
            nodes.running[round % 2].kill().await;
            crowd.goes_on(more + 20).await;
            nodes.restart(round % 2).await;
        }
        crowd.goes_on(100).await;
        let (rounds, lost) = crowd.end().await;
        println!("{rounds} sign-ins with 3 refreshes each, {lost} lost requests");
        assert!(rounds >= 10 && lost > 0, "{rounds} sign-ins, {lost} lost requests");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgres_loses_nothing_in_500_logins_and_refreshes() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let mut nodes = Nodes::on(Server::Postgres(cluster)).await;
    let mut crowd = Crowd::of(&nodes, true);
    for more in [97, 161, 290, 148] {
        crowd.goes_on(more).await;
        let Server::Postgres(cluster) = &mut nodes.server else { unreachable!() };
        cluster.kill();
        cluster.restart();
    }
    // a login and its three refreshes are about 20 answers
    for _ in 0..500 / 4 {
        crowd.goes_on(20).await;
    }
    let (rounds, lost) = crowd.end().await;
    println!("{rounds} sign-ins with 3 refreshes each, {lost} lost requests");
    assert!(rounds * 4 >= 500 && lost > 0, "{rounds} sign-ins, {lost} lost requests");
}
