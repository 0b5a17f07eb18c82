//! A walk through all pages in German, on a dark phone, with a logo and other colors.

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
use site::Site;
use tollgate::{
    Language, Tokens,
    auth::{Colors, Pages},
};
use world::{ADA, ADA_PASSWORD};

const LOGO: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 32"><rect width="32" height="32" rx="8" fill="#2f9e6b"/><path d="M8 22 16 8l8 14z" fill="#fff"/></svg>"##;

/// Checks what each page must be, and stores a picture of it in the folder that `TOLLGATE_SCREENSHOTS` names.
async fn check(site: &mut Site, name: &str) {
    assert_eq!(site.ask("document.documentElement.lang").await, "de", "{name}");
    assert_eq!(site.ask("document.documentElement.scrollWidth <= innerWidth").await, true, "{name} is too wide");
    site.until("document.querySelector('img.logo').naturalWidth > 0").await;
    let english = "/\\b(the|your|sign|and|with)\\b/i.exec(document.querySelector('main').innerText.replace(/.*Angaben für.*/, ''))?.[0] ?? ''";
    assert_eq!(site.ask(english).await, "", "{name} is not in German");
    if let Some(folder) = std::env::var_os("TOLLGATE_SCREENSHOTS") {
        for (scheme, width) in [("dark", 375), ("light", 375), ("light", 1280), ("dark", 1280)] {
            look(site, scheme, width).await;
            let all = json!({ "captureBeyondViewport": true });
            let picture = site.browser.call("Page.captureScreenshot", all).await;
            let picture = STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
            let file = format!("{name}-{scheme}-{width}.png");
            std::fs::write(std::path::Path::new(&folder).join(file), picture).unwrap();
        }
        look(site, "dark", 375).await;
    }
}

/// Sets the color scheme and the screen width of the browser.
async fn look(site: &mut Site, scheme: &str, width: u32) {
    let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    site.browser.call("Emulation.setEmulatedMedia", scheme).await;
    let screen = json!({ "width": width, "height": 812, "deviceScaleFactor": 1, "mobile": width < 600 });
    site.browser.call("Emulation.setDeviceMetricsOverride", screen).await;
}

#[tokio::test]
async fn all_pages_are_german_on_a_dark_phone() {
    let pages = Pages::new()
        .logo("Acme", LOGO)
        .colors(Colors::new().accent("#0b6b43"))
        .dark_colors(Colors::new().accent("#7ddcae"))
        .texts(Language::German, [("login.title", "Willkommen")]);
    let Some(mut site) =
        Site::with("german", |service, _| service.pages(pages).tokens(Tokens::new()), Router::new()).await
    else {
        return;
    };
    let agent = site.ask("navigator.userAgent").await;
    let german = json!({ "userAgent": agent, "acceptLanguage": "de-DE,de" });
    site.browser.call("Network.setUserAgentOverride", german).await;
    look(&mut site, "dark", 375).await;

    // a login of two steps, of which the first fails once
    site.log_in("mfa").await;
    site.until("shown('who') && idle()").await;
    assert_eq!(site.ask("document.title").await, "Willkommen bei Expenses");
    assert_eq!(site.ask("getComputedStyle(document.querySelector('main')).borderTopColor").await, "rgb(125, 220, 174)");
    check(&mut site, "name").await;
    site.focus("identifier").await;
    site.enter(ADA).await;
    site.until("shown('choose') && idle()").await;
    check(&mut site, "choose").await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter("wrong").await;
    site.until("text('message') === 'Der Name oder das Passwort ist falsch.' && idle()").await;
    check(&mut site, "password").await;
    assert_eq!(site.browser.complaints().len(), 1, "the 401 of the wrong password");
    site.focus("secret").await;
    site.enter(ADA_PASSWORD).await;
    site.until("shown('choose') && text('step') === 'Schritt 2 von 2' && idle()").await;
    check(&mut site, "second-step").await;
    site.press_button("email").await;
    site.until("shown('code') && idle()").await;
    check(&mut site, "code").await;
    let code = site.world.code(ADA).await;
    assert_eq!(site.world.outbox.messages().last().unwrap().language(), Language::German);
    site.focus("otp").await;
    site.enter(&code).await;
    site.until("location.pathname === '/callback'").await;

    let origin = site.origin.clone();
    site.browser.open(&format!("{origin}/account/security")).await;
    site.until("shown('who') || shown('going') || shown('all')").await;
    if site.ask("location.pathname !== '/account/security'").await == true {
        site.focus("identifier").await;
        site.enter(ADA).await;
        site.until("shown('choose') && idle()").await;
        site.press_button("password").await;
        site.focus("secret").await;
        site.enter(ADA_PASSWORD).await;
    }
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    check(&mut site, "account").await;

    site.browser.open(&format!("{origin}/logout")).await;
    site.until("document.querySelector('h1')?.textContent === 'Möchten Sie sich abmelden?'").await;
    check(&mut site, "logout").await;
    assert_eq!(site.browser.complaints(), [""; 0]);
    site.browser.open(&format!("{origin}/authorize?client_id=nobody")).await;
    site.until("document.querySelector('h1')?.textContent === 'Die Anmeldung kann nicht fortgesetzt werden'").await;
    check(&mut site, "error").await;
    let complaints = site.browser.complaints();
    assert!(complaints.iter().all(|line| line.contains("status of 400")), "{complaints:?}");
}
