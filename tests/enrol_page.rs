//! How users with one factor set up a second one on the login page, in a real browser.

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

use site::{COUNTS, IGNORES_SUGGESTIONS, Site};
use tollgate::{
    Tenant,
    clock::UnixTime,
    store::{Key, Record},
};

const WHY: &str = "You need a second step to sign in here, and you have none yet. Set one up now. From then on, each sign-in here needs it.";

/// A user with only a password has proved it, in a login of two steps.
async fn half(name: &str) -> Option<Site> {
    let mut site = Site::new(name).await?;
    site.create_lone().await;
    site.run_first(COUNTS).await;
    site.log_in("mfa").await;
    site.prove_password_of("lone").await;
    site.until("shown('choose') && text('step') === 'Step 2 of 2' && idle()").await;
    site.reset_counts().await;
    Some(site)
}

#[tokio::test]
async fn b09_a_user_with_only_a_password_sets_up_an_app_and_is_signed_in() {
    let Some(mut site) = half("enrol-app").await else { return };
    assert_eq!(site.texts("#choice, #ways button").await, [WHY, "Set up a passkey", "Set up an authenticator app"]);
    site.press_button("app").await;
    site.focus("app-code").await;
    assert_eq!(site.ask("document.querySelector('#app-qr svg').getBoundingClientRect().width > 100").await, true);
    site.enter("000000").await;
    site.says("The code is wrong. Enter the code that the app shows now.").await;
    site.focus("app-code").await;
    // a reload begins again, with another key
    let old = site.texts("#app-secret").await;
    site.browser.reload().await;
    site.press_button("app").await;
    site.focus("app-code").await;
    assert_ne!(site.texts("#app-secret").await, old);
    site.reset_counts().await;
    // another way, and back again
    site.press_button("other").await;
    site.press_button("app").await;
    site.focus("app-code").await;
    let now = site.world.time().as_secs();
    let code = site.app_code("app-secret", now).await;
    let next = site.app_code("app-secret", now + 30).await;
    site.enter(&code).await;
    site.comes_back().await;

    // from now on, the app is the second step
    site.world.advance(30);
    site.log_in("mfa").await;
    site.prove_password_of("lone").await;
    site.focus("otp").await;
    site.enter(&next).await;
    site.comes_back().await;
}

#[tokio::test]
async fn b09_setting_up_an_app_takes_two_buttons_and_one_field() {
    let Some(mut site) = half("enrol-app-counts").await else { return };
    site.run_first("addEventListener('pagehide', () => { document.cookie = `counts=${['buttons', 'fields'].map((name) => sessionStorage.getItem(name))}; path=/`; });").await;
    site.press_button("app").await;
    site.focus("app-code").await;
    let code = site.app_code("app-secret", site.world.time().as_secs()).await;
    site.enter(&code).await;
    site.comes_back().await;
    assert_eq!(site.counts().await, (2, 1));
    assert_eq!(site.browser.complaints(), [""; 0]);
}

#[tokio::test]
async fn b09_setting_up_a_passkey_takes_one_button() {
    let Some(mut site) = half("enrol-passkey").await else { return };
    let device = site.browser.add_authenticator("internal").await;
    // the user cancels at first
    site.browser.set_user_verified(&device, false).await;
    site.browser.set_present(&device, true).await;
    site.press_button("newkey").await;
    site.until("shown('newkey-recovery')").await;
    assert!(site.texts("#newkey p").await[0].ends_with("From then on, each sign-in here needs the passkey."));
    site.says("No passkey was set up. Please try again.").await;
    site.browser.set_user_verified(&device, true).await;
    site.reset_counts().await;
    site.browser.press("Enter").await;
    site.comes_back().await;
    assert_eq!(site.counts().await, (1, 0));
    assert_eq!(site.browser.passkeys(&device).await.len(), 1);
    site.browser.set_present(&device, false).await;
    site.use_passkey("web", &device).await;
    site.comes_back().await;
}

#[tokio::test]
async fn b09_users_who_take_too_long_sign_in_again_and_set_it_up_then() {
    let Some(mut site) = half("enrol-late").await else { return };
    site.press_button("app").await;
    site.focus("app-code").await;
    site.world.advance(301);
    site.enter("123456").await;
    site.says("Please sign in again, so that you can set up a second step.").await;
    site.focus("identifier").await;
    assert_eq!(site.ask("document.getElementById('identifier').value").await, "lone");
    site.browser.press("Enter").await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter(world::ADA_PASSWORD).await;
    site.press_button("app").await;
    site.focus("app-code").await;
    let code = site.app_code("app-secret", site.world.time().as_secs()).await;
    site.enter(&code).await;
    site.comes_back().await;
}

#[tokio::test]
async fn b09_a_session_whose_proof_is_old_is_asked_to_sign_in_again() {
    let Some(mut site) = Site::new("enrol-stale").await else { return };
    site.create_lone().await;
    site.browser.open(&format!("{}/account/security", site.origin)).await;
    site.prove_password_of("lone").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    site.world.advance(301);
    site.browser.open(&format!("{}/sign-in?return_to=%2Faccount%2Fsecurity&steps=2", site.origin)).await;
    site.says("Please sign in again, so that you can set up a second step.").await;
    site.prove_password_of("lone").await;
    site.press_button("app").await;
    site.focus("app-code").await;
    let code = site.app_code("app-secret", site.world.time().as_secs()).await;
    site.enter(&code).await;
    site.until("location.pathname === '/account/security' && shown('recovery-create') && idle()").await;
    // both were proved just now
    site.press_button("recovery-create").await;
    site.focus("codes-copy").await;
}

/// Makes the passkey of `lone` one that counts in logins of one step only.
async fn weaken(site: &Site) {
    let key = Key::new("credentials", Some(&Tenant::parse("acme").unwrap()), b"u-lone").unwrap();
    let entry = site.world.store.take(&key).await.unwrap().unwrap();
    let mut row: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
    row["passkeys"][0]["strength"]["steps"] = serde_json::json!(1);
    let record = Record::new(row.to_string(), site.world.time(), UnixTime::from_nanos(u64::MAX)).unwrap();
    drop(site.world.store.insert(&key, record).await.unwrap());
}

#[tokio::test]
async fn b09_a_user_whose_passkey_is_too_weak_proves_it_on_the_account_page_and_sets_up_an_app() {
    let Some(mut site) = Site::new("enrol-weak").await else { return };
    site.create_lone().await;
    let device = site.browser.add_authenticator("internal").await;
    site.run_first(IGNORES_SUGGESTIONS).await;
    site.browser.open(&format!("{}/account/security", site.origin)).await;
    site.prove_password_of("lone").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    site.enrol(&device).await;
    weaken(&site).await;
    site.world.advance(301);

    // there is nothing that a login of two steps would accept, and the page says what helps
    site.log_in("mfa").await;
    site.prove_password_of("lone").await;
    site.says(
        "You need a second step to sign in here. Your passkey or authenticator app cannot be that step, because it was set up \
         without one. On your account page, sign in with it and with your password or a code, and set up another one.",
    )
    .await;
    assert_eq!(site.texts("#again button").await, ["Go to your account page"]);
    site.browser.press("Enter").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;

    // the passkey alone is not enough
    site.press_button("totp-begin").await;
    site.focus("identifier").await;
    site.browser.set_present(&device, true).await;
    site.press_button("with-passkey").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    site.browser.set_present(&device, false).await;
    site.says(
        "That was not enough. First sign in with your password or a code, then confirm with your passkey or app.",
    )
    .await;
    site.press_button("totp-begin").await;
    site.prove_password_of("lone").await;
    site.until("shown('key') && idle()").await;
    site.browser.set_present(&device, true).await;
    site.browser.press("Enter").await;
    site.until("location.pathname === '/account/security' && shown('totp-setup') && idle()").await;
    site.browser.set_present(&device, false).await;
    site.focus("totp-code").await;
    let now = site.world.time().as_secs();
    let (code, next) = (site.app_code("totp-secret", now).await, site.app_code("totp-secret", now + 30).await);
    site.enter(&code).await;
    site.focus("recovery-create").await;

    site.world.advance(30);
    site.log_in("mfa").await;
    site.prove_password_of("lone").await;
    site.focus("otp").await;
    site.enter(&next).await;
    site.comes_back().await;
}
