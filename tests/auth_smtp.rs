//! Logins whose codes are sent through a real mail server.

#![cfg(feature = "smtp")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::time::Duration;
use support::login_server;

use axum::Router;
use serde_json::json;
use support::browser::Browser;
use support::chromium::Chromium;
use support::login_server::WEB;
use support::python::PythonServer;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{
    EventLog,
    auth::AuthServiceBuilder,
    delivery::Smtp,
    event::{EventKind, Query},
};

/// Returns `None` if there is no Python with aiosmtpd.
async fn mail() -> Option<PythonServer> {
    PythonServer::start("mail.py", "aiosmtpd", &[]).await
}

/// Asks for a code to the mailbox of this name, in a browser of its own.
async fn ask(origin: &str, name: &str) {
    let mut browser = Browser::new(origin, "");
    let id = browser.start(&WEB, name).await;
    let ask = json!({ "session_id": id, "method": "email", "email": format!("{name}@example.com") });
    let asked = browser.call("authenticate", &WEB, ask).await;
    assert_eq!((asked.status, asked.json()["status"].as_str()), (200, Some("pending")), "{asked:?}");
}

/// Asks for codes to these names and then to one's own mailbox. Returns how many letters were sent until one's own arrived,
/// and how long that took.
async fn ask_behind(
    mail: &mut PythonServer,
    origin: &str,
    names: impl Iterator<Item = String>,
    own: &str,
) -> (usize, Duration) {
    let (began, mut letters) = (Instant::now(), 1);
    for name in names {
        ask(origin, &name).await;
    }
    ask(origin, own).await;
    while mail.next().await["to"] != json!([format!("{own}@example.com")]) {
        letters += 1;
    }
    (letters, began.elapsed())
}

/// Returns how long a letter takes behind forty known names, and behind forty unknown ones.
async fn delays() -> Option<[Duration; 2]> {
    let slow = ["--seconds", "0.05"];
    let mut mail = PythonServer::start("mail.py", "aiosmtpd", &slow).await?;
    let smtp = Smtp::insecure_plaintext("localhost", "no-reply@acme.example").unwrap().port(mail.port);
    let known = |number: usize| format!("known{number}");
    let others = (0..40).map(known).chain(["eve".to_owned()]);
    let mount =
        |auth: AuthServiceBuilder| Router::new().fallback_service(auth.queue_for_tests(1).email(smtp).build().unwrap());
    let server = login_server::axum("", others, mount).await;
    let origin = server.origin();
    let (letters, behind_known) = ask_behind(&mut mail, &origin, (0..40).map(known), "ada").await;
    assert_eq!(letters, 41);
    let unknown = (0..40).map(|number| format!("nobody{number}"));
    let (letters, behind_unknown) = ask_behind(&mut mail, &origin, unknown, "eve").await;
    assert_eq!(letters, 1);
    Some([behind_known, behind_unknown])
}

/// The queue with its real times. `src/delivery/queue/tests.rs` shows the same without any tolerance.
#[tokio::test]
async fn b02_c133_unknown_names_delay_a_letter_to_ones_own_mailbox_like_known_ones() {
    let mut all = Vec::new();
    // the load of the machine may change between the two
    for _ in 0..3 {
        let Some([known, unknown]) = delays().await else { return };
        // the difference would be forty letters
        if (0.5..2.0).contains(&(unknown.as_secs_f64() / known.as_secs_f64())) {
            return;
        }
        all.push((known, unknown));
    }
    panic!("behind known names, and behind unknown ones: {all:?}");
}

/// Returns what the login page shows while a person asks for a code by e-mail and types a wrong one.
async fn shown(mut browser: Chromium, link: &str, name: &str) -> (Vec<String>, Vec<String>) {
    let mut shown = Vec::new();
    let until = |script: &str| format!("!document.body.hasAttribute('aria-busy') && {script}");
    let text = "document.body.innerText + [...document.querySelectorAll('input, button')].map((one) =>
        [one.id, one.value, one.disabled, one.getClientRects().length > 0].join())";
    browser.open(link).await;
    browser.until(&until("document.activeElement.id === 'identifier'")).await;
    browser.insert(name).await;
    browser.press("Enter").await;
    browser.until(&until("document.querySelector('#ways button[value=email]')?.offsetParent")).await;
    shown.push(browser.ask(text).await);
    browser.ask("document.querySelector('#ways button[value=email]').focus()").await.unwrap();
    browser.press("Enter").await;
    browser.until(&until("document.activeElement.id === 'to'")).await;
    browser.insert(&format!("{name}@example.com")).await;
    browser.press("Enter").await;
    browser.until(&until("document.activeElement.id === 'otp'")).await;
    shown.push(browser.ask(text).await);
    browser.insert("000000").await;
    browser.press("Enter").await;
    browser.until(&until("document.getElementById('message').textContent !== ''")).await;
    shown.push(browser.ask(text).await);
    // seconds run while a person types
    let without_times = |shown: Result<serde_json::Value, _>| {
        let text = shown.unwrap().as_str().unwrap().replace(name, "NAME");
        text.chars().filter(|c| !c.is_ascii_digit()).collect()
    };
    (shown.into_iter().map(without_times).collect(), browser.complaints())
}

#[tokio::test]
async fn b02_the_login_page_shows_the_same_for_known_and_unknown_names() {
    let Some(mail) = mail().await else { return };
    let Some(browser) = Chromium::start("known-name").await else { return };
    let smtp = Smtp::insecure_plaintext("localhost", "no-reply@acme.example").unwrap().port(mail.port);
    let mount = |auth: AuthServiceBuilder| Router::new().fallback_service(auth.email(smtp).build().unwrap());
    let server = login_server::axum("", ["grace".to_owned()], mount).await;
    let query = "client_id=web&redirect_uri=http://127.0.0.1:51004/callback&response_type=code&scope=openid\
                 &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256&prompt=login";
    let link = format!("{}/authorize?{query}", server.origin());
    let known = shown(browser, &link, "grace").await;
    assert!(known.0[2].contains("The code is wrong or has expired."), "{known:?}");
    assert_eq!(known.1.len(), 1, "one refused code");
    let Some(browser) = Chromium::start("unknown-name").await else { return };
    assert_eq!(shown(browser, &link, "nobody").await, known);
}

/// Returns the code in the next letter, which must be to this address.
async fn code(mail: &mut PythonServer, to: &str) -> String {
    let letter = mail.next().await;
    assert_eq!(letter["to"], json!([to]));
    let (_, text) = letter["text"].as_str().unwrap().split_once("\r\n\r\n").unwrap();
    let is_code = |word: &&str| word.len() == 6 && word.bytes().all(|byte| byte.is_ascii_digit());
    text.split_whitespace().find(is_code).unwrap_or_else(|| panic!("no code in {text}")).to_owned()
}

#[tokio::test]
async fn a_login_works_by_mail_even_if_the_mail_server_defers_the_first_letter() {
    let Some(mut mail) = mail().await else { return };
    let smtp = Smtp::insecure_plaintext("localhost", "Acme <no-reply@acme.example>").unwrap().port(mail.port);
    let others = ["later".to_owned()];
    let server =
        login_server::axum("", others, |auth| Router::new().fallback_service(auth.email(smtp).build().unwrap())).await;
    // the server responds with 451 to the first letter to later@
    for name in ["ada", "later"] {
        let (mut browser, mailbox) = (Browser::new(&server.origin(), ""), format!("{name}@example.com"));
        let id = browser.start(&WEB, name).await;
        let ask = json!({ "session_id": id, "method": "email", "email": mailbox });
        let asked = browser.call("authenticate", &WEB, ask).await;
        assert_eq!((asked.status, asked.json()["status"].as_str()), (200, Some("pending")), "{asked:?}");

        let code = code(&mut mail, &mailbox).await;
        let wrong = if code == "000000" { "000001" } else { "000000" };
        let refused = browser.call("verify-otp", &WEB, json!({ "session_id": id, "otp": wrong })).await;
        assert_eq!((refused.status, refused.error().as_str()), (401, "invalid_otp"));
        let proved = browser.call("verify-otp", &WEB, json!({ "session_id": id, "otp": code })).await;
        assert_eq!((proved.status, proved.json()["status"].as_str()), (200, Some("success")), "{proved:?}");
        browser.finish(&WEB, &id).await;
    }
}

#[tokio::test]
async fn only_the_owner_of_an_account_gets_a_letter() {
    let Some(mut mail) = mail().await else { return };
    let smtp = Smtp::insecure_plaintext("localhost", "no-reply@acme.example").unwrap().port(mail.port);
    let others = ["grace".to_owned()];
    // one after the other, so that an extra letter would arrive first
    let server = login_server::axum("", others, |auth| {
        Router::new().fallback_service(auth.queue_for_tests(1).email(smtp).build().unwrap())
    })
    .await;
    let mut browser = Browser::new(&server.origin(), "");
    // an unknown mailbox, one of another user, a name without an account, and finally the right one
    for (name, to) in [("ada", "eve"), ("ada", "grace"), ("nobody", "nobody"), ("ada", "ada")] {
        let id = browser.start(&WEB, name).await;
        let ask = json!({ "session_id": id, "method": "email", "email": format!("{to}@example.com") });
        let asked = browser.call("authenticate", &WEB, ask).await;
        assert_eq!((asked.status, asked.json()["status"].as_str()), (200, Some("pending")), "{asked:?}");
    }
    // this is the only letter
    code(&mut mail, "ada@example.com").await;
}

#[tokio::test]
async fn a_refused_letter_is_logged() {
    let Some(mail) = mail().await else { return };
    let smtp = Smtp::insecure_plaintext("localhost", "no-reply@acme.example").unwrap().port(mail.port);
    let (others, log) = (["refused".to_owned()], EventLog::new());
    let events = log.clone();
    let mount =
        |auth: AuthServiceBuilder| Router::new().fallback_service(auth.email(smtp).events(events).build().unwrap());
    let server = login_server::axum("", others, mount).await;
    let mut browser = Browser::new(&server.origin(), "");
    let id = browser.start(&WEB, "refused").await;
    let ask = json!({ "session_id": id, "method": "email", "email": "refused@example.com" });
    assert_eq!(browser.call("authenticate", &WEB, ask).await.status, 200);
    let logged = async {
        while log.read_events(&Query::new().kind(EventKind::OtpUndelivered)).events.is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), logged).await.expect("no event");
}
