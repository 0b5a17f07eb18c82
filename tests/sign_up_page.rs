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
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use site::{COUNTS, Site};
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
    look(&mut site, "dark", 360).await;
    Some((site, mail))
}

fn smtp(mail: &PythonServer) -> Smtp {
    Smtp::insecure_plaintext("localhost", "Acme <no-reply@acme.example>").unwrap().port(mail.port)
}

/// Sets the color scheme and the screen width of the browser.
async fn look(site: &mut Site, scheme: &str, width: u32) {
    let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    site.browser.call("Emulation.setEmulatedMedia", scheme).await;
    let screen = json!({ "width": width, "height": 780, "deviceScaleFactor": 1, "mobile": true });
    site.browser.call("Emulation.setDeviceMetricsOverride", screen).await;
}

/// Checks that a page fits, and stores a picture of it in the folder that `TOLLGATE_SCREENSHOTS` names.
async fn check(site: &mut Site, name: &str) {
    assert_eq!(site.ask("document.documentElement.scrollWidth <= innerWidth").await, true, "{name} is too wide");
    let Some(folder) = std::env::var_os("TOLLGATE_SCREENSHOTS") else { return };
    for scheme in ["light", "dark"] {
        look(site, scheme, 360).await;
        let picture = site.browser.call("Page.captureScreenshot", json!({})).await;
        let picture = STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}-{scheme}.png")), picture).unwrap();
    }
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

/// Clicks on a link of the page.
async fn follow(site: &mut Site, id: &str) {
    site.until(&format!("shown('{id}') && idle()")).await;
    site.ask(&format!("document.getElementById('{id}').click()")).await;
}

async fn signs_up(site: &mut Site, mail: &mut PythonServer, picture: bool) {
    site.focus("join-to").await;
    if picture {
        check(site, "sign-up").await;
    }
    site.enter(NORA).await;
    site.focus("otp").await;
    if picture {
        check(site, "sign-up-code").await;
    }
    let code = code(mail, NORA).await;
    site.enter(&code).await;
    site.focus("new-secret").await;
    if picture {
        check(site, "sign-up-password").await;
    }
    site.enter(FIRST).await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
}

#[tokio::test]
async fn c127_c129_from_an_address_to_an_account_and_to_another_password() {
    let Some((mut site, mut mail)) = site("sign-up").await else { return };
    let origin = site.origin.clone();
    site.browser.open(&format!("{origin}/sign-in?return_to=%2Faccount%2Fsecurity")).await;
    site.focus("identifier").await;
    check(&mut site, "sign-in").await;
    follow(&mut site, "to-sign-up").await;
    site.focus("join-to").await;
    site.reset_counts().await;
    signs_up(&mut site, &mut mail, true).await;
    let (buttons, fields) = site.counts().await;
    assert_eq!((buttons, fields), (3, 3), "address, code and password, each with Enter");
    assert_eq!(site.browser.complaints(), [""; 0]);

    // the password is forgotten
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    site.browser.open(&format!("{origin}/sign-in?return_to=%2Faccount%2Fsecurity")).await;
    follow(&mut site, "to-reset").await;
    site.focus("identifier").await;
    check(&mut site, "reset").await;
    site.enter(NORA).await;
    // the page does not know the account yet, so it also offers the phone and passkeys
    site.press_button("email").await;
    site.focus("to").await;
    site.browser.press("Enter").await;
    site.focus("otp").await;
    let proof = code(&mut mail, NORA).await;
    site.enter(&proof).await;
    site.focus("new-secret").await;
    check(&mut site, "reset-password").await;
    site.enter("short").await;
    site.says("Use at least 15 characters. Several words are easy to remember.").await;
    assert_eq!(site.browser.complaints().len(), 1, "the refused password");
    site.focus("new-secret").await;
    site.enter(SECOND).await;
    site.until("shown('again') && idle()").await;
    check(&mut site, "reset-done").await;
    assert!(letter(&mut mail, NORA).await.contains("A new password was set for your account"));
    site.browser.press("Enter").await;
    site.focus("identifier").await;
    assert_eq!(site.ask("document.getElementById('identifier').value").await, NORA);
    site.browser.press("Enter").await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter(SECOND).await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;

    // somebody signs up with her address
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    site.browser.open(&format!("{origin}/sign-up")).await;
    site.focus("join-to").await;
    site.enter(NORA).await;
    site.focus("otp").await;
    let told = letter(&mut mail, NORA).await;
    assert!(told.contains("You already have one.") && told.contains(&format!("{origin}/sign-in")), "{told}");
    assert_eq!(site.browser.complaints(), [""; 0]);
}

#[tokio::test]
async fn c129_a_forgotten_password_with_a_second_factor() {
    let Some((mut site, mut mail)) = site("forgotten").await else { return };
    let origin = site.origin.clone();
    let authenticator = site.browser.add_authenticator("internal").await;
    site.browser.set_present(&authenticator, false).await;
    site.browser.open(&format!("{origin}/sign-in?return_to=%2Faccount%2Fsecurity&max_age=0&steps=2")).await;
    site.prove_password().await;
    site.press_button("email").await;
    site.focus("otp").await;
    let proof = code(&mut mail, ADA).await;
    site.enter(&proof).await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    site.enrol(&authenticator).await;
    letter(&mut mail, ADA).await;
    // until the next code can be sent
    site.world.advance(31);

    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    site.browser.open(&format!("{origin}/reset-password")).await;
    site.focus("identifier").await;
    site.enter(ADA).await;
    site.press_button("email").await;
    site.focus("to").await;
    site.browser.press("Enter").await;
    site.focus("otp").await;
    let proof = code(&mut mail, ADA).await;
    site.enter(&proof).await;
    // the mailbox alone is not enough
    site.until("shown('key') && idle()").await;
    check(&mut site, "reset-second-factor").await;
    site.browser.set_present(&authenticator, true).await;
    site.browser.press("Enter").await;
    site.focus("new-secret").await;
    site.browser.set_present(&authenticator, false).await;
    site.enter(SECOND).await;
    site.until("shown('again') && idle()").await;
    letter(&mut mail, ADA).await;
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
    site.browser.press("Enter").await;
    site.focus("new-secret").await;
    site.enter(FIRST).await;
    site.until("location.pathname === '/' && document.title === 'Empty'").await;
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
    site.browser.press("Enter").await;
    site.focus("new-secret").await;
    site.enter(SECOND).await;
    site.until("shown('again') && idle()").await;
    assert_ne!(SECOND, ADA_PASSWORD);
    assert!(letter(&mut mail, ADA).await.contains("A new password was set"));
    assert_eq!(site.browser.complaints(), [""; 0]);
}
