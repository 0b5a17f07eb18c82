//! The example `own_users_sqlite` as a program: the life of an account in a table of the application.

#![cfg(all(unix, feature = "sqlite", feature = "users"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "tests may panic, and use only some of the helpers"
)]

#[path = "../../../tests/support/browser.rs"]
mod browser;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::LazyLock,
    time::Duration,
};

use browser::{Answer, Browser};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const NORA: &str = "nora@example.com";
const MOVED: &str = "nora@example.org";
const FIRST: &str = "a long enough password";
const CHANGED: &str = "gravel under moonlight";
const RESET: &str = "an even longer password";

/// The program, which is built if needed.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut build = std::process::Command::new(env!("CARGO"));
    build.args(["build", "--message-format=json", "-p", "tollgate-sqlx", "--example", "own_users_sqlite"]);
    build.args(if cfg!(feature = "external-providers") { &["--all-features"][..] } else { &[] });
    let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let built = messages.filter(|message| message["target"]["name"] == "own_users_sqlite");
    built.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next().unwrap()
});

/// The running program.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    origin: String,
}

/// A login in progress: its page's parameters and its id.
struct Login(Value);

impl Program {
    async fn start(file: &Path) -> Self {
        let mut command = Command::new(&*PROGRAM);
        let mut child =
            command.arg(file).arg("0").kill_on_drop(true).stdout(Stdio::piped()).spawn().expect("the example starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().expect("it prints its address");
        Self { child, lines, origin: first.trim_end_matches('/').to_owned() }
    }

    fn browser(&self) -> Browser {
        Browser::new(&self.origin, "")
    }

    /// Returns the next message, which must be to this address.
    async fn message(&mut self, to: &str) -> String {
        let line = timeout(Duration::from_secs(60), self.lines.next_line()).await.expect("a message").unwrap().unwrap();
        let text = line.strip_prefix(&format!("to {to}: ")).unwrap_or_else(|| panic!("{line}"));
        text.to_owned()
    }

    /// Returns the code in the next message, which must be to this address.
    async fn code(&mut self, to: &str) -> String {
        let text = self.message(to).await;
        let code = text.split(' ').next().unwrap();
        assert!(code.len() == 6 && code.bytes().all(|byte| byte.is_ascii_digit()), "{text}");
        code.to_owned()
    }

    async fn sign_in(&self, name: &str, password: &str) -> Result<Browser, Answer> {
        let mut browser = self.browser();
        let login = Login::begin(&mut browser, "/sign-in", "authentication", json!({ "identifier": name })).await;
        let typed = json!({ "method": "password", "username": name, "password": password });
        let proved = login.call(&mut browser, "authentication/authenticate", typed).await;
        if proved.status != 200 {
            return Err(proved);
        }
        assert_eq!(login.finish(&mut browser).await, "/");
        Ok(browser)
    }

    /// Makes a change, which is refused until both factors of the user are proved.
    async fn change(&mut self, browser: &mut Browser, path: &str, body: Value, (name, password): (&str, &str)) {
        let refused = post(browser, path, body.clone()).await;
        assert_eq!((refused.status, refused.error().as_str()), (403, "fresh_login_required"), "{refused:?}");
        let url = refused.json()["login_url"].as_str().unwrap().to_owned();
        let login = Login::begin(browser, &url, "authentication", json!({ "identifier": name })).await;
        let typed = json!({ "method": "password", "username": name, "password": password });
        if login.call(browser, "authentication/authenticate", typed).await.status != 200 {
            let asked = json!({ "method": "email", "email": name });
            let asked = login.call(browser, "authentication/authenticate", asked).await;
            assert_eq!(asked.status, 200, "{asked:?}");
            let code = self.code(name).await;
            let proved = login.call(browser, "authentication/verify-otp", json!({ "otp": code })).await;
            assert_eq!(proved.status, 200, "{proved:?}");
        }
        assert_eq!(login.finish(browser).await, "/account/security");
        let changed = post(browser, path, body).await;
        assert_eq!(changed.status, 204, "{changed:?}");
    }
}

impl Login {
    /// Opens a page of the site and begins there, as its script does.
    async fn begin(browser: &mut Browser, page: &str, api: &str, members: Value) -> Self {
        let page = if page.contains('?') { page.to_owned() } else { format!("{page}?return_to=/") };
        let opened = browser.open(&page).await;
        assert_eq!(opened.status, 303, "{opened:?}");
        let (_, query) = opened.header("location").split_once('?').unwrap();
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
        let own = Value::Object(pairs.map(|(name, value)| (decoded(name), json!(decoded(value)))).collect());
        let started = Self(own.clone()).call(browser, &format!("{api}/start"), members).await;
        assert_eq!(started.status, 200, "{started:?}");
        let mut own = own;
        own["session_id"] = started.json()["session_id"].clone();
        Self(own)
    }

    async fn call(&self, browser: &mut Browser, path: &str, members: Value) -> Answer {
        let mut body = self.0.clone();
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        post(browser, &format!("/{path}"), body).await
    }

    /// Ends the login, and returns where it leads.
    async fn finish(&self, browser: &mut Browser) -> String {
        let completed = self.call(browser, "authentication/complete", json!({})).await;
        assert_eq!(completed.status, 200, "{completed:?}");
        let finished = browser.open("/sign-in/finish").await;
        assert_eq!(finished.status, 303, "{finished:?}");
        finished.header("location").to_owned()
    }
}

async fn post(browser: &mut Browser, path: &str, body: Value) -> Answer {
    let headers = [("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
    browser.send("POST", path, &headers, &body.to_string()).await
}

async fn user(browser: &mut Browser) -> Option<String> {
    let home = browser.open("/").await.text;
    Some(home.strip_prefix("You are ")?.split_once('.')?.0.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c127_c129_c130_an_account_in_a_table_of_the_application_from_its_sign_up_to_its_end() {
    let file = std::env::temp_dir().join(format!("tollgate-own-users-{}.db", std::process::id()));
    let _ = fs::remove_file(&file);
    let mut program = Program::start(&file).await;

    // sign up
    let mut browser = program.browser();
    let sign_up = async |browser: &mut Browser| {
        Login::begin(browser, "/sign-up", "authentication", json!({ "continue_session": false })).await
    };
    let login = sign_up(&mut browser).await;
    let early = login.call(&mut browser, "sign-up", json!({ "password": FIRST })).await;
    assert_eq!((early.status, early.error().as_str()), (409, "step_required"));
    assert_eq!(login.call(&mut browser, "sign-up/code", json!({ "email": NORA })).await.status, 200);
    let code = program.code(NORA).await;
    assert_eq!(login.call(&mut browser, "sign-up/verify", json!({ "otp": code })).await.status, 200);
    let weak = login.call(&mut browser, "sign-up", json!({ "password": "short" })).await;
    assert_eq!(weak.error(), "password_too_short");
    let created = login.call(&mut browser, "sign-up", json!({ "password": FIRST, "name": "Nora" })).await;
    assert_eq!(created.status, 200, "{created:?}");
    assert_eq!(login.finish(&mut browser).await, "/");
    assert_eq!(user(&mut browser).await.as_deref(), Some("p-1"));
    // once more: the same answers, and another message
    let mut other = program.browser();
    let login = sign_up(&mut other).await;
    assert_eq!(login.call(&mut other, "sign-up/code", json!({ "email": NORA })).await.status, 200);
    let text = program.message(NORA).await;
    assert!(text.contains(&format!("{}/sign-in", program.origin)), "{text}");

    // change the password, the name and the address; the sign-up has just proved both factors
    let mut elsewhere = program.sign_in(NORA, FIRST).await.unwrap();
    assert_eq!(post(&mut browser, "/account/password", json!({ "new_password": CHANGED })).await.status, 204);
    assert!(program.message(NORA).await.contains("password"));
    assert_eq!((user(&mut elsewhere).await, user(&mut browser).await.as_deref()), (None, Some("p-1")));
    assert_eq!(post(&mut browser, "/account/name", json!({ "name": "Nora N." })).await.status, 204);
    let shown = browser.send("GET", "/account/credentials", &[("sec-fetch-site", "same-origin")], "").await.json();
    let contact = shown["contacts"][0]["id"].clone();
    let begun = post(&mut browser, "/account/contacts/begin", json!({ "email": MOVED, "contact_id": contact })).await;
    assert_eq!(begun.status, 200, "{begun:?}");
    let code = program.code(MOVED).await;
    assert_eq!(post(&mut browser, "/account/contacts", json!({ "code": code })).await.status, 204);
    assert!(program.message(NORA).await.contains("address"));
    for (name, password) in [(NORA, CHANGED), (MOVED, FIRST)] {
        assert_eq!(program.sign_in(name, password).await.unwrap_err().error(), "invalid_credentials");
    }
    assert!(program.sign_in(MOVED, CHANGED).await.is_ok());

    // another process has the same accounts
    program.child.kill().await.unwrap();
    let mut program = Program::start(&file).await;
    let mut before = program.sign_in(MOVED, CHANGED).await.unwrap();

    // reset
    let mut browser = program.browser();
    let login = Login::begin(&mut browser, "/reset-password", "reset-password", json!({ "identifier": MOVED })).await;
    let set = async |browser: &mut Browser| login.call(browser, "reset-password", json!({ "password": RESET })).await;
    assert_eq!(set(&mut browser).await.error(), "steps_remaining");
    let asked = login.call(&mut browser, "authentication/authenticate", json!({ "method": "email", "email": MOVED }));
    assert_eq!(asked.await.status, 200);
    let code = program.code(MOVED).await;
    assert_eq!(login.call(&mut browser, "authentication/verify-otp", json!({ "otp": code })).await.status, 200);
    let done = set(&mut browser).await;
    assert_eq!((done.status, done.json()), (200, json!({ "status": "done" })));
    assert!(program.message(MOVED).await.contains("password"));
    assert_eq!(user(&mut before).await, None);
    assert_eq!(program.sign_in(MOVED, CHANGED).await.unwrap_err().error(), "invalid_credentials");

    // delete, in another process, which has sent no code to the address within half a minute
    program.child.kill().await.unwrap();
    let mut program = Program::start(&file).await;
    let mut browser = program.sign_in(MOVED, RESET).await.unwrap();
    program.change(&mut browser, "/account/delete", json!({ "confirmed": true }), (MOVED, RESET)).await;
    assert!(program.message(MOVED).await.contains("deleted"));
    assert_eq!(user(&mut browser).await, None);
    assert_eq!(program.sign_in(MOVED, RESET).await.unwrap_err().error(), "invalid_credentials");
    program.child.kill().await.unwrap();
    fs::remove_file(&file).unwrap();
}
