//! The example `many_tenants`, run as a user runs it: its tenants are kept apart.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may panic")]

mod support;

use std::process::Stdio;

use serde_json::{Value, json};
use support::{
    browser::{Answer, Browser, Registered},
    chromium::Chromium,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// The example of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const ACME: &str = "correct horse battery staple";
const GLOBEX: &str = "compilers are polite";

struct App {
    origin: String,
    printed: [String; 2],
    _open: (Child, Lines<BufReader<ChildStdout>>),
}

impl App {
    async fn start() -> Self {
        let mut path = std::env::current_exe().unwrap();
        path.pop();
        path.pop();
        path.push(format!("examples/many_tenants{}", std::env::consts::EXE_SUFFIX));
        assert!(path.exists(), "{} is not built: run `cargo build --examples` first", path.display());
        let mut command = Command::new(path);
        let mut child = command.arg("127.0.0.1:0").kill_on_drop(true).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let printed = [lines.next_line().await.unwrap().unwrap(), lines.next_line().await.unwrap().unwrap()];
        let origin = printed[0].split_once("open ").unwrap().1.split_once("/acme/").unwrap().0.to_owned();
        Self { origin, printed, _open: (child, lines) }
    }

    fn browser(&self) -> Browser {
        Browser::new(&self.origin, "")
    }
}

/// Exchanges a code, as a client of this tenant.
async fn exchange(browser: &mut Browser, tenant: &str, code: &str) -> Answer {
    let form = format!("grant_type=authorization_code&client_id=app.{tenant}&code={code}&code_verifier={VERIFIER}");
    browser.send("POST", "/token", &[("content-type", "application/x-www-form-urlencoded")], &form).await
}

async fn me(browser: &mut Browser, tokens: &Value) -> Answer {
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    browser.send("GET", "/api/me", &[("authorization", &bearer)], "").await
}

#[tokio::test]
async fn a16_users_codes_and_budgets_of_two_tenants_are_kept_apart() {
    let app = App::start().await;
    let origin = &app.origin;
    assert_eq!(app.printed[0], format!("open {origin}/acme/ and sign in as ada with the password: {ACME}"));
    assert_eq!(app.printed[1], format!("open {origin}/globex/ and sign in as ada with the password: {GLOBEX}"));
    let mut browser = app.browser();
    for path in ["/acme/", "/globex/callback?code=x"] {
        assert!(browser.open(path).await.text.contains("<title>One application, many tenants</title>"), "{path}");
    }

    let (at_acme, at_globex) = (format!("{origin}/acme/callback"), format!("{origin}/globex/callback"));
    let acme = Registered { id: "app.acme", redirect_uri: &at_acme };
    let globex = Registered { id: "app.globex", redirect_uri: &at_globex };
    // one browser is signed in at both, each with its own password, and each sees its own user
    let mut users = Vec::new();
    for (tenant, client, password, other) in [("acme", &acme, ACME, GLOBEX), ("globex", &globex, GLOBEX, ACME)] {
        let mut stranger = app.browser();
        let id = stranger.start(client, "ada").await;
        let step = json!({ "session_id": id, "method": "password", "username": "ada", "password": other });
        assert_eq!(stranger.call("authenticate", client, step).await.status, 401, "{tenant}");

        // a code is good for the client of its tenant alone
        let code = app.browser().log_in(client, "ada", password).await;
        let elsewhere = if tenant == "acme" { "globex" } else { "acme" };
        assert_eq!(exchange(&mut stranger, elsewhere, &code).await.error(), "invalid_grant");

        let code = browser.log_in(client, "ada", password).await;
        let tokens = exchange(&mut browser, tenant, &code).await;
        assert_eq!(tokens.status, 200, "{tokens:?}");
        let answer = me(&mut browser, &tokens.json()).await;
        assert_eq!(
            (answer.text.as_str(), answer.header("x-ratelimit-remaining")),
            (&*format!("ada-of-{tenant} of {tenant}"), "599")
        );
        users.push(tokens.json());
    }
    // what one spends, the other keeps
    assert_eq!(me(&mut browser, &users[0]).await.header("x-ratelimit-remaining"), "598");
    assert_eq!(me(&mut browser, &users[1]).await.header("x-ratelimit-remaining"), "598");
    let sessions = browser.cookies.keys().filter(|name| name.starts_with("session_")).count();
    assert_eq!(sessions, 2, "{:?}", browser.cookies);

    // nor is a refresh token
    let stolen = users[0]["refresh_token"].as_str().unwrap();
    let form = format!("grant_type=refresh_token&client_id=app.globex&refresh_token={stolen}");
    let form_type = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(browser.send("POST", "/token", &form_type, &form).await.error(), "invalid_grant");
}

#[tokio::test]
async fn a16_only_known_tenants_have_a_client_and_each_its_own_redirect_uri() {
    let app = App::start().await;
    let mut browser = app.browser();
    let at = |path: &str| format!("{}{path}", app.origin);
    for (id, path) in [
        ("app.acme", "/globex/callback"),
        ("app.globex", "/acme/callback"),
        ("app.initech", "/initech/callback"),
        ("app.", "//callback"),
        ("app", "/acme/callback"),
        ("acme", "/acme/callback"),
        ("app.acme/../globex", "/acme/../globex/callback"),
        ("app.ACME", "/ACME/callback"),
        ("app.~anonymous", "/~anonymous/callback"),
    ] {
        let answer = browser.authorize(&Registered { id, redirect_uri: &at(path) }).await;
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{id}");
    }
}

#[tokio::test]
async fn a16_the_page_of_the_application_signs_in_at_each_tenant() {
    let Some(mut tab) = Chromium::start("many-tenants").await else { return };
    let app = App::start().await;
    for (tenant, password) in [("acme", ACME), ("globex", GLOBEX)] {
        tab.open(&format!("{}/{tenant}/", app.origin)).await;
        tab.click("button").await;
        for (field, text) in [("identifier", "ada"), ("secret", password)] {
            tab.until(&format!(
                "[document.activeElement.id, document.activeElement.value].includes('{field}') \
                 && !document.body.hasAttribute('aria-busy')"
            ))
            .await;
            tab.insert(text).await;
            tab.press("Enter").await;
        }
        let expected = format!("ada-of-{tenant} of {tenant}");
        tab.until(&format!("document.querySelector('output')?.textContent === '{expected}'")).await;
        assert_eq!(tab.ask("location.search").await.unwrap(), "");
    }
}
