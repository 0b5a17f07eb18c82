//! The account itself on the account page: a real browser, operated by keyboard, and a real mail server.

#![cfg(feature = "smtp")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;
#[path = "auth/openapi.rs"]
mod openapi;
#[expect(dead_code, reason = "not every test uses all of it")]
#[path = "support/site.rs"]
mod site;
#[expect(dead_code, reason = "not every test uses all of it")]
#[path = "auth/world.rs"]
mod world;

use axum::Router;
use serde_json::json;
use site::{COUNTS, Site};
use support::python::PythonServer;
use tollgate::delivery::Smtp;
use world::{ADA, ADA_PASSWORD, ADA_PHONE};

const NEW_PASSWORD: &str = "gravel under moonlight";
const NEW_ADDRESS: &str = "lovelace@example.com";
const OTHER_ADDRESS: &str = "byron@example.com";

/// Checks that the page fits on these screens, the last of which is a dark phone.
async fn check(site: &mut Site, name: &str) {
    site.fits(name, &[("dark", 1280), ("light", 360), ("dark", 360)]).await;
}

/// Returns the code in the next letter, which must be to this address.
async fn code(mail: &mut PythonServer, to: &str) -> String {
    let letter = mail.next().await;
    assert_eq!(letter["to"], json!([to]));
    let (_, text) = letter["text"].as_str().unwrap().split_once("\r\n\r\n").unwrap();
    let is_code = |word: &&str| word.len() == 6 && word.bytes().all(|byte| byte.is_ascii_digit());
    text.split_whitespace().find(is_code).unwrap_or_else(|| panic!("no code in {text}")).to_owned()
}

async fn told(mail: &mut PythonServer, to: &str, change: &str) {
    let letter = mail.next().await;
    assert_eq!(letter["to"], json!([to]));
    let text = letter["text"].as_str().unwrap().replace("=\r\n", "");
    assert!(text.contains(change), "{text}");
}

#[tokio::test]
async fn c132_a_new_password_takes_three_buttons_and_two_fields() {
    let Some(mut site) = Site::new("account-password").await else { return };
    site.run_first(COUNTS).await;
    let page = format!("{}/.well-known/change-password", site.origin);
    site.browser.open(&page).await;
    site.prove_password().await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    check(&mut site, "account").await;
    site.reset_counts().await;
    site.press_button("password-begin").await;
    site.press_button("email").await;
    site.focus("otp").await;
    let code = site.world.code(ADA).await;
    site.enter(&code).await;
    site.until("location.pathname === '/account/security' && shown('password-form') && idle()").await;
    site.focus("new-password").await;
    assert_eq!(site.texts("#password-hint").await, ["At least 15 characters. Several words are easy to remember."]);
    assert_eq!(
        site.ask("[document.getElementById('password-user').value, document.activeElement.autocomplete].join()").await,
        "ada,new-password"
    );
    check(&mut site, "password").await;
    assert_eq!(site.browser.complaints(), [""; 0]);
    site.enter(NEW_PASSWORD).await;
    site.until("text('done') === 'The password was changed. You are signed out on all other devices.' && idle()").await;
    // the button that begins, the code by e-mail, and twice Enter in a form
    assert_eq!(site.counts().await, (2 + 2, 2));
    // each rule has its words
    for (typed, words) in [
        ("short", "Use at least 15 characters. Several words are easy to remember."),
        ("passwordpassword", "Many people use this password, so it is easy to guess. Choose another one."),
        (
            "ada@example.com-7",
            "This password consists mostly of your name or of the name of this site. Choose another one.",
        ),
    ] {
        if typed == "short" {
            site.press_button("password-begin").await;
            site.focus("new-password").await;
        }
        site.ask("document.getElementById('new-password').select()").await;
        site.enter(typed).await;
        site.says(words).await;
    }
    check(&mut site, "password-refused").await;
    site.press_button("password-cancel").await;
    site.focus("password-begin").await;
    let complaints = site.browser.complaints();
    assert!(complaints.len() == 3 && complaints.iter().all(|line| line.contains("status of 400")), "{complaints:?}");
    // the new one works, the old one does not
    site.browser.open(&format!("{}/sign-in?max_age=0&steps=1", site.origin)).await;
    site.focus("identifier").await;
    site.enter(ADA).await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter(ADA_PASSWORD).await;
    site.says("The name or the password is wrong.").await;
    site.enter(NEW_PASSWORD).await;
    site.until("location.pathname === '/'").await;
}

#[tokio::test]
async fn c130_an_address_is_changed_by_mail_and_then_the_account_is_deleted() {
    let Some(mut mail) = PythonServer::start("mail.py", "aiosmtpd", &[]).await else { return };
    let smtp = Smtp::insecure_plaintext("localhost", "no-reply@acme.example").unwrap().port(mail.port);
    let Some(mut site) = Site::with("account-address", |service, _| service.email(smtp), Router::new()).await else {
        return;
    };
    site.run_first(COUNTS).await;
    let page = format!("{}/sign-in?return_to=%2Faccount%2Fsecurity&max_age=0&steps=2", site.origin);
    site.browser.open(&page).await;
    site.prove_password().await;
    site.press_button("sms").await;
    site.focus("otp").await;
    let sent = site.world.code(ADA_PHONE).await;
    site.enter(&sent).await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    let shown = site.texts("#contacts strong").await;
    assert_eq!(shown, ["E-mail a•••@example.com", "Phone +•••••••••00"]);

    site.reset_counts().await;
    site.tab_to("#contacts button").await;
    site.focus("contact-value").await;
    check(&mut site, "address").await;
    site.enter(NEW_ADDRESS).await;
    site.focus("contact-code").await;
    let sent = [format!("A code was sent to {NEW_ADDRESS}. Enter it to confirm that it is yours.")];
    assert_eq!(site.texts("#contact-sent").await, sent);
    check(&mut site, "address-code").await;
    code(&mut mail, NEW_ADDRESS).await;
    site.world.advance(31);
    site.tab_to("#contact-resend").await;
    site.until("text('done') === 'Another code was sent.' && idle()").await;
    site.focus("contact-code").await;
    let right = code(&mut mail, NEW_ADDRESS).await;
    site.enter(&right).await;
    site.until("text('done') === 'The new contact is confirmed. Messages go there from now on.' && idle()").await;
    check(&mut site, "address-changed").await;
    // the button that begins, twice Enter in a form, and another code
    assert_eq!(site.counts().await, (1 + 2 + 1, 2));
    assert_eq!(site.texts("#contacts strong").await[0], "E-mail l•••@example.com");
    told(&mut mail, ADA, "An e-mail address of your account was changed").await;
    assert_eq!(site.browser.complaints(), [""; 0]);

    // no address, and a wrong code
    site.tab_to("#contacts button").await;
    site.focus("contact-value").await;
    site.enter("lovelace@example").await;
    site.says("Enter an e-mail address.").await;
    site.ask("document.getElementById('contact-value').select()").await;
    site.enter(OTHER_ADDRESS).await;
    site.focus("contact-code").await;
    let right = code(&mut mail, OTHER_ADDRESS).await;
    site.enter(if right == "000000" { "000001" } else { "000000" }).await;
    site.says("The code is wrong or has expired.").await;
    site.tab_to("#proof-cancel").await;
    site.until("!shown('contact-proof') && idle()").await;
    assert_eq!(site.texts("#contacts strong").await[0], "E-mail l•••@example.com");
    let complaints = site.browser.complaints();
    assert!(complaints.len() == 2, "a malformed address and a wrong code: {complaints:?}");

    // a name, without a question
    site.ask("document.getElementById('full-name').focus()").await;
    site.enter("Ada <b>Lovelace</b>").await;
    site.until("text('done') === 'The name was changed.' && idle()").await;

    // the dialog does not lead to the button that deletes
    site.tab_to("#delete-account").await;
    site.until("document.activeElement.id === 'no'").await;
    assert_eq!(site.texts("#question").await, ["Delete your account ada? Nobody can bring it back."]);
    check(&mut site, "delete").await;
    site.browser.press("Enter").await;
    site.until("!shown('question') && idle()").await;
    site.reset_counts().await;
    site.tab_to("#delete-account").await;
    site.until("document.activeElement.id === 'no'").await;
    site.tab_to("#yes").await;
    site.focus("identifier").await;
    check(&mut site, "deleted").await;
    assert_eq!(site.counts().await, (2, 0), "the button and its confirmation");
    assert_eq!(site.browser.complaints(), [""; 0]);
    told(&mut mail, NEW_ADDRESS, "Your account was deleted").await;
    site.enter(NEW_ADDRESS).await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter(ADA_PASSWORD).await;
    site.says("The name or the password is wrong.").await;
}
