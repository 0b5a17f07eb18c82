//! The page that asks about a third-party client, in a real browser on a phone, in both languages.

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

use axum::{Router, response::Html, routing::get};
use site::Site;
use support::inspector::{DESKTOP, Inspector, PHONE};
use tollgate::{Client, ClientTable, Tenant, Tokens};
use world::challenge;

const SCOPES: &str = "openid profile email offline_access invoices:read";
const IS_QUESTION: &str = "document.querySelector('form[action=consent]') && idle()";

/// Opens a request of the partner, which is at another origin, in this language.
async fn open(site: &mut Site, language: &str) {
    let (origin, foreign, challenge) = (&site.origin, &site.foreign, challenge());
    let scope = SCOPES.replace(' ', "%20");
    let link = format!(
        "{origin}/authorize?client_id=partner&redirect_uri={foreign}/back&response_type=code&scope={scope}\
         &code_challenge={challenge}&code_challenge_method=S256&state=xyz&ui_locales={language}"
    );
    site.browser.open(&link).await;
}

/// Presses a button of the page with the keyboard, and waits until the browser is at the partner.
async fn decide(site: &mut Site, decision: &str) -> String {
    site.ask(&format!("document.querySelector('button[value={decision}]').focus()")).await;
    site.browser.press("Enter").await;
    site.until("location.pathname === '/back'").await;
    assert_eq!(site.ask("location.origin").await, site.foreign.as_str());
    site.ask("location.search").await.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn c134_users_decide_about_a_third_party_client_and_take_its_access_away_again() {
    let back = Router::new().route("/back", get(async || Html("<!doctype html><title>Partner</title>")));
    let clients = |foreign: &str| {
        let partner = Client::new("partner", Tenant::parse("acme").unwrap()).unwrap().name("Partner Books").unwrap();
        let partner = partner.insecure_localhost(&format!("{foreign}/back")).unwrap();
        ClientTable::new([partner.scopes(SCOPES).unwrap().third_party()]).unwrap()
    };
    let with = |service: tollgate::auth::AuthServiceBuilder, foreign: &str| {
        service.clients(clients(foreign)).tokens(Tokens::new())
    };
    let looks = [("light", DESKTOP), ("dark", PHONE), ("light", PHONE)];
    let Some([english, german]) = Inspector::find("en", &looks).zip(Inspector::find("de", &looks)).map(<[_; 2]>::from)
    else {
        return;
    };
    let Some(mut site) = Site::with("consent", with, back).await else { return };
    open(&mut site, "en").await;
    site.prove_password().await;
    site.until(IS_QUESTION).await;
    assert_eq!(
        site.texts("h1, #user").await,
        ["Allow Partner Books access to your account?", "You are signing in as ada. Use another account"]
    );
    assert_eq!(
        site.texts("li").await,
        [
            "your e-mail address",
            "the permission invoices:read",
            "your data while you are away",
            "your identity",
            "your name",
        ]
    );
    english.inspect(&mut site.browser, "consent").await;
    // the policy of the page permits the way to the partner, and back again
    let query = decide(&mut site, "deny").await;
    assert!(query.starts_with("?error=access_denied") && query.contains("state=xyz"), "{query}");

    open(&mut site, "en").await;
    site.until(IS_QUESTION).await;
    site.world.advance(301);
    site.ask("document.querySelector('button[value=allow]').focus()").await;
    site.browser.press("Enter").await;
    site.says("Your sign-in had timed out before you allowed this. Please sign in again.").await;

    open(&mut site, "de").await;
    site.prove_password().await;
    site.until(IS_QUESTION).await;
    assert_eq!(site.ask("document.documentElement.lang").await, "de");
    assert!(site.texts("#user").await[0].starts_with("Sie melden sich als ada an."));
    assert_eq!(site.texts("h1").await, ["Partner Books Zugriff auf Ihr Konto erlauben?"]);
    assert_eq!(site.texts("button").await, ["Erlauben", "Nicht erlauben"]);
    german.inspect(&mut site.browser, "consent").await;
    let query = decide(&mut site, "allow").await;
    assert!(query.starts_with("?code=") && query.contains("state=xyz"), "{query}");

    let page = format!("{}/account/security", site.origin);
    site.browser.open(&page).await;
    site.until("shown('all') && idle()").await;
    let listed = site.texts("#consents-list li").await;
    assert!(listed.len() == 1 && listed[0].contains("Partner Books") && listed[0].contains("your name"), "{listed:?}");
    english.inspect(&mut site.browser, "account-with-consent").await;
    site.ask("document.querySelector('#consents-list .danger').focus()").await;
    site.browser.press("Enter").await;
    site.press_button("yes").await;
    site.until("text('done') === 'Partner Books no longer has access.' && !shown('consents') && idle()").await;
    assert_eq!(site.browser.complaints(), [""; 0]);
}
