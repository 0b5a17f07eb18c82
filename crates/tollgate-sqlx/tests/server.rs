//! The bundled server on SQLite and PostgreSQL, as a program.

#![cfg(all(unix, feature = "postgres", feature = "sqlite", feature = "users"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    dead_code,
    reason = "tests may panic and print, and use only some of the helpers"
)]

mod support {
    #[path = "../../../../tests/support/browser.rs"]
    pub(crate) mod browser;
    #[path = "mod.rs"]
    pub(crate) mod postgres;
}

use std::{fs, path::PathBuf, process::Stdio, sync::LazyLock, time::Duration};

use serde_json::{Value, json};
use support::{
    browser::{Answer, Browser, Registered},
    postgres::{Cluster, reserved_port::ReservedPort, temporary},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};
use tollgate::pkce::{CodeChallenge, CodeVerifier};

/// The server, which is built if needed. Its usual place is also that of the one without a database.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut build = std::process::Command::new(env!("CARGO"));
    build.args(["build", "--message-format=json", "-p", "tollgate-sqlx", "--example", "server"]);
    build.args(if cfg!(feature = "external-providers") { &["--all-features"][..] } else { &[] });
    let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let built = messages.filter(|message| message["target"]["name"] == "server");
    let built = built.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next().unwrap();
    let own = built.with_file_name("server-with-sql");
    let _ = fs::remove_file(&own);
    fs::hard_link(&built, &own).unwrap();
    own
});

const PASSWORD: &str = "correct horse battery staple";
const DEMO: Registered<'_> = Registered { id: "demo-native", redirect_uri: "http://127.0.0.1/callback" };
const WEB: Registered<'_> = Registered { id: "web", redirect_uri: "http://127.0.0.1:3000/callback" };
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const CONFIG: &str = r#"
[[tenants]]
name = "acme"
per_minute = 600
api_keys = ["a-key-of-its-own"]

[[clients]]
id = "web"
tenant = "acme"
redirect_uris = ["http://127.0.0.1:3000/callback"]
scopes = ["openid", "profile"]

[[users]]
tenant = "acme"
id = "u-1"
name = "Ada Lovelace"
identifiers = ["ada", "ada@example.com"]
email = "ada@example.com"
password_hash = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0"
"#;

/// A running server.
struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    origin: String,
}

impl Server {
    async fn start(arguments: &[&str]) -> Self {
        Self::at(0, arguments).await
    }

    /// Starts it at this port, which is a part of its issuer.
    async fn at(port: u16, arguments: &[&str]) -> Self {
        let mut command = Command::new(&*PROGRAM);
        command.arg(format!("--listen=127.0.0.1:{port}")).args(arguments).kill_on_drop(true);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let Some(first) = lines.next_line().await.unwrap() else {
            let mut text = String::new();
            child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
            panic!("{text}");
        };
        let (_, rest) = first.split_once("http://").unwrap();
        let host = rest.split(|c: char| !(c.is_ascii_alphanumeric() || ".:".contains(c))).next().unwrap();
        Self { child, lines, origin: format!("http://{}", host.trim_end_matches('.')) }
    }

    fn browser(&self) -> Browser {
        Browser::new(&self.origin, "")
    }

    async fn redeem(&self, client: &Registered<'_>, code: &str, verifier: &CodeVerifier) -> Answer {
        let form = format!(
            "grant_type=authorization_code&client_id={}&code={code}&code_verifier={}&redirect_uri={}",
            client.id,
            verifier.expose(),
            client.redirect_uri
        );
        self.browser().send("POST", "/token", &[FORM], &form).await
    }

    async fn refresh(&self, client: &Registered<'_>, token: &str) -> Answer {
        let form = format!("grant_type=refresh_token&client_id={}&refresh_token={token}", client.id);
        self.browser().send("POST", "/token", &[FORM], &form).await
    }

    async fn me(&self, access: &str) -> Answer {
        self.browser().send("GET", "/api/me", &[("authorization", &format!("Bearer {access}"))], "").await
    }

    /// Signs in by password, and returns the access token and the refresh token.
    async fn sign_in(&self, client: &Registered<'_>, name: &str) -> Option<(String, String)> {
        let (mut browser, verifier) = (self.browser(), CodeVerifier::generate());
        let challenge = CodeChallenge::from_verifier(&verifier).to_string();
        let with_challenge = |mut members: Value| {
            members["code_challenge"] = json!(challenge);
            members
        };
        let started = browser.call("start", client, with_challenge(json!({ "identifier": name }))).await;
        let id = started.json()["session_id"].clone();
        let proof = json!({ "session_id": id, "method": "password", "username": name, "password": PASSWORD });
        if browser.call("authenticate", client, with_challenge(proof)).await.status != 200 {
            return None;
        }
        browser.call("complete", client, with_challenge(json!({ "session_id": id }))).await;
        let target = format!(
            "/authorize?client_id={}&redirect_uri={}&response_type=code&scope=openid&code_challenge={challenge}\
             &code_challenge_method=S256",
            client.id, client.redirect_uri
        );
        let code = browser.open(&target).await.redirected("code")?;
        Some(tokens(&self.redeem(client, &code, &verifier).await))
    }
}

fn tokens(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    (text("access_token"), text("refresh_token"))
}

/// Runs the server to its end, and returns what it prints to stderr.
async fn refused(arguments: &[&str]) -> String {
    let ends = Command::new(&*PROGRAM).args(arguments).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(20), ends).await.expect("it ends").unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

/// Runs a test on a SQLite file, and on PostgreSQL if it is installed.
async fn on_each<F: Future<Output = ()>>(test: impl Fn(String) -> F) {
    let directory = temporary("server");
    fs::create_dir_all(&directory).unwrap();
    test(format!("sqlite://{}/state.db", directory.display())).await;
    fs::remove_dir_all(directory).unwrap();
    let Some(cluster) = Cluster::start(&[]) else { return };
    test(cluster.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_demo_has_answered_survives_kill_9() {
    on_each(async |url| {
        let port = ReservedPort::new();
        let mut server = Server::at(port.number, &["--database", &url]).await;
        assert_eq!(server.browser().open("/readyz").await.status, 200);
        let (access, refresh) = server.sign_in(&DEMO, "ada").await.unwrap();
        assert_eq!(server.me(&access).await.json()["subject"], "ada");
        server.child.kill().await.unwrap();

        let mut server = Server::at(port.number, &["--database", &url]).await;
        assert_eq!(server.me(&access).await.status, 200);
        let (_, refresh) = tokens(&server.refresh(&DEMO, &refresh).await);
        assert!(server.sign_in(&DEMO, "ada@example.com").await.is_some());
        assert!(server.sign_in(&DEMO, "nobody").await.is_none());
        server.child.kill().await.unwrap();

        let server = Server::at(port.number, &["--database", &url, "--end-sessions"]).await;
        assert_eq!((server.me(&access).await.status, server.refresh(&DEMO, &refresh).await.status), (401, 400));
        // accounts stay; a sign-in within the second after it may have to be repeated
        while server.sign_in(&DEMO, "ada").await.is_none() {}
    })
    .await;
}

/// What `docs/scale.md` says about a move: a new database, and the same file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_users_of_the_file_move_in_and_edits_are_applied() {
    on_each(async |url| {
        let path = temporary("config");
        let file = path.to_str().unwrap();
        let arguments = ["--database", &url, "--config", file];
        fs::write(&path, CONFIG).unwrap();
        let server = Server::start(&arguments).await;
        let (access, refresh) = server.sign_in(&WEB, "ada").await.unwrap();
        assert_eq!(server.me(&access).await.json()["subject"], "u-1");
        drop(server);

        // another name and another password
        let edited = CONFIG.replace("\"ada\"", "\"countess\"").replace("gy5SuVm5", "gy5SuVm6");
        fs::write(&path, edited).unwrap();
        let server = Server::start(&arguments).await;
        assert!(server.sign_in(&WEB, "ada").await.is_none() && server.sign_in(&WEB, "countess").await.is_none());
        assert_eq!(server.refresh(&WEB, &refresh).await.status, 400, "it rests on the old password");
        drop(server);

        fs::write(&path, CONFIG).unwrap();
        let server = Server::start(&arguments).await;
        assert!(server.sign_in(&WEB, "ada").await.is_some());
        drop(server);

        // a user who is not listed any more is disabled and signed out
        fs::write(&path, CONFIG.split("[[users]]").next().unwrap()).unwrap();
        let server = Server::start(&arguments).await;
        assert!(server.sign_in(&WEB, "ada").await.is_none());
        fs::remove_file(&path).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_logins_and_each_counts_its_budgets() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let url = cluster.url();
    let arguments = ["--database", &*url];
    // at the same time, so both find an empty database
    let (one, other) = tokio::join!(Server::start(&arguments), Server::start(&arguments));
    let (access, refresh) = one.sign_in(&DEMO, "ada").await.unwrap();
    // the issuers differ by their ports, so the API of the other does not accept the token, but its store knows the login
    let (_, refresh) = tokens(&other.refresh(&DEMO, &refresh).await);
    assert_eq!(one.me(&access).await.status, 200);
    let form = format!("client_id={}&token={refresh}", DEMO.id);
    assert_eq!(other.browser().send("POST", "/revoke", &[FORM], &form).await.status, 200);
    assert_eq!((one.me(&access).await.status, one.refresh(&DEMO, &refresh).await.status), (401, 400));
    let remaining = async |server: &Server| {
        let answer = server.browser().send("GET", "/api/hello", &[("x-api-key", "demo-globex-key")], "").await;
        answer.header("x-ratelimit-remaining").parse::<i32>().unwrap()
    };
    assert_eq!([remaining(&one).await, remaining(&one).await, remaining(&other).await], [59, 58, 59]);
}

#[tokio::test]
async fn errors_at_the_start_say_what_is_wrong() {
    let said = refused(&[]).await;
    assert!(said.contains("--database is needed"), "{said}");
    let said = refused(&["--data", "x"]).await;
    assert!(said.contains("cargo run --example server -- --data DIR"), "{said}");
    let said = refused(&["--database", "mysql://host/db"]).await;
    assert!(said.contains("neither postgres:// nor sqlite://"), "{said}");
    let said = refused(&["--database", "postgres://app:secret@127.0.0.1:1/db"]).await;
    assert!(said.contains("Connection refused") && !said.contains("secret"), "{said}");
    let said = refused(&["--database", "sqlite:///no/such/folder/file.db"]).await;
    assert!(said.contains("unable to open database file"), "{said}");
}
