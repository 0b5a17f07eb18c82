//! A walk through all pages in English and German, on a desktop and a small phone, light and dark, by keyboard, with a logo and
//! other colors. `TOLLGATE_SCREENSHOTS` names a folder for pictures of all pages.

#![cfg(feature = "external-providers")]
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

use std::collections::BTreeMap;

use axum::Router;
use serde_json::json;
use site::{IGNORES_SUGGESTIONS, Site};
use support::inspector::{DESKTOP, Inspector, PHONE};
use tollgate::{
    ClientTable, Language, Tokens,
    auth::{AuthServiceBuilder, Colors, Pages, SignUp},
    sso::{ProviderUser, SsoCallback, SsoConnection, SsoError, SsoProvider, SsoRequest},
};
use world::{ADA, ADA_PASSWORD, ADA_PHONE, challenge};

const LOGO: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 32"><rect width="32" height="32" rx="8" fill="#2f9e6b"/><path d="M8 22 16 8l8 14z" fill="#fff"/></svg>"##;

/// A provider at which every user cancels.
struct Cancelled;

impl SsoProvider for Cancelled {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        Ok(format!("{}?error=access_denied&state={}", request.redirect_uri(), request.state()))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        callback.code().map(|_| ProviderUser::new("https://corp.example", "1"))
    }
}

/// A site, and what is checked on each of its pages.
struct Walk {
    site: Site,
    inspector: Inspector,
    words: BTreeMap<String, String>,
}

impl Walk {
    async fn begin(name: &str, language: &'static str) -> Option<Self> {
        Self::with(name, language, |service| service).await
    }

    /// Each page is seen in all four looks, two in each language.
    async fn with(
        name: &str,
        language: &'static str,
        more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder,
    ) -> Option<Self> {
        let looks = if language == "de" {
            [("dark", PHONE), ("light", DESKTOP)]
        } else {
            [("light", PHONE), ("dark", DESKTOP)]
        };
        let inspector = Inspector::find(language, &looks)?;
        let pages = Pages::new()
            .logo("Acme", LOGO)
            .colors(Colors::new().accent("#0b6b43"))
            .dark_colors(Colors::new().accent("#7ddcae"))
            .texts(Language::German, [("login.title", "Willkommen")]);
        let service = |service: AuthServiceBuilder, _: &str| {
            let corp = SsoConnection::new(Cancelled).label("Corp");
            more(service.pages(pages).tokens(Tokens::new()).sso("corp", corp))
        };
        let mut site = Site::with(&format!("walk-{name}-{language}"), service, Router::new()).await?;
        speak(&mut site, language).await;
        site.run_first(IGNORES_SUGGESTIONS).await;
        let file = std::fs::read_to_string(format!("{}/src/words/{language}.txt", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let lines = file.lines().filter_map(|line| line.split_once(" = "));
        let words = lines.map(|(key, text)| (key.to_owned(), text.to_owned())).collect();
        Some(Self { site, inspector, words })
    }

    async fn see(&mut self, name: &str) {
        self.site.until("document.querySelector('img.logo').naturalWidth > 0").await;
        self.inspector.inspect(&mut self.site.browser, name).await;
    }

    /// Waits until the message begins with these words, up to the first placeholder.
    async fn says(&mut self, key: &str) {
        self.shows("message", key).await;
    }

    async fn shows(&mut self, id: &str, key: &str) {
        let words = json!(self.words[key].split('{').next().unwrap());
        self.site.until(&format!("text('{id}').startsWith({words}) && idle()")).await;
    }

    async fn clear(&mut self, field: &str) {
        self.site.ask(&format!("document.getElementById('{field}').value = ''")).await;
    }

    /// Begins a login as Ada, up to the choice of the first step.
    async fn name_ada(&mut self, client: &str) {
        self.site.log_in(client).await;
        self.site.focus("identifier").await;
        self.site.enter(ADA).await;
        self.site.until("shown('choose') && idle()").await;
    }

    /// Clicks as soon as the page takes it.
    async fn click(&mut self, selector: &str) {
        self.site.until(&format!("document.querySelector('{selector}') && idle()")).await;
        self.site.browser.click(selector).await;
    }

    /// Returns the code of the next message to this address, after this many messages.
    async fn next_code(&mut self, to: &str, messages: usize) -> String {
        while self.site.world.outbox.messages().len() <= messages {
            tokio::task::yield_now().await;
        }
        self.site.world.code(to).await
    }

    async fn open(&mut self, path: &str) {
        let url = format!("{}{path}", self.site.origin);
        self.site.browser.open(&url).await;
        self.site.until("document.readyState === 'complete' && document.querySelector('main')").await;
    }
}

async fn speak(site: &mut Site, language: &str) {
    let agent = site.ask("navigator.userAgent").await;
    let header = if language == "de" { "de-DE,de" } else { "en-GB,en" };
    site.browser.call("Network.setUserAgentOverride", json!({ "userAgent": agent, "acceptLanguage": header })).await;
}

fn other_code(code: &str) -> &'static str {
    if code == "000000" { "000001" } else { "000000" }
}

/// Wrong inputs, waits, a new code, the back button, and a second tab.
async fn walk_login(language: &'static str) {
    let Some(mut walk) = Walk::begin("login", language).await else { return };
    walk.open("/logout").await;
    walk.site.log_in("mfa").await;
    walk.site.focus("identifier").await;
    walk.see("name").await;
    if language == "de" {
        assert_eq!(walk.site.ask("document.title").await, "Willkommen bei Expenses");
        walk.site.browser.look("dark", PHONE).await;
        let border = walk.site.ask("getComputedStyle(document.querySelector('main')).borderTopColor").await;
        assert_eq!(border, "rgb(125, 220, 174)");
    }
    walk.site.enter(&"x".repeat(400)).await;
    walk.says("login.bad_name").await;
    walk.see("bad-name").await;
    walk.clear("identifier").await;
    walk.site.enter(ADA).await;
    walk.site.until("shown('choose') && idle()").await;
    walk.see("choose").await;
    walk.site.press_button("password").await;
    for _ in 0..5 {
        walk.site.focus("secret").await;
        walk.site.enter("wrong").await;
        walk.says("login.error_invalid_credentials").await;
    }
    walk.see("wrong-password").await;
    walk.site.enter("wrong").await;
    walk.says("login.error_too_many_attempts").await;
    walk.see("wait").await;
    walk.site.advance(30).await;
    walk.site.until("!document.querySelector('#password button').disabled").await;
    walk.site.focus("secret").await;
    walk.site.enter(ADA_PASSWORD).await;
    walk.site.until("shown('choose') && idle()").await;
    walk.see("second-step").await;
    walk.site.press_button("sms").await;
    walk.site.focus("otp").await;
    walk.see("code").await;

    // the back button leaves the login, and the next button comes back to it
    walk.site.ask("setTimeout(() => history.back())").await;
    walk.site.until("location.pathname === '/logout' && document.readyState === 'complete'").await;
    walk.site.ask("setTimeout(() => history.forward())").await;
    walk.site.until("location.pathname === '/authentication/start' && shown('code') && idle()").await;
    walk.see("came-back").await;
    let code = walk.site.world.code(ADA_PHONE).await;
    for _ in 0..2 {
        walk.site.focus("otp").await;
        walk.site.enter(other_code(&code)).await;
        walk.says("login.error_invalid_otp").await;
    }
    walk.see("wrong-code").await;
    walk.site.advance(30).await;
    walk.site.press_button("resend").await;
    walk.site
        .until("document.getElementById('resend').disabled && document.activeElement.id === 'otp' && idle()")
        .await;
    let message = walk.site.world.outbox.messages().last().unwrap().clone();
    assert_eq!(message.language().as_str(), language);

    // another tab signs in meanwhile, and this one goes on
    let first = walk.site.browser.open_tab().await;
    speak(&mut walk.site, language).await;
    walk.name_ada("web").await;
    walk.site.press_button("password").await;
    walk.site.focus("secret").await;
    walk.site.enter(ADA_PASSWORD).await;
    walk.site.comes_back().await;
    walk.site.browser.use_tab(first).await;
    walk.see("beside-another-tab").await;
    let code = walk.site.world.code(ADA_PHONE).await;
    walk.site.focus("otp").await;
    walk.site.enter(&code).await;
    walk.site.comes_back().await;
}

#[tokio::test]
async fn login_pages_are_right_in_english() {
    walk_login("en").await;
}

#[tokio::test]
async fn login_pages_are_right_in_german() {
    walk_login("de").await;
}

/// Addresses, an expired login, a cancelled sign-in elsewhere, a signed-in user, signing out, and errors.
async fn walk_ways(language: &'static str) {
    let Some(mut walk) = Walk::begin("ways", language).await else { return };
    walk.name_ada("web").await;
    walk.site.press_button("sms").await;
    walk.site.focus("to").await;
    walk.see("address").await;
    walk.site.enter("12").await;
    walk.says("login.bad_address").await;
    walk.see("bad-address").await;
    walk.clear("to").await;
    walk.site.enter(ADA_PHONE).await;
    walk.site.until("shown('code') && idle()").await;
    walk.see("code-perhaps-sent").await;
    walk.site.world.advance(31 * 60);
    walk.site.focus("otp").await;
    walk.site.enter("123456").await;
    walk.says("login.error_session_expired").await;
    walk.see("expired").await;
    walk.site.browser.press("Enter").await;
    walk.site.focus("identifier").await;
    walk.site.until("shown('providers')").await;
    walk.click("#providers button").await;
    walk.says("login.sso_denied").await;
    walk.see("cancelled-elsewhere").await;

    walk.name_ada("shared").await;
    walk.site.press_button("password").await;
    walk.site.focus("secret").await;
    walk.site.enter(ADA_PASSWORD).await;
    walk.site.comes_back().await;
    let (origin, challenge) = (walk.site.origin.clone(), challenge());
    let again = format!(
        "/authorize?client_id=shared&redirect_uri={origin}/callback&response_type=code&scope=openid\
         &code_challenge={challenge}&code_challenge_method=S256"
    );
    walk.open(&again).await;
    walk.site.until("shown('going') && idle()").await;
    walk.see("continue").await;

    walk.open("/logout").await;
    walk.see("log-out").await;
    walk.click("button").await;
    let heading = json!(walk.words["logout.done"]);
    walk.site.until(&format!("document.querySelector('h1')?.textContent === {heading}")).await;
    walk.see("logged-out").await;
    walk.open("/authorize?client_id=nobody").await;
    walk.see("error").await;
    walk.open("/authentication/sso/corp/callback?state=x&code=y").await;
    walk.see("error-provider").await;
}

#[tokio::test]
async fn ways_to_sign_in_and_out_are_right_in_english() {
    walk_ways("en").await;
}

#[tokio::test]
async fn ways_to_sign_in_and_out_are_right_in_german() {
    walk_ways("de").await;
}

/// The account page with each change and enrolment, and logins with what was enrolled.
async fn walk_account(language: &'static str) {
    let Some(mut walk) = Walk::begin("account", language).await else { return };
    let device = walk.site.browser.add_authenticator("internal").await;
    walk.site.open_account().await;
    walk.see("account").await;
    walk.site.press_button("password-begin").await;
    walk.site.focus("new-password").await;
    walk.see("account-password").await;
    walk.site.press_button("password-cancel").await;
    walk.click("#contacts button").await;
    walk.site.focus("contact-value").await;
    walk.see("account-contact").await;
    walk.site.press_button("contact-cancel").await;
    walk.site.press_button("delete-account").await;
    walk.site.until("document.getElementById('ask').open").await;
    walk.see("account-delete").await;
    walk.click("#no").await;
    walk.site.browser.set_present(&device, true).await;
    walk.site.press_button("add-passkey").await;
    walk.shows("done", "account.passkey_added").await;
    walk.site.browser.set_present(&device, false).await;
    walk.see("account-passkey").await;
    walk.click("#passkeys button").await;
    walk.site.until("document.querySelector('#passkeys input') && idle()").await;
    walk.see("account-rename").await;
    walk.click("#passkeys form button[type=button]").await;
    walk.click("#passkeys button.danger").await;
    walk.site.until("document.getElementById('ask').open").await;
    walk.see("account-question").await;
    walk.click("#no").await;

    walk.site.press_button("totp-begin").await;
    walk.site.focus("totp-code").await;
    walk.see("account-app").await;
    walk.site.enter("000000").await;
    walk.says("account.error_invalid_otp").await;
    walk.see("account-app-wrong-code").await;
    let code = walk.site.app_code("totp-secret", walk.site.world.time().as_secs()).await;
    walk.site.ask("document.getElementById('totp-code').focus()").await;
    walk.site.enter(&code).await;
    walk.shows("done", "account.app_added").await;
    walk.site.press_button("recovery-create").await;
    walk.site.focus("codes-copy").await;
    walk.see("account-codes").await;
    walk.site.press_button("codes-done").await;
    walk.site.press_button("connect-corp").await;
    walk.says("account.link_denied").await;
    walk.see("account-link-denied").await;
    walk.site.press_button("sign-out-everywhere").await;
    walk.site.until("document.getElementById('ask').open").await;
    walk.see("account-sign-out-everywhere").await;
    walk.click("#no").await;

    // a change needs fresh proofs
    walk.site.world.advance(301);
    walk.site.press_button("totp-delete").await;
    walk.site.press_button("yes").await;
    walk.site.until("location.pathname === '/authentication/start' && shown('restart') && idle()").await;
    walk.see("confirm-a-change").await;

    walk.site.log_in("mfa").await;
    walk.site.prove_password().await;
    walk.site.until("shown('choose') && idle()").await;
    walk.see("all-second-steps").await;
    walk.site.press_button("totp").await;
    walk.site.focus("otp").await;
    walk.see("app").await;
    walk.site.enter("000000").await;
    walk.says("login.wrong_app_code").await;
    walk.see("app-wrong-code").await;
    walk.site.press_button("other").await;
    walk.site.press_button("recovery_code").await;
    walk.site.focus("otp").await;
    walk.see("recovery-code").await;
    walk.site.press_button("other").await;
    walk.site.browser.set_user_verified(&device, false).await;
    walk.site.browser.set_present(&device, true).await;
    walk.site.press_button("passkey").await;
    walk.says("login.error_no_passkey").await;
    walk.see("passkey-not-used").await;
    walk.site.browser.set_user_verified(&device, true).await;
    walk.site.press_button("other").await;
    walk.site.press_button("passkey").await;
    walk.site.comes_back().await;
}

#[tokio::test]
async fn account_pages_are_right_in_english() {
    walk_account("en").await;
}

#[tokio::test]
async fn account_pages_are_right_in_german() {
    walk_account("de").await;
}

/// A user with one factor sets up a second one within a login, and sees the account page.
async fn walk_set_up(language: &'static str) {
    let Some(mut walk) = Walk::begin("set-up", language).await else { return };
    let device = walk.site.browser.add_authenticator("internal").await;
    walk.site.create_lone().await;
    walk.open("/account/security").await;
    walk.site.prove_password_of("lone").await;
    walk.site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    walk.see("account-one-factor").await;
    walk.site.log_in("mfa").await;
    walk.site.prove_password_of("lone").await;
    walk.site.until("shown('choose') && idle()").await;
    walk.see("set-up").await;
    walk.site.press_button("app").await;
    walk.site.focus("app-code").await;
    walk.see("set-up-app").await;
    walk.site.press_button("other").await;
    walk.site.browser.set_user_verified(&device, false).await;
    walk.site.browser.set_present(&device, true).await;
    walk.site.press_button("newkey").await;
    walk.says("login.error_no_new_passkey").await;
    walk.see("set-up-passkey").await;
    walk.site.browser.set_user_verified(&device, true).await;
    walk.site.browser.press("Enter").await;
    walk.site.comes_back().await;
}

#[tokio::test]
async fn pages_that_set_up_a_second_factor_are_right_in_english() {
    walk_set_up("en").await;
}

#[tokio::test]
async fn pages_that_set_up_a_second_factor_are_right_in_german() {
    walk_set_up("de").await;
}

/// Sign-up and a forgotten password.
async fn walk_life(language: &'static str) {
    const NORA: &str = "nora@example.com";
    // the other clients need two steps, and a new account has one
    let open = |service: AuthServiceBuilder| service.clients(ClientTable::default()).sign_up(SignUp::Open);
    let Some(mut walk) = Walk::with("life", language, open).await else { return };
    walk.open("/sign-up").await;
    walk.site.focus("join-to").await;
    walk.see("sign-up").await;
    walk.site.enter(NORA).await;
    walk.site.focus("otp").await;
    walk.see("sign-up-code").await;
    let code = walk.next_code(NORA, 0).await;
    walk.site.enter(&code).await;
    walk.site.focus("new-secret").await;
    walk.see("sign-up-password").await;
    walk.site.enter("short").await;
    walk.site.until("text('message') !== '' && idle()").await;
    walk.see("sign-up-password-refused").await;
    walk.site.focus("new-secret").await;
    walk.site.enter("a long enough password").await;
    walk.site.until("document.title === 'Empty'").await;
    walk.open("/account/security").await;
    walk.site.until("shown('all') && idle()").await;
    walk.see("account-new").await;
    walk.site.browser.call("Network.clearBrowserCookies", json!({})).await;
    walk.site.world.advance(60);
    let sent = walk.site.world.outbox.messages().len();
    walk.open("/reset-password").await;
    walk.site.focus("identifier").await;
    walk.see("reset").await;
    walk.site.enter(NORA).await;
    walk.site.press_button("email").await;
    walk.site.focus("otp").await;
    walk.see("reset-code").await;
    walk.site.press_button("other").await;
    walk.site.press_button("email").await;
    walk.site.focus("to").await;
    walk.see("reset-address").await;
    walk.site.press_button("have").await;
    walk.site.focus("otp").await;
    let code = walk.next_code(NORA, sent).await;
    walk.site.enter(&code).await;
    walk.site.focus("new-secret").await;
    walk.see("reset-password").await;
    walk.site.enter("an even longer password").await;
    walk.site.until("shown('again') && idle()").await;
    walk.see("reset-done").await;
}

#[tokio::test]
async fn sign_up_and_reset_are_right_in_english() {
    walk_life("en").await;
}

#[tokio::test]
async fn sign_up_and_reset_are_right_in_german() {
    walk_life("de").await;
}

/// Each check finds something on a page with these faults.
#[tokio::test]
async fn the_checks_find_faults() {
    let Some(inspector) = Inspector::find("de", &[("light", PHONE)]) else { return };
    let Some(mut site) = Site::new("walk-faults").await else { return };
    let page = "<!doctype html><html lang=de><title>Anmelden</title><style>#far { outline: none }</style>\
        <main style='width: 500px'><p style='color: #ccc'>Please sign in<p lang=en>Please</p><input><button id=far>Weiter</button></main>\
        <script>console.error('broken')</script>";
    site.browser.open(&format!("data:text/html,{}", page.replace('#', "%23"))).await;
    site.until("document.readyState === 'complete' && document.querySelector('main')").await;
    let faults = inspector.find_faults(&mut site.browser, "faults").await;
    for (number, part) in ["broken", "{\"please\", \"sign\"}", "id=\\\"far", "too wide", "color-contrast", "\"label"]
        .into_iter()
        .enumerate()
    {
        assert!(faults.iter().any(|fault| fault.contains(part)), "{number} {part}: {faults:#?}");
    }
}
