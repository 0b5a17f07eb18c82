//! The page that asks a user about a third-party client, and its buttons.

use crate::world::{Answer, Browser, form_of, posted};

pub(crate) fn is_question(answer: &Answer) -> bool {
    answer.status == 200 && answer.text.contains(r#"<form method="post" action="consent">"#)
}

/// Returns a hidden field of the page.
pub(crate) fn field(page: &Answer, name: &str) -> String {
    assert!(is_question(page), "{page:?}");
    let (_, rest) = page.text.split_once(&format!(r#"name="{name}" value=""#)).unwrap();
    rest.split('"').next().unwrap().replace("&amp;", "&").replace("&#39;", "'").replace("&quot;", "\"")
}

/// Presses a button of the page.
pub(crate) async fn decide(browser: &mut Browser, page: &Answer, decision: &str) -> Answer {
    send(browser, &field(page, "request"), &field(page, "ticket"), decision).await
}

pub(crate) async fn send(browser: &mut Browser, request: &str, ticket: &str, decision: &str) -> Answer {
    let fields = form_of(&[("request", request), ("ticket", ticket), ("decision", decision)]);
    browser.send(posted("/consent").header("sec-fetch-site", "same-origin"), fields).await
}
