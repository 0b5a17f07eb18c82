//! Sign-up, invitations and forgotten passwords in a real browser, with messages through a real mail server.

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
use site::{COUNTS, IGNORES_SUGGESTIONS, Site};
use support::python::PythonServer;
use tollgate::{
    AuthService, ClientIp, ClientTable, Tenant,
    auth::{AuthServiceBuilder, Invitation, SignUp},
    delivery::Smtp,
    user::EmailAddress,
};
use world::{ADA, ADA_PASSWORD};

const NORA: &str = "nora@example.com";
const FIRST: &str = "a long enough password";
const SECOND: &str = "an even longer password";

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

/// Creates a site of one tenant whose logins need one step, on a dark phone. Returns `None` without a browser or a mail server.
async fn site(name: &str) -> Option<(Site, PythonServer)> {
    let mail = PythonServer::start("mail.py", "aiosmtpd", &[]).await?;
    let more = |service: AuthServiceBuilder, _: &str| {
        service.clients(ClientTable::default()).sign_up(SignUp::Open).email(smtp(&mail))
    };
    let mut site = Site::with(name, more, Router::new()).await?;
    site.run_first(COUNTS).await;
    site.browser.look("dark", 360).await;
    Some((site, mail))
}

fn smtp(mail: &PythonServer) -> Smtp {
    Smtp::insecure_plaintext("localhost", "Acme <no-reply@acme.example>").unwrap().port(mail.port)
}

/// Checks that a page fits on phones. A dark one remains.
async fn check(site: &mut Site, name: &str) {
    site.fits(name, &[("light", 360), ("dark", 360)]).await;
}

/// Returns the text of the next letter, which must be to this address.
async fn letter(mail: &mut PythonServer, to: &str) -> String {
    let letter = mail.next().await;
    assert_eq!(letter["to"], json!([to]));
    let text = letter["text"].as_str().unwrap().to_owned();
    assert!(text.contains("Auto-Submitted"));
    // long lines are folded
    text.split_once("\r\n\r\n").unwrap().1.replace("=\r\n", "").replace("=3D", "=")
}

async fn code(mail: &mut PythonServer, to: &str) -> String {
    let text = letter(mail, to).await;
    let is_code = |word: &&str| word.len() == 6 && word.bytes().all(|byte| byte.is_ascii_digit());
    text.split_whitespace().find(is_code).unwrap_or_else(|| panic!("no code in {text}")).to_owned()
}

/// Waits until the account page is shown.
async fn arrives(site: &mut Site) {
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
}

#[tokio::test]
async fn c127_from_an_address_to_an_account_and_its_first_passkey() {
    let Some((mut site, mut mail)) = site("sign-up").await else { return };
    let sign_in = format!("{}/sign-in?return_to=%2Faccount%2Fsecurity", site.origin);
    let authenticator = site.browser.add_authenticator("internal").await;
    site.browser.set_present(&authenticator, false).await;
    site.run_first(IGNORES_SUGGESTIONS).await;
    site.browser.open(&sign_in).await;
    site.focus("identifier").await;
    check(&mut site, "sign-in").await;
    site.reset_counts().await;
    site.tab_to("#to-sign-up").await;
    site.focus("join-to").await;
    check(&mut site, "sign-up").await;
    site.enter(NORA).await;
    site.focus("otp").await;
    check(&mut site, "sign-up-code").await;
    let sent = code(&mut mail, NORA).await;
    site.enter(&sent).await;
    site.focus("new-secret").await;
    check(&mut site, "sign-up-password").await;
    site.enter(FIRST).await;
    arrives(&mut site).await;
    check(&mut site, "account-new").await;
    assert_eq!(site.counts().await, (1 + 3, 3), "the link, and address, code and password, each with Enter");

    // both proofs of the sign-up are fresh
    site.reset_counts().await;
    site.browser.set_present(&authenticator, true).await;
    site.tab_to("#add-passkey").await;
    site.until("text('done').startsWith('The passkey was added.') && idle()").await;
    site.browser.set_present(&authenticator, false).await;
    check(&mut site, "account-passkey").await;
    assert_eq!(site.counts().await, (1, 0));
    assert!(letter(&mut mail, NORA).await.contains("passkey"));
    assert_eq!(site.browser.passkeys(&authenticator).await.len(), 1);

    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    site.browser.open(&sign_in).await;
    site.focus("identifier").await;
    site.until("document.body.dataset.suggested").await;
    site.reset_counts().await;
    site.browser.set_present(&authenticator, true).await;
    site.tab_to("#with-passkey").await;
    arrives(&mut site).await;
    site.browser.set_present(&authenticator, false).await;
    assert_eq!(site.counts().await, (1, 0));
    assert_eq!(site.browser.complaints(), [""; 0]);

    // somebody signs up with her address
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    let sign_up = format!("{}/sign-up", site.origin);
    site.browser.open(&sign_up).await;
    site.focus("join-to").await;
    site.enter(NORA).await;
    site.focus("otp").await;
    let told = letter(&mut mail, NORA).await;
    assert!(told.contains("You already have one.") && told.contains(&format!("{}/sign-in", site.origin)), "{told}");
    assert_eq!(site.browser.complaints(), [""; 0]);
}

/// Goes from the login page to the one for a new password, and proves the mailbox of ada there.
async fn forgets_password(site: &mut Site, mail: &mut PythonServer) {
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    let page = format!("{}/sign-in?return_to=%2Faccount%2Fsecurity", site.origin);
    site.browser.open(&page).await;
    site.focus("identifier").await;
    site.reset_counts().await;
    site.enter(ADA).await;
    site.tab_to("#ways button[value=password]").await;
    site.focus("secret").await;
    check(site, "reset-from-password").await;
    site.tab_to("#to-reset").await;
    // the name is there already
    site.until("location.pathname === '/reset-password' && shown('who') && idle()").await;
    site.focus("identifier").await;
    assert_eq!(site.ask("document.getElementById('identifier').value").await, ADA);
    check(site, "reset").await;
    site.browser.press("Enter").await;
    // the page does not know the account yet, so it also offers the phone and passkeys
    site.until("shown('choose') && document.activeElement.value === 'email' && idle()").await;
    check(site, "reset-ways").await;
    site.tab_to("#ways button[value=email]").await;
    // the name is the address
    site.focus("otp").await;
    check(site, "reset-code").await;
    let proof = code(mail, ADA).await;
    site.enter(&proof).await;
}

#[tokio::test]
async fn c129_a_forgotten_password_takes_nine_buttons_and_four_fields() {
    let Some((mut site, mut mail)) = site("forgotten").await else { return };
    forgets_password(&mut site, &mut mail).await;
    site.focus("new-secret").await;
    check(&mut site, "reset-password").await;
    site.enter(SECOND).await;
    site.until("shown('again') && idle()").await;
    check(&mut site, "reset-done").await;
    assert!(letter(&mut mail, ADA).await.contains("A new password was set for your account"));
    site.browser.press("Enter").await;
    // without a choice
    site.focus("secret").await;
    check(&mut site, "reset-sign-in").await;
    site.enter(SECOND).await;
    arrives(&mut site).await;
    // name, password, link; name, e-mail, code, new password; onward, and the password
    assert_eq!(site.counts().await, (3 + 4 + 2, 1 + 2 + 1));
    assert_eq!(site.browser.complaints(), [""; 0]);

    // a password that is too short
    site.world.advance(31);
    forgets_password(&mut site, &mut mail).await;
    site.focus("new-secret").await;
    site.enter("short").await;
    site.says("Use at least 15 characters. Several words are easy to remember.").await;
    check(&mut site, "reset-password-refused").await;
    assert_eq!(site.browser.complaints().len(), 1, "the refused password");
    site.enter(FIRST).await;
    site.until("shown('again') && idle()").await;
}

#[tokio::test]
async fn c129_a_forgotten_password_with_a_second_factor() {
    let Some((mut site, mut mail)) = site("forgotten-factor").await else { return };
    let authenticator = site.browser.add_authenticator("internal").await;
    site.browser.set_present(&authenticator, false).await;
    let page = format!("{}/sign-in?return_to=%2Faccount%2Fsecurity&max_age=0&steps=2", site.origin);
    site.browser.open(&page).await;
    site.prove_password().await;
    site.press_button("email").await;
    site.focus("otp").await;
    let proof = code(&mut mail, ADA).await;
    site.enter(&proof).await;
    arrives(&mut site).await;
    site.enrol(&authenticator).await;
    letter(&mut mail, ADA).await;
    // until the next code can be sent
    site.world.advance(31);

    forgets_password(&mut site, &mut mail).await;
    // the mailbox alone is not enough
    site.until("shown('key') && idle()").await;
    check(&mut site, "reset-second-factor").await;
    assert_eq!(site.texts("#step").await, ["Step 2 of 2"]);
    site.browser.set_present(&authenticator, true).await;
    site.browser.press("Enter").await;
    site.focus("new-secret").await;
    // no third step of two
    assert_eq!(site.texts("#step, #progress li").await, [""; 0]);
    site.browser.set_present(&authenticator, false).await;
    site.enter(SECOND).await;
    site.until("shown('again') && idle()").await;
    letter(&mut mail, ADA).await;
    // the fresh login asks for the passkey, too
    site.browser.press("Enter").await;
    site.focus("secret").await;
    site.enter(SECOND).await;
    site.until("shown('key') && idle()").await;
    let lost = "If you no longer have your passkey or app, please contact your administrator.";
    assert_eq!(site.texts("#lost").await, [lost]);
    check(&mut site, "reset-sign-in-second-factor").await;
    site.browser.set_present(&authenticator, true).await;
    site.browser.press("Enter").await;
    arrives(&mut site).await;
    assert_eq!(site.counts().await, (9 + 2, 4), "twice a passkey more than without one");
    assert_eq!(site.browser.passkeys(&authenticator).await.len(), 1);
    assert_eq!(site.browser.complaints(), [""; 0]);
}

#[tokio::test]
async fn c128_an_invitation_and_a_link_of_the_application_are_opened_and_used_by_a_button() {
    let Some((mut site, mut mail)) = site("invited").await else { return };
    let origin = site.origin.clone();
    let service = AuthService::builder(&origin, site.world.store.clone())
        .users(site.world.users.clone())
        .client_ip(ClientIp::unknown())
        .first_party(acme())
        .insecure_loopback()
        .email(smtp(&mail))
        .sign_up(SignUp::Open)
        .clock(site.world.clock.clone())
        .build()
        .unwrap();
    service.invite(&acme(), Invitation::new(EmailAddress::parse(NORA).unwrap())).await.unwrap();
    let text = letter(&mut mail, NORA).await;
    let link = text.split_whitespace().find(|word| word.starts_with(&origin)).unwrap().to_owned();
    for _ in 0..2 {
        // opening it twice does no harm
        site.browser.open(&link).await;
        site.until("shown('invited') && idle()").await;
    }
    assert_eq!(site.ask("location.hash").await, "");
    check(&mut site, "invited").await;
    // a person who takes too long presses the button again
    site.browser.press("Enter").await;
    site.focus("new-secret").await;
    site.world.advance(601);
    site.enter(FIRST).await;
    site.says("Your sign-in timed out. Please start again.").await;
    site.browser.press("Enter").await;
    site.until("shown('invited') && idle()").await;
    assert_eq!(site.browser.complaints().len(), 1, "the call that came too late");
    site.reset_counts().await;
    site.browser.press("Enter").await;
    site.focus("new-secret").await;
    check(&mut site, "invited-password").await;
    site.enter(FIRST).await;
    site.until("location.pathname === '/' && document.title === 'Empty'").await;
    // the button of the page, and Enter in the form
    assert_eq!(site.counts().await, (2, 1));
    assert_eq!(site.browser.complaints(), [""; 0]);
    site.browser.open(&link).await;
    site.until("shown('invited') && idle()").await;
    site.browser.press("Enter").await;
    site.says("This link cannot be used any more. Please ask for a new one.").await;
    assert_eq!(site.browser.complaints().len(), 1, "the used link");

    let ada = "u-ada".parse().unwrap();
    let link = service.create_reset_link(&acme(), &ada).await.unwrap().unwrap();
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    site.browser.open(&link).await;
    site.until("shown('invited') && idle()").await;
    check(&mut site, "reset-link").await;
    site.reset_counts().await;
    site.browser.press("Enter").await;
    site.focus("new-secret").await;
    site.enter(SECOND).await;
    site.until("shown('again') && idle()").await;
    assert_eq!(site.counts().await, (2, 1));
    assert_ne!(SECOND, ADA_PASSWORD);
    assert!(letter(&mut mail, ADA).await.contains("A new password was set"));
    assert_eq!(site.browser.complaints(), [""; 0]);
}
