//! The example with its own login page, in a real browser.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use serde_json::json;
use support::{
    chromium::{Chromium, TOTP},
    example::Example,
};

async fn enter(browser: &mut Browser, field: &str, text: &str) {
    browser.until(&format!("document.getElementById('{field}')?.getClientRects().length")).await;
    browser.ask(&format!("document.getElementById('{field}').focus()")).await.unwrap();
    browser.insert(text).await;
}

type Browser = Chromium;

async fn sign_in(browser: &mut Browser) {
    enter(browser, "name", "ada").await;
    enter(browser, "password", "correct horse battery staple").await;
    browser.press("Enter").await;
}

#[tokio::test]
async fn b18_a_step_up_through_a_page_of_ones_own_finishes_and_the_page_shows_its_image() {
    let Some(mut browser) = Chromium::start("own-pages").await else { return };
    let mut example = Example::start("own_pages", &["127.0.0.1:0"]).await;
    let origin = example.origin.replace("127.0.0.1", "localhost");
    let origin = if example.origin.contains("localhost") { origin } else { example.origin.clone() };
    browser.open(&format!("{origin}/")).await;
    browser.until("document.querySelector('img')?.naturalWidth > 0").await;
    sign_in(&mut browser).await;
    browser.until("document.querySelector('h1')?.textContent === 'Hello u-1'").await;

    // a fresh sign-in of two steps
    browser.open(&format!("{origin}/account/security")).await;
    browser.until("document.getElementById('totp-begin')?.getClientRects().length && !document.body.ariaBusy").await;
    browser.click("#totp-begin").await;
    sign_in(&mut browser).await;
    let line = example.line().await;
    let (code, _) = line.strip_prefix("ada@example.com: ").unwrap().split_once(" is your code").unwrap();
    enter(&mut browser, "code", "000000").await;
    browser.press("Enter").await;
    browser.until("document.getElementById('message')?.textContent === 'Wrong code.'").await;
    browser.ask("document.getElementById('code').value = ''").await.unwrap();
    enter(&mut browser, "code", code).await;
    browser.press("Enter").await;
    browser.until("document.getElementById('totp-setup')?.getClientRects().length").await;

    // b08: the next sign-in needs the app, which the page offers
    browser.until("document.getElementById('totp-secret')?.textContent").await;
    let codes = browser
        .ask(&format!("Promise.all([0, 30].map((more) => {TOTP}('totp-secret', Date.now() / 1000 + more)))"))
        .await;
    let codes = codes.unwrap();
    enter(&mut browser, "totp-code", codes[0].as_str().unwrap()).await;
    browser.press("Enter").await;
    browser.until("document.getElementById('done')?.textContent.startsWith('The authenticator app was set up.')").await;
    browser.call("Network.clearBrowserCookies", json!({})).await;
    browser.open(&format!("{origin}/")).await;
    browser.until("document.querySelector('img')?.naturalWidth > 0 && document.readyState === 'complete'").await;
    sign_in(&mut browser).await;
    browser.until("document.getElementById('from')?.textContent.includes('authenticator app')").await;
    enter(&mut browser, "code", codes[1].as_str().unwrap()).await;
    browser.press("Enter").await;
    browser.until("document.querySelector('h1')?.textContent === 'Hello u-1'").await;
    let complaints = browser.complaints();
    let is_expected = |line: &String| line.contains("401") || line.contains("403");
    assert!(complaints.iter().all(is_expected), "{}", json!(complaints));
}
