//! Logins whose codes are sent through a real mail server.

#![cfg(feature = "smtp")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::time::Duration;
use support::login_server;

use axum::Router;
use serde_json::json;
use support::browser::Browser;
use support::login_server::WEB;
use support::python::PythonServer;
use tokio::{sync::mpsc, time::timeout};
use tollgate::{
    AuthServiceBuilder, EventLog,
    delivery::{Channel, Queue, Smtp, Undelivered},
    event::{EventKind, Query},
};

/// Returns `None` if there is no Python with aiosmtpd.
async fn mail() -> Option<PythonServer> {
    PythonServer::start("mail.py", "aiosmtpd", &[]).await
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
    let queue = Queue::builder().workers(1).unwrap().lane(Channel::Email, smtp).build();
    let server =
        login_server::axum("", others, |auth| Router::new().fallback_service(auth.delivery(queue).build().unwrap()))
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
async fn a_refused_letter_is_logged_and_reported_to_the_callback() {
    let Some(mail) = mail().await else { return };
    let smtp = Smtp::insecure_plaintext("localhost", "no-reply@acme.example").unwrap().port(mail.port);
    let (tell, mut told) = mpsc::unbounded_channel();
    let queue = Queue::builder().lane(Channel::Email, smtp).on_undelivered(move |message, why| {
        tell.send((message.to().to_owned(), why)).unwrap();
    });
    let queue = queue.build();
    let (others, log) = (["refused".to_owned()], EventLog::new());
    let events = log.clone();
    let mount =
        |auth: AuthServiceBuilder| Router::new().fallback_service(auth.delivery(queue).events(events).build().unwrap());
    let server = login_server::axum("", others, mount).await;
    let mut browser = Browser::new(&server.origin(), "");
    let id = browser.start(&WEB, "refused").await;
    let ask = json!({ "session_id": id, "method": "email", "email": "refused@example.com" });
    assert_eq!(browser.call("authenticate", &WEB, ask).await.status, 200);
    let report = timeout(Duration::from_secs(60), told.recv()).await.expect("no report arrived").unwrap();
    assert_eq!(report, ("refused@example.com".to_owned(), Undelivered::Refused));
    assert_eq!(log.read(&Query::new().kind(EventKind::OtpUndelivered)).events.len(), 1);
}
