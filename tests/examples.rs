//! The examples, run as a user runs them. Cargo builds them before it runs the tests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

#[cfg(unix)]
#[path = "examples/backup.rs"]
mod backup;
#[path = "examples/budgets.rs"]
mod budgets;
#[path = "examples/demo_pages.rs"]
mod demo_pages;
#[path = "examples/file_users.rs"]
mod file_users;
#[cfg(target_os = "linux")]
#[path = "examples/flood.rs"]
mod flood;
#[cfg(target_os = "linux")]
#[path = "examples/full_disk.rs"]
mod full_disk;
#[path = "examples/leases.rs"]
mod leases;
#[path = "examples/live_plans.rs"]
mod live_plans;
#[path = "examples/llm_proxy.rs"]
mod llm_proxy;
#[path = "examples/notices.rs"]
mod notices;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "examples/password_memory.rs"]
mod password_memory;
#[path = "examples/ready.rs"]
mod ready;
#[path = "examples/settings.rs"]
mod settings;
#[path = "examples/sso_demo.rs"]
mod sso_demo;
#[path = "examples/two_servers.rs"]
mod two_servers;

use std::{fs, path::PathBuf};
use support::programs;

use serde_json::{Value, json as members};
use support::browser::{Answer, Browser, Registered};
use support::chromium::Chromium;
use support::example::{Example, run};
use support::wire::{Wire, body, header, status};
use tokio::{net::TcpListener, process::Command};
use tollgate::testing::DpopKey;

fn json(answer: &str) -> Value {
    serde_json::from_str(body(answer)).unwrap()
}

// ---- the server

const FREE_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];
const ACME: &str = "GET /api/hello HTTP/1.1\nx-api-key: demo-acme-key";
const GLOBEX: &str = "GET /api/hello HTTP/1.1\nx-api-key: demo-globex-key";

#[tokio::test]
async fn the_server_prints_links_to_open_and_commands_to_try() {
    let mut server = Example::start("server", &FREE_PORT).await;
    let at = format!("{}/", server.origin);
    assert_eq!((server.line().await, server.line().await), (String::from("Ctrl-C ends it."), String::new()));
    let click = server.line().await;
    assert!(click.starts_with(&format!("Click:  {at}demo/ ")), "{click}");
    for page in ["demo/outbox", "account", "events/"] {
        let line = server.line().await;
        assert!(line.trim_start().starts_with(&format!("{at}{page} ")), "{line}");
    }
    let operator = server.line().await;
    assert!(operator.contains("the header x-operator-key and the key demo-operator-key"), "{operator}");
    assert_eq!((server.line().await, server.line().await), (String::new(), String::from("Try:")));
    for _ in 0..3 {
        let line = server.line().await;
        assert!(line.contains("curl ") && line.contains(&at), "{line}");
    }

    let mut wire = server.wire().await;
    let page = wire.ask("GET /events/ HTTP/1.1").await;
    assert_eq!((status(&page), header(&page, "content-type")), (200, Some("text/html; charset=utf-8")));
    let parts =
        ["/events/page.js", "/events/page.css", "/healthz", "/demo/", "/authentication/page.js", "/openapi.json"];
    for part in parts {
        assert_eq!(status(&wire.ask(&format!("GET {part} HTTP/1.1")).await), 200, "{part}");
    }
    let without_slash = wire.ask("GET /events HTTP/1.1").await;
    assert_eq!((status(&without_slash), header(&without_slash, "location")), (308, Some("/events/")));
}

#[cfg(unix)]
#[tokio::test]
async fn the_script_that_the_server_prints_works_repeatedly() {
    for name in ["curl", "openssl"] {
        if programs::program(&[name]).is_none() {
            return programs::missing(&format!("{name} is not on PATH"));
        }
    }
    let mut server = Example::start("server", &FREE_PORT).await;
    while !server.line().await.starts_with("Log in from a shell") {}
    let mut script = String::new();
    while !script.contains("/api/me") {
        script += &format!("{}\n", server.line().await);
    }
    for _ in 0..2 {
        let output = Command::new("sh").args(["-c", &script]).output().await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let last: Vec<&str> = said.lines().rev().take(2).collect();
        assert!(output.stderr.is_empty() && last.len() == 2, "{said} {:?}", String::from_utf8(output.stderr));
        assert_eq!(serde_json::from_str::<Value>(last[0]).unwrap()["subject"], "ada", "{said}");
        assert_eq!(serde_json::from_str::<Value>(last[1]).unwrap()["name"], "Ada Lovelace", "{said}");
    }
}

#[tokio::test]
async fn the_server_limits_its_demo_tenants_and_shows_each_its_rejections() {
    let server = Example::start("server", &FREE_PORT).await;
    let mut wire = server.wire().await;

    let hello = wire.ask("GET /api/hello HTTP/1.1\nx-api-key: demo-acme-key").await;
    assert_eq!((status(&hello), header(&hello, "x-ratelimit")), (200, Some("600")));
    assert_eq!(body(&hello), r#"{"hello":"acme","remaining":599}"#);
    let unknown = wire.ask("GET /api/hello HTTP/1.1\nx-api-key: guessed").await;
    assert_eq!((status(&unknown), header(&unknown, "www-authenticate")), (401, Some("ApiKey")));
    let missing = wire.ask("GET /api/hello HTTP/1.1").await;
    assert_eq!((status(&missing), header(&missing, "www-authenticate")), (401, Some("ApiKey")));
    // unknown paths are limited too
    for (path, left) in [("/api", "598"), ("/api/", "597"), ("/api/none", "596"), ("/api/hello/", "595")] {
        let answer = wire.ask(&format!("GET {path} HTTP/1.1\nx-api-key: demo-acme-key")).await;
        assert_eq!((status(&answer), header(&answer, "x-ratelimit-remaining")), (404, Some(left)), "{path}");
    }

    let log = |key: &str| format!("GET /events/log HTTP/1.1\n{key}");
    let (as_globex, as_acme) = (log("x-api-key: demo-globex-key"), log("x-api-key: demo-acme-key"));
    let as_operator = "GET /events/log?kind=rate_limited HTTP/1.1\nx-operator-key: demo-operator-key";
    for left in (0..60).rev() {
        let answer = wire.ask(GLOBEX).await;
        assert_eq!((status(&answer), header(&answer, "x-ratelimit-remaining")), (200, Some(&*left.to_string())));
    }
    assert_eq!(json(&wire.ask(&as_globex).await)["events"], Value::Array(Vec::new()));

    let refused = wire.ask(GLOBEX).await;
    assert_eq!((status(&refused), header(&refused, "content-type")), (429, Some("application/problem+json")));
    assert_eq!(json(&refused)["violated-policies"][0], "per-minute");

    // the first rejection is visible at once
    let seen = json(&wire.ask(&as_globex).await)["events"].clone();
    assert_eq!(seen.as_array().unwrap().len(), 1);
    for (field, value) in [("kind", "rate_limited"), ("tenant", "globex"), ("policy", "per-minute")] {
        assert_eq!(seen[0][field], value);
    }
    assert_eq!((&seen[0]["x-ratelimit"], &seen[0]["x-ratelimit-remaining"]), (&60.into(), &0.into()));
    let reset: u64 = header(&refused, "x-ratelimit-reset").unwrap().parse().unwrap();
    assert_eq!(seen[0]["x-ratelimit-reset"], reset);
    assert_eq!(json(&wire.ask(as_operator).await)["events"], seen);

    // but not to other tenants
    assert_eq!(json(&wire.ask(&as_acme).await)["events"], Value::Array(Vec::new()));
    for (request, expected) in [
        ("GET /events/log?tenant=globex HTTP/1.1\nx-api-key: demo-acme-key", 403),
        ("GET /events/log HTTP/1.1\nx-api-key: guessed", 401),
        ("GET /events/log HTTP/1.1\nx-operator-key: guessed", 401),
    ] {
        let answer = wire.ask(request).await;
        assert_eq!(status(&answer), expected, "{request}");
        assert_eq!(header(&answer, "www-authenticate").is_some(), expected == 401, "{request}");
    }

    // requests of other tenants cost acme nothing
    let hello = wire.ask("GET /api/hello HTTP/1.1\nx-api-key: demo-acme-key").await;
    assert_eq!(header(&hello, "x-ratelimit-remaining"), Some("594"));
}

#[tokio::test]
async fn at_its_machine_the_demo_shows_the_events_without_a_key() {
    let server = Example::start("server", &FREE_PORT).await;
    let mut wire = server.wire().await;
    let mut ask = async |path: &str, headers: &str| {
        let headers = headers.replace('\n', "\r\n");
        wire.send(&format!("GET /events/{path} HTTP/1.1\r\n{headers}\r\n\r\n")).await;
        wire.answer(false).await
    };
    for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST"] {
        assert_eq!(status(&ask("log", &format!("host: {host}")).await), 200, "{host}");
    }
    // another name may lead here, too, in a page of another site or behind a proxy
    for refused in [
        "host: evil.example",
        "host: localhost.evil.example",
        "host: 127.0.0.1.evil.example:8080",
        "host: 192.0.2.1",
        "host: localhost\nsec-fetch-site: cross-site",
        "host: localhost\nsec-fetch-site: same-site",
        "host: localhost\nx-forwarded-for: 192.0.2.1",
        "host: localhost\nforwarded: for=192.0.2.1",
        // a key is checked, if there is one
        "host: localhost\nx-operator-key: guessed",
        "host: localhost\nx-api-key: guessed",
    ] {
        assert_eq!(status(&ask("log", refused).await), 401, "{refused}");
    }
    assert_eq!(status(&ask("usage", "host: evil.example").await), 401);
    let all = json(&ask("usage", "host: localhost").await);
    let names: Vec<_> = all["tenants"].as_array().unwrap().iter().map(|one| one["tenant"].clone()).collect();
    assert_eq!(names, ["acme", "globex"]);
    let own = json(&ask("usage", "host: localhost\nx-api-key: demo-globex-key").await);
    assert_eq!(own["tenants"][0]["tenant"], "globex");
    assert_eq!((own["tenants"].as_array().unwrap().len(), &own["admitted"]), (1, &Value::Null));
}

#[tokio::test]
async fn in_a_real_browser_a_flood_of_one_tenant_leaves_the_other_untouched() {
    let Some(mut tab) = Chromium::start("demo-flood").await else { return };
    let server = Example::start("server", &FREE_PORT).await;
    tab.open(&format!("{}/demo/", server.origin)).await;
    // the flood lasts 15 seconds, in which a busy machine may not spend a whole limit
    let mut wire = server.wire().await;
    for _ in 0..590 {
        wire.ask(ACME).await;
    }
    tab.click("#flood").await;
    let number = |tenant: &str, kind: &str| format!("Number(document.querySelector('#{tenant} b.{kind}').textContent)");
    tab.until(&format!("{} > 20 && {} > 1", number("acme", "refused"), number("globex", "admitted"))).await;
    for text in ["HTTP 429", "x-ratelimit: 600", "x-ratelimit-remaining: 0", "retry-after: "] {
        tab.until(&format!("document.querySelector('#acme .headers').textContent.includes('{text}')")).await;
    }
    tab.click("#flood").await;
    tab.until("document.getElementById('flood').textContent === 'Flood acme'").await;
    assert_eq!(tab.ask(&number("globex", "refused")).await.unwrap(), 0);
    // the browser itself reports refused requests
    let complaints = tab.complaints();
    assert!(complaints.iter().all(|complaint| complaint.contains("status of 429")), "{complaints:?}");

    // the event page opens without a key, and shows the flood
    tab.click("nav a:last-child").await;
    tab.until(
        "document.querySelector('#tenants [data-tenant=acme].limited') && document.getElementById('form').hidden",
    )
    .await;
    tab.until("document.querySelector('#tenants [data-tenant=globex]')?.className === ''").await;
    assert_eq!(tab.complaints(), [""; 0]);
}

#[tokio::test]
async fn the_server_streams_a_rejection_while_it_happens() {
    let server = Example::start("server", &FREE_PORT).await;
    let (mut wire, mut stream) = (server.wire().await, server.wire().await);
    stream.send("GET /events/stream HTTP/1.1\r\nhost: x\r\nx-api-key: demo-globex-key\r\n\r\n").await;
    assert!(stream.until("\r\n\r\n").await.contains("content-type: text/event-stream"));
    for _ in 0..61 {
        wire.ask(GLOBEX).await;
    }
    let event = stream.until("\"count\":1}").await;
    assert!(event.contains("event: rate_limited") && event.contains("\"tenant\":\"globex\""), "{event}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_signal_stops_the_server_and_the_file_has_every_event() {
    let path = temporary("event-log.jsonl");
    let mut server = Example::start("server", &["--listen=127.0.0.1:0", "--event-log", path.to_str().unwrap()]).await;
    let mut wire = server.wire().await;
    for _ in 0..61 {
        wire.ask(GLOBEX).await;
    }
    drop(wire);
    let pid = server.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert!(server.child.wait().await.unwrap().success());
    let written = fs::read_to_string(&path).unwrap();
    fs::remove_file(path).unwrap();
    let line: Value = serde_json::from_str(written.trim_end()).unwrap();
    assert_eq!((&line["kind"], &line["tenant"]), (&"rate_limited".into(), &"globex".into()));
}

impl Browser {
    /// Returns what the demo has sent, as programs read it.
    async fn messages(&mut self) -> Value {
        self.send("GET", "/demo/outbox", &[("accept", "application/json")], "").await.json()
    }
}

impl Example {
    fn browser(&self) -> Browser {
        Browser::new(&self.origin, "")
    }

    /// Returns the newest code that was sent.
    async fn code(&self, browser: &mut Browser) -> String {
        // a task of the server sends it
        for _ in 0..10_000 {
            let sent = browser.messages().await;
            if let Some(newest) = sent.as_array().unwrap().last() {
                return newest["code"].as_str().unwrap().to_owned();
            }
        }
        panic!("no code came");
    }
}

#[tokio::test]
async fn the_server_logs_a_user_in_from_its_page_to_the_account_and_out() {
    let server = Example::start("server", &FREE_PORT).await;
    let (mut browser, origin) = (server.browser(), server.origin.clone());
    assert_eq!(browser.open("/").await.header("location"), "/demo/");
    let home = browser.open("/demo/").await;
    for path in ["/", "/demo/"] {
        let refused = browser.send("POST", path, &[], "").await;
        assert!(refused.status == 405 && refused.text.contains("<h1>Page not found</h1>"), "{path}: {refused:?}");
    }
    for client in ["demo-web", "demo-mfa", "demo-native"] {
        assert!(home.text.contains(&format!(r#"href="{origin}/demo/login/{client}""#)), "{}", home.text);
        // a new browser each time, as far as cookies are concerned
        let mut browser = server.browser();
        assert_eq!(browser.open("/account").await.header("location"), "/sign-in?return_to=%2Faccount");
        let sent = browser.open(&format!("/demo/login/{client}")).await;
        let authorize = sent.header("location").to_owned();
        let page = browser.open(&authorize).await;
        assert!(page.header("location").starts_with("/authentication/start?client_id="), "{page:?}");

        // does the same as the login page
        let asked = |name| sent.redirected(name).unwrap();
        let mut parameters = members!({ "identifier": "ada@example.com" });
        for name in ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"] {
            parameters[name] = asked(name).into();
        }
        let json = [("content-type", "application/json")];
        let call = async |browser: &mut Browser, endpoint: &str, parameters: &Value| {
            let path = format!("/authentication/{endpoint}");
            let answer = browser.send("POST", &path, &json, &parameters.to_string()).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()
        };
        let started = call(&mut browser, "start", &parameters).await;
        assert_eq!(started["available_methods"], members!(["password", "sms", "email", "whatsapp", "passkey"]));
        parameters["session_id"] = started["session_id"].clone();
        parameters["method"] = "password".into();
        parameters["username"] = "ada".into();
        parameters["password"] = "correct horse battery staple".into();
        let step = call(&mut browser, "authenticate", &parameters).await;
        if client == "demo-mfa" {
            assert_eq!((&started["required_steps"], &step["remaining_steps"]), (&2.into(), &1.into()));
            parameters["method"] = "sms".into();
            parameters["phone_number"] = "+15555550100".into();
            call(&mut browser, "authenticate", &parameters).await;
            parameters["otp"] = server.code(&mut browser).await.into();
            call(&mut browser, "verify-otp", &parameters).await;
        }
        call(&mut browser, "complete", &parameters).await;

        let back = browser.open(&authorize).await;
        let callback = back.header("location").to_owned();
        let path = if client == "demo-native" { "/callback?code=" } else { "/demo/callback?code=" };
        assert!(callback.starts_with(&format!("{origin}{path}")), "{callback}");
        let shown = browser.open(&callback).await;
        let code = back.redirected("code").unwrap();
        assert!(shown.status == 200 && shown.text.contains(&code), "{shown:?}");
        // an error is shown also if its login is unknown
        let error = "error=invalid_request&error_description=code_challenge+%3Cb%3E&state=x";
        let refused = browser.open(&format!("{}?{error}", callback.split('?').next().unwrap())).await;
        assert!(
            refused.status == 400 && refused.text.contains("invalid_request: code_challenge &lt;b&gt;."),
            "{refused:?}"
        );
        // a login that began in another browser is refused, and so is a repeated one
        assert_eq!(server.browser().open(&callback).await.status, 400);
        assert_eq!(browser.open(&callback).await.status, 400);

        let account = browser.open("/account").await;
        let ways = if client == "demo-mfa" { "a password and a code" } else { "a password" };
        let shown = format!("as <strong>Ada Lovelace</strong> of acme, with {ways}.");
        assert!(account.text.contains(&shown), "{}", account.text);
        assert!(account.text.contains("the applications that you allowed"), "{}", account.text);
        assert_eq!(browser.open("/account/").await.header("location"), "/account");
        let stranger = browser.send("POST", "/account/sign-out", &[("origin", "https://evil.example")], "").await;
        assert_eq!(stranger.status, 403);
        let out = browser.send("POST", "/account/sign-out", &[("origin", &origin)], "").await;
        assert_eq!((out.status, out.header("location")), (303, "/demo/"));
        assert_eq!(browser.open("/account").await.header("location"), "/sign-in?return_to=%2Faccount");
        // a tab that was left open ends where the first one did
        let again = browser.send("POST", "/account/sign-out", &[("origin", &origin)], "").await;
        assert_eq!((again.status, again.header("location")), (303, "/demo/"));
    }

    let operator = [("x-operator-key", "demo-operator-key")];
    let log = browser.send("GET", "/events/log", &operator, "").await.text;
    for kind in [
        "authn_login_start",
        "authn_otp_sent",
        "authn_login_step",
        "authn_login_success",
        "authn_code_created",
        "session_revoked",
    ] {
        assert!(log.contains(&format!(r#""kind":"{kind}""#)), "{kind}: {log}");
    }
}

#[tokio::test]
async fn in_a_real_browser_a_user_logs_in_from_the_demo_page_and_out_again() {
    let Some(mut tab) = Chromium::start("demo").await else { return };
    let server = Example::start("server", &FREE_PORT).await;
    let focus = |name: &str| {
        format!(
            "[document.activeElement.id, document.activeElement.value].includes('{name}') \
             && !document.body.hasAttribute('aria-busy')"
        )
    };
    // by its address: the browser is redirected to the name that the cookies belong to
    tab.open(&format!("http://{}/demo/", server.address)).await;
    tab.until("location.pathname === '/demo/'").await;
    tab.click("a[href$=demo-mfa]").await;
    for (field, text) in
        [("identifier", "ada@example.com"), ("password", ""), ("secret", "correct horse battery staple"), ("sms", "")]
    {
        tab.until(&focus(field)).await;
        tab.insert(text).await;
        tab.press("Enter").await;
    }
    tab.until(&focus("otp")).await;
    let code = server.code(&mut server.browser()).await;
    tab.insert(&code).await;
    tab.press("Enter").await;

    tab.until("location.pathname === '/demo/callback' && document.getElementById('code').textContent.length === 43")
        .await;

    // the page has exchanged the code and called userinfo
    let says = |place: &str, text: &str| format!("document.getElementById('{place}').textContent.includes('{text}')");
    tab.until(&says("answer", r#""name": "Ada Lovelace""#)).await;
    assert_eq!(tab.ask("location.search").await.unwrap(), "");
    for (place, text) in [
        ("answer", r#""preferred_username": "ada""#),
        ("answer", r#""email": "ada@example.com""#),
        ("access", r#""client_id": "demo-mfa""#),
        ("access", r#""scope": "email openid profile""#),
        ("identity", r#""aud": "demo-mfa""#),
    ] {
        tab.until(&says(place, text)).await;
    }
    tab.click("#me").await;
    tab.until(&says("answer", r#""subject": "ada""#)).await;
    let refreshes = "document.getElementById('refreshes').textContent";
    let first = tab.ask(refreshes).await.unwrap();
    tab.click("#refresh").await;
    tab.until(&format!("{refreshes} !== {first} && {}", says("answer", r#""status": 200"#))).await;
    tab.click("#me").await;
    tab.until(&says("answer", r#""subject": "ada""#)).await;
    tab.click("#revoke").await;
    tab.until(&says("answer", r#""body": {}"#)).await;
    // the browser itself reports refused requests on the console
    assert_eq!(tab.complaints(), [""; 0]);
    tab.click("#me").await;
    tab.until(&says("answer", r#""status": 401"#)).await;
    tab.complaints();

    tab.click("a[href$=account]").await;
    tab.until("document.body.textContent.includes('as Ada Lovelace of acme, with a password and a code.')").await;
    tab.click("button").await;
    tab.until("location.pathname === '/demo/'").await;
    tab.open(&format!("{}/account", server.origin)).await;
    tab.until("location.pathname === '/authentication/start'").await;
    assert_eq!(tab.complaints(), [""; 0]);
}

#[tokio::test]
async fn in_a_real_browser_the_demo_page_logs_out_the_user_it_logged_in() {
    let Some(mut tab) = Chromium::start("demo-out").await else { return };
    let server = Example::start("server", &FREE_PORT).await;
    let origin = server.origin.clone();
    let focus = |name: &str| {
        format!(
            "[document.activeElement.id, document.activeElement.value].includes('{name}') \
             && !document.body.hasAttribute('aria-busy')"
        )
    };
    tab.open(&format!("{origin}/demo/")).await;
    tab.click("a[href$=demo-native]").await;
    for (field, text) in [("identifier", "grace"), ("password", ""), ("secret", "compilers are polite")] {
        tab.until(&focus(field)).await;
        tab.insert(text).await;
        tab.press("Enter").await;
    }
    tab.until("location.pathname === '/callback'").await;
    tab.until("document.getElementById('answer').textContent.includes('Grace Hopper')").await;
    tab.open(&format!("{origin}/account")).await;
    tab.until("document.body.textContent.includes('as Grace Hopper of acme, with a password.')").await;

    // another client accepts the proof of the session after the user confirms
    let goes_on = "!document.getElementById('going').hidden && document.querySelector('#going button').textContent";
    tab.open(&format!("{origin}/demo/login/demo-web")).await;
    tab.until(&format!("{goes_on} === 'Continue as grace to Demo'")).await;
    tab.click("#going button").await;
    tab.until("document.getElementById('answer')?.textContent.includes('Grace Hopper')").await;
    // and one that needs two steps asks only for the second
    tab.open(&format!("{origin}/demo/")).await;
    tab.click("a[href$=demo-mfa]").await;
    tab.until(&format!("{goes_on} === 'Continue as grace to Demo, two steps'")).await;
    tab.click("#going button").await;
    // the button shows the masked number
    tab.until(&focus("sms")).await;
    tab.press("Enter").await;
    tab.until(&focus("otp")).await;
    let code = server.code(&mut server.browser()).await;
    tab.insert(&code).await;
    tab.press("Enter").await;
    tab.until("document.getElementById('answer')?.textContent.includes('Grace Hopper')").await;
    for proof in ["pwd", "sms", "mfa"] {
        tab.until(&format!("document.getElementById('identity').textContent.includes('\"{proof}\"')")).await;
    }
    // now a request for two steps needs nothing more
    tab.open(&format!("{origin}/demo/")).await;
    tab.click("a[href$=two-steps]").await;
    tab.until(&format!("{goes_on} === 'Continue as grace to Demo'")).await;
    tab.click("#going button").await;
    tab.until(r#"document.getElementById('identity')?.textContent.includes('"acr": "two-steps"')"#).await;
    // the buttons are disabled while the page calls userinfo
    tab.until("document.getElementById('answer').textContent.includes('Grace Hopper')").await;
    tab.until("!document.querySelector('#sign-out button').disabled").await;
    tab.click("#sign-out button").await;
    tab.until("location.pathname === '/demo/'").await;
    tab.open(&format!("{origin}/account")).await;
    tab.until("location.pathname === '/authentication/start'").await;
    assert_eq!(tab.complaints(), [""; 0]);
}

/// The verifier of the challenge in [`Registered`].
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

impl Example {
    /// Returns the tokens of this user at the app. Works once, because a redeemed challenge can't begin another login.
    async fn tokens(&self, browser: &mut Browser, name: &str, password: &str) -> Value {
        let client = Registered { id: "demo-native", redirect_uri: "http://127.0.0.1:51004/callback" };
        let code = browser.log_in(&client, name, password).await;
        let form = format!("grant_type=authorization_code&client_id=demo-native&code={code}&code_verifier={VERIFIER}");
        let answer = browser.send("POST", "/token", &[FORM], &form).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }
}

#[tokio::test]
async fn the_server_issues_tokens_that_work_at_its_api_until_they_are_revoked() {
    let server = Example::start("server", &FREE_PORT).await;
    let mut browser = server.browser();
    let origin = server.origin.clone();
    let tokens = server.tokens(&mut browser, "ada", "correct horse battery staple").await;
    let bearer = |tokens: &Value| format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    let access = bearer(&tokens);
    let token = [("authorization", access.as_str())];

    let me = browser.send("GET", "/api/me", &token, "").await;
    let expected = members!({ "tenant": "acme", "subject": "ada", "client": "demo-native", "scopes": ["openid"] });
    assert_eq!((me.status, me.json()), (200, expected));
    // tokens and API keys share one budget
    let left = |answer: &Answer| answer.header("x-ratelimit-remaining").parse::<u32>().unwrap();
    let before = left(&me);
    let hello = browser.send("GET", "/api/hello", &token, "").await;
    assert_eq!((hello.status, &hello.json()["hello"], left(&hello)), (200, &"acme".into(), before - 1));
    let by_key = browser.send("GET", "/api/hello", &[("x-api-key", "demo-acme-key")], "").await;
    assert_eq!((by_key.status, left(&by_key)), (200, before - 2));
    // the token takes precedence, because it can't be borrowed
    let both = [token[0], ("x-api-key", "demo-globex-key")];
    assert_eq!(browser.send("GET", "/api/hello", &both, "").await.json()["hello"], "acme");

    for (path, headers) in [
        ("/api/hello", &[("authorization", "Bearer guessed")][..]),
        ("/api/hello", &[("authorization", "Bearer guessed"), ("x-api-key", "demo-acme-key")]),
        ("/api/hello", &[("x-api-key", "guessed")]),
        ("/api/me", &[]),
        ("/api/me", &[("x-api-key", "demo-acme-key")]),
        ("/api/me", &[("authorization", "Bearer guessed")]),
    ] {
        let refused = browser.send("GET", path, headers, "").await;
        assert_eq!((refused.status, refused.header("content-type")), (401, "application/problem+json"), "{headers:?}");
        assert_ne!(refused.header("www-authenticate"), "", "{path} {headers:?}");
    }

    for (document, member) in
        [("openid-configuration", "authorization_endpoint"), ("oauth-authorization-server", "token_endpoint")]
    {
        let known = browser.open(&format!("/.well-known/{document}")).await.json();
        assert_eq!(known["issuer"], origin.as_str());
        assert!(known[member].as_str().unwrap().starts_with(&origin), "{known}");
    }
    assert_eq!(browser.open("/jwks").await.json()["keys"].as_array().unwrap().len(), 2);
    let info = browser.send("GET", "/userinfo", &token, "").await;
    assert_eq!((info.status, info.json()), (200, members!({ "sub": "ada", "tenant": "acme" })));

    let refresh = tokens["refresh_token"].as_str().unwrap();
    let form = format!("grant_type=refresh_token&client_id=demo-native&refresh_token={refresh}");
    let next = browser.send("POST", "/token", &[FORM], &form).await;
    assert_eq!(next.status, 200, "{next:?}");
    let form = format!("client_id=demo-native&token={}", next.json()["refresh_token"].as_str().unwrap());
    assert_eq!(browser.send("POST", "/revoke", &[FORM], &form).await.status, 200);
    for gone in [access, bearer(&next.json())] {
        assert_eq!(browser.send("GET", "/api/me", &[("authorization", &gone)], "").await.status, 401);
    }
}

#[tokio::test]
async fn a_flood_of_bad_tokens_and_keys_is_refused_by_address_before_they_are_checked() {
    let server = Example::start("server", &FREE_PORT).await;
    let mut browser = server.browser();
    let bad: [(&str, &[(&str, &str)]); 5] = [
        ("/api/me", &[("authorization", "Bearer forged")]),
        ("/api/hello", &[("authorization", "Bearer forged")]),
        ("/api/hello", &[("x-api-key", "guessed")]),
        ("/api/me", &[]),
        ("/api/hello", &[("authorization", "Bearer a"), ("authorization", "Bearer b")]),
    ];
    for (number, (path, headers)) in bad.iter().cycle().take(60).enumerate() {
        // callers that are served pay nothing for the flood, and see only the budget of their tenant
        let served = browser.send("GET", "/api/hello", &[("x-api-key", "demo-acme-key")], "").await;
        assert_eq!((served.status, served.header("x-ratelimit-remaining")), (200, &*(599 - number).to_string()));
        let refused = browser.send("GET", path, headers, "").await;
        assert_eq!(refused.status, if number % 5 == 4 { 400 } else { 401 }, "{number}: {refused:?}");
    }
    for (path, headers) in bad {
        let refused = browser.send("GET", path, headers, "").await;
        assert_eq!((refused.status, refused.header("content-type")), (429, "application/problem+json"), "{path}");
        assert!((1..=60).contains(&refused.header("retry-after").parse::<u32>().unwrap()), "{refused:?}");
    }
    // the rest of the server still serves that address
    assert_eq!(browser.open("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_user_signed_in_to_one_demo_client_needs_only_the_missing_steps_at_another() {
    let server = Example::start("server", &FREE_PORT).await;
    let (mut browser, callback) = (server.browser(), format!("{}/demo/callback", server.origin));
    let of = |id| Registered { id, redirect_uri: &callback };
    let (web, mfa) = (of("demo-web"), of("demo-mfa"));
    browser.log_in(&web, "ada", "correct horse battery staple").await;
    let begin = async |browser: &mut Browser, client: &Registered<'_>, wish: Value| {
        let answer = browser.call("start", client, wish).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let started = answer.json();
        let id = started["session_id"].as_str().unwrap().to_owned();
        (id, started["required_steps"].clone(), started["next_step"].clone())
    };
    // a requested level can require two steps at a client that needs only one
    for (client, wish) in [(&web, members!({ "acr_values": "two-steps" })), (&mfa, members!({}))] {
        let (id, required, next) = begin(&mut browser, client, wish).await;
        assert_eq!((required, next), (2.into(), 2.into()));
        if client.id == "demo-mfa" {
            let ask = members!({ "session_id": id, "method": "email", "email": "ada@example.com" });
            assert_eq!(browser.call("authenticate", client, ask).await.status, 200);
            let verify = members!({ "session_id": id, "otp": server.code(&mut server.browser()).await });
            assert_eq!(browser.call("verify-otp", client, verify).await.status, 200);
            browser.finish(client, &id).await;
        }
    }
    assert!(browser.open("/account").await.text.contains("with a password and a code."));
    let (_, required, next) = begin(&mut browser, &web, members!({ "acr_values": "two-steps" })).await;
    assert_eq!((required, next), (2.into(), Value::Null));
}

#[tokio::test]
async fn tokens_end_with_their_session() {
    let server = Example::start("server", &FREE_PORT).await;
    let (mut browser, origin) = (server.browser(), server.origin.clone());
    let tokens = server.tokens(&mut browser, "ada", "correct horse battery staple").await;
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    let token = [("authorization", bearer.as_str())];
    // another session replaces the one that the tokens belong to
    let callback = format!("{origin}/demo/callback");
    let mfa = Registered { id: "demo-mfa", redirect_uri: &callback };
    let started = browser.call("start", &mfa, members!({})).await.json();
    let (id, email) = (started["session_id"].as_str().unwrap(), "ada@example.com");
    let ask = members!({ "session_id": id, "method": "email", "email": email });
    assert_eq!(browser.call("authenticate", &mfa, ask).await.status, 200);
    let verify = members!({ "session_id": id, "otp": server.code(&mut server.browser()).await });
    assert_eq!(browser.call("verify-otp", &mfa, verify).await.status, 200);
    browser.finish(&mfa, id).await;
    assert_eq!(browser.send("GET", "/api/me", &token, "").await.status, 200);
    assert_eq!(browser.send("POST", "/account/sign-out", &[("origin", &origin)], "").await.status, 303);
    assert_eq!(browser.send("GET", "/api/me", &token, "").await.status, 401);
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let form = format!("grant_type=refresh_token&client_id=demo-native&refresh_token={refresh}");
    assert_eq!(browser.send("POST", "/token", &[FORM], &form).await.error(), "invalid_grant");
}

#[tokio::test]
async fn one_time_codes_are_printed_and_listed_and_logins_spend_the_budget_of_the_api() {
    let mut server = Example::start("server", &FREE_PORT).await;
    let (mut browser, origin) = (server.browser(), server.origin.clone());
    let callback = format!("{origin}/demo/callback");
    let client = Registered { id: "demo-web", redirect_uri: &callback };
    assert_eq!(browser.messages().await, members!([]));
    let id = browser.start(&client, "grace").await;
    let ask = members!({ "session_id": id, "method": "whatsapp", "phone_number": "+1 555 555 0101" });
    assert_eq!(browser.call("authenticate", &client, ask).await.status, 200);
    let code = server.code(&mut browser).await;
    let listed = browser.messages().await;
    assert_eq!((&listed[0]["channel"], &listed[0]["to"]), (&"whatsapp".into(), &"+15555550101".into()));
    assert!(listed[0]["at"].is_u64() && code.len() == 6, "{listed}");
    let printed = loop {
        let line = server.line().await;
        if line.starts_with("whatsapp ") {
            break line;
        }
    };
    assert_eq!(printed, format!("whatsapp to +15555550101: {code}"));
    let verify = members!({ "session_id": id, "otp": code });
    assert_eq!(browser.call("verify-otp", &client, verify).await.status, 200);

    let key = [("x-api-key", "demo-acme-key")];
    let hello = browser.send("GET", "/api/hello", &key, "").await;
    assert_eq!(hello.header("x-ratelimit-remaining"), "596");
    for _ in 0..596 {
        browser.send("GET", "/api/hello", &key, "").await;
    }
    let refused = browser.call("start", &client, members!({ "identifier": "ada" })).await;
    assert_eq!((refused.status, refused.error().as_str()), (429, "rate_limit_exceeded"));
}

#[cfg(unix)]
#[tokio::test]
async fn everything_the_server_stores_in_a_directory_survives_a_restart() {
    let directory = temporary("data");
    let data = directory.to_str().unwrap();
    let mut server = Example::start("server", &["--listen", "127.0.0.1:0", "--data", data]).await;
    let origin = server.origin.clone();
    let callback = format!("{origin}/demo/callback");
    let client = Registered { id: "demo-web", redirect_uri: &callback };
    let mut browser = server.browser();
    let tokens = server.tokens(&mut browser, "grace", "compilers are polite").await;
    let half = browser.start(&client, "ada").await;
    // without time to shut down
    server.child.kill().await.unwrap();

    let second = Example::start("server", &["--listen", &server.address.to_string(), "--data", data]).await;
    let account = browser.open("/account").await;
    assert!(account.text.contains("<strong>Grace Hopper</strong>"), "{}", account.text);
    // the signing keys are the same, and the refresh token works
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    assert_eq!(browser.send("GET", "/api/me", &[("authorization", &bearer)], "").await.json()["subject"], "grace");
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let form = format!("grant_type=refresh_token&client_id=demo-native&refresh_token={refresh}");
    assert_eq!(browser.send("POST", "/token", &[FORM], &form).await.status, 200);
    let password = "correct horse battery staple";
    let step = members!({ "session_id": half, "method": "password", "username": "ada", "password": password });
    assert_eq!(browser.call("authenticate", &client, step).await.status, 200);
    browser.finish(&client, &half).await;

    let third = run("server", &["--listen", "127.0.0.1:0", "--data", data]).await;
    let error = String::from_utf8(third.stderr).unwrap();
    assert!(!third.status.success() && error.starts_with(&format!("--data {data}: ")), "{error}");
    drop(second);
    fs::remove_dir_all(directory).unwrap();
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tollgate-{}-{name}", std::process::id()))
}

/// Creates a file with this text.
fn config(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tollgate-{}-{name}.toml", std::process::id()));
    fs::write(&path, text).unwrap();
    // the sample names it
    fs::write(path.with_file_name("logo.svg"), r#"<svg xmlns="http://www.w3.org/2000/svg"/>"#).unwrap();
    path
}

const SHIPPED: &str = include_str!("../examples/server/config.toml");
const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

/// Returns the key that a line sets, even if the line is commented out.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("# ").unwrap_or(line).split_once(" = ")?;
    (!key.contains(' ')).then_some(key)
}

/// Returns the table that begins with this line, even if the line is commented out.
fn table(line: &str) -> Option<&str> {
    let table = line.strip_prefix("# ").unwrap_or(line).strip_prefix('[')?;
    Some(table.trim_start_matches('[').trim_end_matches(']'))
}

/// Returns the sample file with a password, keys and the wanted optional settings and tables.
fn sample(wanted: impl Fn(&str) -> bool) -> String {
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";
    let mut is_in_table = true;
    let line = |line: &'static str| {
        if let Some(table) = table(line) {
            is_in_table = line.starts_with('[') || wanted(table);
        }
        let is_on = |key| key == "password_hash" || key == "operator_key" || wanted(key);
        let is_on = is_in_table && key(line).or(table(line)).is_some_and(is_on);
        if is_on { line.strip_prefix("# ").unwrap_or(line) } else { line }
    };
    let text = SHIPPED.lines().map(line).collect::<Vec<_>>().join("\n");
    text.replace("$argon2id$v=19$m=19456,t=2,p=1$…", hash)
        .replace("api_keys = []", "api_keys = [\"a-key-of-its-own\"]")
        .replace("at least 16 bytes", "an-operators-own-key")
        .replace("a secret", SECRET)
        .replace("127.0.0.1:9464", "127.0.0.1:0")
}

/// Whether a server with these features can have a setting. Some need other servers and files, too.
fn is_possible(name: &str) -> bool {
    match name {
        "redis" | "data" | "event_log" | "certificate_authority" => false,
        "smtp" => cfg!(feature = "smtp"),
        "sms" | "whatsapp" => cfg!(feature = "webhook"),
        "providers" => cfg!(feature = "external-providers"),
        "metrics_listen" => cfg!(feature = "metrics"),
        _ => true,
    }
}

#[tokio::test]
async fn every_setting_of_the_sample_file_is_accepted() {
    let path = config("all", &sample(is_possible));
    let mut server = Example::start("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
    let issuer = "https://login.example.com/auth";
    let mut browser = server.browser();
    // next to the path of the issuer, and below it
    for document in ["/.well-known/oauth-authorization-server/auth", "/auth/.well-known/openid-configuration"] {
        let known = browser.open(document).await.json();
        assert_eq!((&known["issuer"], &known["token_endpoint"]), (&issuer.into(), &format!("{issuer}/token").into()));
        assert_eq!(known["id_token_signing_alg_values_supported"], members!(["EdDSA", "RS256"]));
        assert_eq!(known["acr_values_supported"], members!(["two-steps"]));
    }
    assert_eq!(browser.open("/healthz").await.status, 200);
    // codes are printed, so logins with two steps are possible
    let app = Registered { id: "app", redirect_uri: "http://127.0.0.1:51004/callback" };
    let wish = members!({ "identifier": "ada", "acr_values": "two-steps" });
    let mut browser = Browser::new(&server.origin, "/auth");
    assert_eq!(browser.call("start", &app, wish).await.json()["required_steps"], 2);
    assert!(server.child.try_wait().unwrap().is_none());
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn the_sample_file_has_every_known_setting() {
    let keys: Vec<&str> = SHIPPED.lines().filter_map(key).collect();
    let tables = || SHIPPED.lines().filter_map(table);
    let mut known = 0;
    let places = SHIPPED.lines().filter(|line| table(line).is_some()).map(|line| line.trim_start_matches("# "));
    let places = places.filter(|place| cfg!(feature = "external-providers") || *place != "[[providers]]");
    // any word can be set there
    let places = places.filter(|place| !place.starts_with("[pages.texts"));
    for place in places.chain([""]) {
        let text = sample(|key| Some(key) == table(place)).replacen(
            &format!("{place}\n"),
            &format!("{place}\nunheard_of = 1\n"),
            1,
        );
        let path = config("known", &text);
        let output = run("server", &["--listen", "127.0.0.1:0", "--config", path.to_str().unwrap()]).await;
        fs::remove_file(path).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let (_, expected) = error.split_once("unknown field `unheard_of`, expected").unwrap();
        for name in expected.split('`').skip(1).step_by(2) {
            let has = |key: &&str| *key == name || key.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
            assert!(
                keys.iter().any(has) || tables().any(|table| table.split('.').any(|part| part == name)),
                "{place} {name}"
            );
            known += 1;
        }
    }
    assert!(known >= 90, "{known}");
}

#[tokio::test]
async fn token_settings_of_the_file_apply_below_the_path_of_the_issuer() {
    let wanted = ["issuer", "algorithm", "dpop_nonces", "introspectors", "proxies"];
    let path = config("tokens", &sample(|key| wanted.contains(&key)));
    let server = Example::start("server", &["--config", path.to_str().unwrap(), "--listen=127.0.0.1:0"]).await;
    let mut browser = Browser::new(&server.origin, "/auth");
    let client = Registered { id: "app", redirect_uri: "http://127.0.0.1:51004/callback" };
    let code = browser.log_in(&client, "ada", "correct horse battery staple").await;
    let form = format!("grant_type=authorization_code&client_id=app&code={code}&code_verifier={VERIFIER}");
    let (dpop, site) = (DpopKey::generate(), "https://login.example.com");

    // a proof needs a nonce of the server, at /token and at the API
    let proof = dpop.proof("POST", &format!("{site}/auth/token"));
    let asked = browser.send("POST", "/auth/token", &[FORM, ("dpop", &proof.sign())], &form).await;
    assert_eq!((asked.status, asked.error().as_str()), (400, "use_dpop_nonce"));
    let proof = dpop.proof("POST", &format!("{site}/auth/token")).nonce(asked.header("dpop-nonce")).sign();
    let tokens = browser.send("POST", "/auth/token", &[FORM, ("dpop", &proof)], &form).await;
    assert_eq!(tokens.status, 200, "{tokens:?}");
    let tokens = tokens.json();
    let token = tokens["access_token"].as_str().unwrap();
    // {"alg":"EdDSA"
    assert!(token.starts_with("eyJhbGciOiJFZERTQSI"), "{token}");
    let bound = ("authorization", &*format!("DPoP {token}"));
    let proof = dpop.proof("GET", &format!("{site}/api/me")).token(token);
    let asked = browser.send("GET", "/api/me", &[bound, ("dpop", &proof.sign())], "").await;
    assert!(asked.status == 401 && asked.header("www-authenticate").contains("use_dpop_nonce"), "{asked:?}");
    let proof = dpop.proof("GET", &format!("{site}/api/me")).token(token).nonce(asked.header("dpop-nonce")).sign();
    assert_eq!(browser.send("GET", "/api/me", &[bound, ("dpop", &proof)], "").await.json()["subject"], "u-1");

    // an API with the secret may introspect
    let (secret, form) = (format!("Bearer {SECRET}"), format!("token={token}"));
    let told = browser.send("POST", "/auth/introspect", &[FORM, ("authorization", &secret)], &form).await.json();
    assert_eq!((&told["active"], &told["client_id"], &told["tenant"]), (&true.into(), &"app".into(), &"acme".into()));
    let other = format!("Bearer {}", SECRET.replace('A', "B"));
    let refused = browser.send("POST", "/auth/introspect", &[FORM, ("authorization", &other)], &form).await;
    assert_eq!(refused.status, 401);
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn with_a_file_the_server_has_its_tenants_and_nothing_of_the_demo() {
    let path = config("own", &sample(|key| key == "seal"));
    let arguments = ["--config", path.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut server = Example::start("server", &arguments).await;
    let mut browser = server.browser();
    for demo in ["/", "/demo/", "/demo/outbox", "/demo/page.js", "/demo/limit.js", "/callback", "/account"] {
        assert_eq!(browser.open(demo).await.status, 404, "{demo}");
    }
    for (key, status) in [("a-key-of-its-own", 200), ("demo-acme-key", 401)] {
        assert_eq!(browser.send("GET", "/api/hello", &[("x-api-key", key)], "").await.status, status, "{key}");
    }
    for (key, status) in [("an-operators-own-key", 200), ("demo-operator-key", 401)] {
        assert_eq!(browser.send("GET", "/events/log", &[("x-operator-key", key)], "").await.status, status, "{key}");
    }
    let client = Registered { id: "app", redirect_uri: "http://127.0.0.1:51004/callback" };
    let code = browser.log_in(&client, "Ada@Example.com", "correct horse battery staple").await;
    let form = format!("grant_type=authorization_code&client_id=app&code={code}&code_verifier={VERIFIER}");
    // the tokens of the app are bound to its key
    let (key, origin) = (DpopKey::generate(), server.origin.clone());
    let unproved = browser.send("POST", "/token", &[FORM], &form).await;
    assert_eq!((unproved.status, unproved.error().as_str()), (400, "invalid_dpop_proof"));
    let proof = key.proof("POST", &format!("{origin}/token")).sign();
    let tokens = browser.send("POST", "/token", &[FORM, ("dpop", &proof)], &form).await;
    assert_eq!((tokens.status, &tokens.json()["token_type"]), (200, &"DPoP".into()), "{tokens:?}");
    let tokens = tokens.json();
    let token = tokens["access_token"].as_str().unwrap();
    let proof = key.proof("GET", &format!("{origin}/api/me")).token(token).sign();
    let me = [("authorization", &*format!("DPoP {token}")), ("dpop", &proof)];
    let answer = browser.send("GET", "/api/me", &me, "").await;
    let expected = members!({ "tenant": "acme", "subject": "u-1", "client": "app", "scopes": ["openid"] });
    assert_eq!((answer.status, answer.json()), (200, expected));
    // a proof works once, and a stolen token is useless without one
    assert_eq!(browser.send("GET", "/api/me", &me, "").await.status, 401);
    let stolen = format!("Bearer {token}");
    assert_eq!(browser.send("GET", "/api/me", &[("authorization", &stolen)], "").await.status, 401);
    assert!(server.child.try_wait().unwrap().is_none());
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn the_server_reports_errors_in_its_file() {
    let good = sample(|key| ["seal", "algorithm"].contains(&key));
    for (name, from, to, says) in [
        ("unknown", "operator_key", "operator", "unknown field `operator`"),
        ("syntax", "[[users]]", "[[users]", "TOML parse error"),
        ("client", "require_dpop", "dpop", "unknown field `dpop`"),
        (
            "redirect",
            "com.example.app:/callback",
            "http://app.example/",
            "clients: \"app\": redirect URI: http://app.example/",
        ),
        ("policy", "[\"password\"]", "[\"sms\"]", "sms"),
        ("tenant", "name = \"acme\"", "name = \"globex\"", "clients: \"web\": no tenant has the name \"acme\""),
        ("seal", "AAECAwQF", "AAECAw", "tokens: seal: must be 32 bytes in base64url"),
        ("algorithm", "EdDSA", "none", "tokens: algorithm: unknown algorithm: use ES256, EdDSA or RS256"),
        ("e-mail", "email = \"ada@example.com\"", "email = \"ada\"", "users: \"u-1\": an e-mail address must be"),
        ("hash", "$argon2id$", "$argon2x$", "users: \"u-1\": "),
        ("issuer", "# issuer = \"https://login", "issuer = \"http://login", "login.example.com"),
        (
            "no proxy",
            "# issuer = \"https://login",
            "issuer = \"https://login",
            "proxies: an https issuer needs a proxy in front",
        ),
        ("proxies", "# proxies = [\"10.0.0.0/8\"]", "proxies = [\"10.0.0.0/80\"]", "10.0.0.0/80"),
    ] {
        assert!(good.contains(from), "{from}");
        let path = config(name, &good.replace(from, to));
        let output = run("server", &["--listen", "127.0.0.1:0", "--config", path.to_str().unwrap()]).await;
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        assert!(error.contains(says), "{name}: {error}");
        assert!(error.starts_with(&format!("--config {}: ", path.display())), "{name}: {error}");
        fs::remove_file(path).unwrap();
    }
    // other machines may reach it only through TLS
    let path = config("open", &good);
    let output = run("server", &["--listen", "0.0.0.0:0", "--config", path.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("`issuer` must be the https URL"));
    let issuer = good
        .replacen("# issuer = \"https://", "issuer = \"http://", 1)
        .replace("login.example.com/auth", "127.0.0.1:8080");
    let plain = config("plain", &issuer);
    let output = run("server", &["--listen", "0.0.0.0:0", "--config", plain.to_str().unwrap()]).await;
    assert!(String::from_utf8(output.stderr).unwrap().contains("`issuer` must be the https URL"));
    let behind = config("behind", &sample(|key| ["issuer", "proxies"].contains(&key)));
    let mut server = Example::start("server", &["--listen=0.0.0.0:0", "--config", behind.to_str().unwrap()]).await;
    let address = format!("127.0.0.1:{}", server.address.port()).parse().unwrap();
    let known = Wire::to(address).await.ask("GET /auth/.well-known/openid-configuration HTTP/1.1").await;
    assert_eq!(json(&known)["issuer"], "https://login.example.com/auth");
    assert!(server.child.try_wait().unwrap().is_none());
    for path in [path, plain, behind] {
        fs::remove_file(path).unwrap();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_wrong_or_missing_seal_is_reported_with_a_hint() {
    let directory = temporary("sealed");
    let (data, good) = (directory.to_str().unwrap(), sample(|key| key == "seal"));
    let path = config("seals", &good);
    let arguments = ["--listen", "127.0.0.1:0", "--data", data, "--config", path.to_str().unwrap()];
    let mut server = Example::start("server", &arguments).await;
    server.child.kill().await.unwrap();
    for text in [good.replace("AAECAwQF", "BAECAwQF"), sample(|_| false)] {
        fs::write(&path, text).unwrap();
        let output = run("server", &arguments).await;
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("Check `seal` below [tokens] in the file of --config"), "{error}");
    }
    // with the old one next to the new one, the stored keys go on
    let keys = async |text: &str| {
        fs::write(&path, text).unwrap();
        let mut server = Example::start("server", &arguments).await;
        let keys = server.browser().open("/jwks").await.text;
        server.child.kill().await.unwrap();
        keys
    };
    let both =
        sample(|key| ["seal", "older_seals"].contains(&key)).replace("\nseal = \"AAECAwQF", "\nseal = \"BAECAwQF");
    assert!(both.contains("\nseal = \"BAECAwQF") && both.contains("\nolder_seals = [\"AAECAwQF"), "{both}");
    let before = keys(&good).await;
    assert!(before.contains("\"kid\""), "{before}");
    assert_eq!(keys(&both).await, before);
    fs::remove_dir_all(directory).unwrap();
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn the_server_reports_errors_in_its_arguments() {
    for (arguments, code, says) in [
        (
            &["--listen", "0.0.0.0:0"][..],
            2,
            "the keys of the demo are public, so it listens only on a loopback address",
        ),
        (&["--listen=[::]:0"], 2, "only on a loopback address"),
        (&["--listen", "192.0.2.1:80"], 2, "only on a loopback address"),
        (&["--listen", "somewhere"], 2, "--listen somewhere: must be an address and a port"),
        (&["--listen"], 2, "--listen needs a value"),
        (&["--listen="], 2, "--listen needs a value"),
        (&["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"], 2, "--listen appears more than once"),
        (&["--frobnicate"], 2, "--frobnicate: unknown flag"),
        (&["--config", "/nowhere/at/all.toml"], 1, "--config /nowhere/at/all.toml: "),
        (&["--redis", "redis://127.0.0.1:1"], 1, "--redis: the store is not available: "),
        (&["--redis", "http://u:secret@h"], 1, "--redis: redis URL: http://h is not usable: must begin with redis://"),
        (&["--redis", "redis://h", "--data", "x"], 2, "--data and --redis exclude each other"),
        (&["--event-log", "/nowhere/at/all/log.jsonl"], 1, "its directory does not exist"),
    ] {
        let output = run("server", arguments).await;
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
    let file = config("a-file", "");
    let output = run("server", &["--data", file.to_str().unwrap()]).await;
    let error = String::from_utf8(output.stderr).unwrap();
    let says = "is a file, not a directory";
    assert_eq!(error, format!("--data {}: {says}\n", file.display()));
    fs::remove_file(file).unwrap();
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let output = run("server", &["--listen", &taken]).await;
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with(&format!("{taken} is in use by another program.")), "{error}");

    let help = run("server", &["--help"]).await;
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("--listen ADDR"));
}

// ---- the small examples

#[tokio::test]
async fn tonic_calls_itself_until_its_budget_is_used_up() {
    let output = run("tonic", &[]).await;
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines.len(), 7, "{text}");
    for (line, left) in lines.iter().zip((0..5).rev()) {
        assert_eq!(*line, format!("acme, call {}: OK, {left} left", 5 - left));
    }
    let retry = lines[5].strip_prefix("acme, call 6: RESOURCE_EXHAUSTED, rate limit exceeded; retry in ").unwrap();
    assert!((1..=60_000).contains(&retry.strip_suffix(" ms").unwrap().parse::<u32>().unwrap()), "{retry}");
    assert_eq!(lines[6], "globex, call 1: OK, 4 left");
}

#[tokio::test]
async fn worst_minute_is_the_limit_only_here() {
    let output = run("worst_minute", &[]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let worst: Vec<u32> = text.lines().skip(2).map(|line| line[..6].trim().parse().unwrap()).collect();
    assert_eq!(worst.len(), 4, "{text}");
    assert!(worst[..3].iter().all(|admitted| *admitted > 1_190), "{text}");
    assert_eq!(worst[3], 600, "{text}");
}

#[tokio::test]
async fn axum_refuses_by_the_quota_that_is_used_up_first() {
    let example = Example::start("axum", &["127.0.0.1:0"]).await;
    let mut wire = example.wire().await;
    let acme = wire.ask("GET /hello HTTP/1.1\nx-api-key: demo-acme-key").await;
    assert_eq!(body(&acme), r#"{"hello":"acme","remaining":49,"tightest":"per-second"}"#);
    assert_eq!(status(&wire.ask("GET /hello HTTP/1.1\nx-api-key: guessed").await), 401);
    assert_eq!(status(&wire.ask("GET /hello HTTP/1.1").await), 401);
    assert_eq!(body(&wire.ask("GET /healthz HTTP/1.1").await), "ok");
    let mut sent = 0;
    let refused = loop {
        let answer = wire.ask("GET /hello HTTP/1.1\nx-api-key: demo-globex-key").await;
        sent += 1;
        if status(&answer) != 200 {
            break answer;
        }
        assert!(sent <= 60, "nothing was refused");
    };
    // on a slow machine, the seconds pass and the quota per minute refuses
    let policy = if sent == 61 { "per-minute" } else { "per-second" };
    assert_eq!((status(&refused), &json(&refused)["violated-policies"][0]), (429, &policy.into()));
    assert!(sent >= 4);
}

#[tokio::test]
async fn hyper_limits_each_client_behind_its_proxy() {
    let example = Example::start("hyper", &["127.0.0.1:0"]).await;
    let mut wire = example.wire().await;
    let from = |hops: &str| format!("GET / HTTP/1.1\nx-forwarded-for: {hops}");
    assert_eq!(body(&wire.ask("GET / HTTP/1.1").await), "hello ip:127.0.0.1\n");
    for left in (0..5).rev() {
        let answer = wire.ask(&from("203.0.113.9, 198.51.100.7")).await;
        assert_eq!(body(&answer), "hello ip:198.51.100.7\n");
        assert_eq!(header(&answer, "x-ratelimit-remaining"), Some(&*left.to_string()));
    }
    // a made-up address further left has no effect, and another client is not affected
    assert_eq!(status(&wire.ask(&from("203.0.113.10, 198.51.100.7")).await), 429);
    assert_eq!(status(&wire.ask(&from("198.51.100.8")).await), 200);
}

#[tokio::test]
async fn own_gate_refuses_writes_and_marks_reads() {
    let example = Example::start("own_gate", &["127.0.0.1:0"]).await;
    let mut wire = example.wire().await;
    let read = wire.ask("GET / HTTP/1.1").await;
    assert_eq!((body(&read), header(&read, "x-read-only")), ("Read\n", Some("true")));
    let write = wire.ask("POST / HTTP/1.1\ncontent-length: 0").await;
    assert_eq!((status(&write), header(&write, "retry-after")), (503, Some("60")));
    assert_eq!(json(&write)["detail"], "the service is currently read-only");
    let forced = wire.ask("POST / HTTP/1.1\ncontent-length: 0\nx-force: 1").await;
    assert_eq!(body(&forced), "ForcedWrite\n");
}

#[tokio::test]
async fn own_tenant_source_upgrades_a_customer_without_forgiving() {
    let example = Example::start("own_tenant_source", &["127.0.0.1:0"]).await;
    let mut wire = example.wire().await;
    let with = |token: &str| format!("GET / HTTP/1.1\nauthorization: Bearer {token}");
    assert_eq!(body(&wire.ask(&with("acme.free.demo")).await), "hello acme: 4 of 5 left, plan free\n");
    assert_eq!(body(&wire.ask(&with("acme.gold.demo")).await), "hello acme: 48 of 50 left, plan gold\n");
    let forged = wire.ask(&with("acme.gold.forged")).await;
    assert_eq!(status(&forged), 401);
    assert_eq!(header(&forged, "www-authenticate"), Some("Bearer error=\"invalid_token\""));
    assert_eq!(status(&wire.ask(&with("~anonymous.free.demo")).await), 400);
    assert_eq!(status(&wire.ask("GET / HTTP/1.1").await), 401);
}

// ---- logins

#[tokio::test]
async fn login_axum_protects_a_page_with_a_password() {
    let example = Example::start("login_axum", &["127.0.0.1:0"]).await;
    let origin = example.origin.clone();
    let mut browser = Browser::new(&origin, "");
    assert_eq!(browser.send("GET", "/account", &[], "").await.status, 401);
    let navigates = [("sec-fetch-mode", "navigate")];
    let sent = browser.send("GET", "/account", &navigates, "").await;
    assert_eq!((sent.status, sent.header("location")), (303, "/sign-in?return_to=%2Faccount"));
    let page = browser.open(sent.header("location")).await.header("location").to_owned();
    let (path, query) = page.split_once('?').unwrap();
    assert_eq!(path, "/authentication/start");
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let mut fields = members!({ "identifier": "ada", "username": "ada", "password": "correct horse battery staple" });
    fields["method"] = "password".into();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        fields[name] = decoded(value).into();
    }
    for call in ["start", "authenticate", "complete"] {
        let json = [("content-type", "application/json")];
        let answer = browser.send("POST", &format!("/authentication/{call}"), &json, &fields.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        fields["session_id"] = answer.json()["session_id"].clone();
    }
    let finished = browser.open("/sign-in/finish").await;
    assert_eq!((finished.status, finished.header("location")), (303, "/account"));
    assert!(browser.open("/account").await.text.starts_with("<h1>Hello u-1</h1>"));
    let form = [("content-type", "application/x-www-form-urlencoded"), ("origin", &*origin)];
    assert_eq!(browser.send("POST", "/sign-out", &form, "").await.status, 303);
    assert_eq!(browser.send("GET", "/account", &[], "").await.status, 401);
}

#[tokio::test]
async fn login_hyper_accepts_a_code_that_was_printed() {
    let mut example = Example::start("login_hyper", &["127.0.0.1:0"]).await;
    let origin = example.origin.clone();
    let callback = format!("{origin}/callback");
    let client = Registered { id: "web", redirect_uri: &callback };
    for http2 in [false, true] {
        let mut browser = if http2 { Browser::http2(&origin, "/auth") } else { Browser::new(&origin, "/auth") };
        assert_eq!(browser.open("/openapi.json").await.status, 404);
        assert_eq!(browser.open("/auth/openapi.json").await.status, 200);
        // with another name each time, because a second code within 30 seconds would be refused
        let typed = if http2 { "ADA@EXAMPLE.COM" } else { "ada@example.com" };
        let id = browser.start(&client, "ada@example.com").await;
        let ask = members!({ "session_id": id, "method": "email", "email": typed });
        let asked = browser.call("authenticate", &client, ask).await;
        if http2 {
            assert_eq!((asked.status, asked.error().as_str()), (429, "slow_down"));
            continue;
        }
        assert_eq!(asked.status, 200, "{asked:?}");
        let line = example.line().await;
        let (code, _) = line.strip_prefix("ada@example.com: ").unwrap().split_once(" is your code").unwrap();
        let step = browser.call("verify-otp", &client, members!({ "session_id": id, "otp": code })).await;
        assert_eq!(step.status, 200, "{step:?}");
        browser.finish(&client, &id).await;
    }
}

#[tokio::test]
async fn login_tonic_admits_calls_with_the_token_of_a_login() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    let example = Example::start("login_tonic", &["127.0.0.1:0"]).await;
    let origin = example.origin.clone();
    let endpoint = tonic::transport::Endpoint::from_shared(origin.clone()).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let refused = health.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);

    let mut browser = Browser::new(&origin, "/auth");
    let client = Registered { id: "native", redirect_uri: "http://127.0.0.1:51004/callback" };
    let code = browser.log_in(&client, "ada", "correct horse battery staple").await;
    let form = format!("grant_type=authorization_code&client_id=native&code={code}&code_verifier={VERIFIER}");
    let tokens = browser.send("POST", "/auth/token", &[FORM], &form).await.json();
    let mut call = tonic::Request::new(HealthCheckRequest::default());
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    call.metadata_mut().insert("authorization", bearer.parse().unwrap());
    assert!(health.check(call).await.is_ok());
}

#[cfg(feature = "external-providers")]
#[tokio::test]
async fn a_remote_api_accepts_the_tokens_of_the_server() {
    let server = Example::start("server", &FREE_PORT).await;
    let issuer = server.origin.clone();
    let api = Example::start("api", &["127.0.0.1:0", &issuer]).await;
    let tokens = server.tokens(&mut server.browser(), "ada", "correct horse battery staple").await;
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    let (mut browser, token) = (api.browser(), [("authorization", bearer.as_str())]);
    let orders = browser.send("GET", "/orders", &token, "").await;
    let expected = members!({ "of": "ada", "tenant": "acme", "may_order": false, "orders": [] });
    assert_eq!((orders.status, orders.header("x-ratelimit-remaining"), orders.json()), (200, "599", expected));
    let narrow = browser.send("POST", "/orders/new", &token, "").await;
    assert_eq!((narrow.status, narrow.header("content-type")), (403, "application/problem+json"));
    assert!(narrow.header("www-authenticate").contains(r#"scope="orders:write""#), "{narrow:?}");
    assert_eq!(browser.open("/orders").await.status, 401);
    let guessed = browser.send("GET", "/orders", &[("authorization", "Bearer guessed")], "").await;
    assert!(guessed.header("www-authenticate").contains("invalid_token"), "{guessed:?}");
    assert_eq!(browser.open("/healthz").await.status, 200);
    // an id_token is not an access token
    let identity = format!("Bearer {}", tokens["id_token"].as_str().unwrap());
    assert_eq!(browser.send("GET", "/orders", &[("authorization", &identity)], "").await.status, 401);
    // after a flood of rejected tokens, further ones are refused unchecked
    for _ in 0..57 {
        assert_eq!(browser.open("/orders").await.status, 401);
    }
    assert_eq!(browser.send("GET", "/orders", &token, "").await.status, 429);
}
