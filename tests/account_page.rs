//! The account page in a real browser, operated by keyboard.

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

use serde_json::json;
use site::Site;
use tollgate::{NewUser, Password, Passwords};
use world::ADA_PASSWORD;

#[tokio::test]
async fn a_change_needs_a_fresh_sign_in_which_leads_back_to_the_button() {
    let Some(mut site) = Site::new("account-fresh").await else { return };
    let device = site.browser.add_authenticator("internal").await;
    // signed out, so the page leads to the sign-in; one step is enough to see the page
    let page = format!("{}/account/security", site.origin);
    site.browser.open(&page).await;
    site.prove_password().await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    assert_eq!(site.texts("#user").await, ["Signed in as ada"]);

    site.browser.set_present(&device, true).await;
    site.press_button("add-passkey").await;
    site.focus("confirm-go").await;
    assert!(site.texts("#confirm p").await[0].starts_with("To change how you sign in, please sign in again first"));
    site.browser.press("Enter").await;
    site.prove_two_steps().await;
    // the focus is on the button again
    site.until("location.pathname === '/account/security' && document.activeElement.id === 'add-passkey' && idle()")
        .await;
    assert_eq!(site.texts("#done").await, ["Thank you. You can now continue."]);
    site.browser.press("Enter").await;
    site.until("text('done').startsWith('The passkey was added.') && idle()").await;
    let added = site.texts("#passkeys li").await;
    assert!(added.len() == 1 && added[0].contains("never used"), "{added:?}");

    // renaming needs no fresh sign-in
    site.world.advance(6 * 60);
    site.browser.press("Tab").await;
    site.ask("document.querySelector('#passkeys button').focus()").await;
    site.browser.press("Enter").await;
    site.until("document.activeElement.tagName === 'INPUT'").await;
    site.enter("My <b>phone</b>").await;
    site.until("text('done') === 'The passkey was renamed.' && idle()").await;
    assert_eq!(site.texts("#passkeys strong").await, ["My <b>phone</b>"]);
    site.press_button("add-passkey").await;
    site.focus("confirm-go").await;
}

/// Computes the code that an authenticator app shows for the key on the page.
const TOTP: &str = "(async (seconds) => {
    const key = document.getElementById('totp-secret').textContent.replaceAll(' ', '');
    const bits = Array.from(key, (one) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(one).toString(2).padStart(5, '0'));
    const bytes = Uint8Array.from(bits.join('').match(/.{8}/g), (byte) => parseInt(byte, 2));
    const imported = await crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-1' }, false, ['sign']);
    const step = new DataView(new ArrayBuffer(8));
    step.setBigUint64(0, BigInt(Math.floor(seconds / 30)));
    const mac = new DataView(await crypto.subtle.sign('HMAC', imported, step.buffer));
    return String((mac.getUint32(mac.getUint8(19) & 15) & 0x7fffffff) % 1e6).padStart(6, '0');
})";

#[tokio::test]
async fn an_authenticator_app_and_recovery_codes_are_set_up_and_used_as_the_second_step() {
    let Some(mut site) = Site::new("account-totp").await else { return };
    site.open_account().await;
    site.press_button("totp-begin").await;
    site.focus("totp-code").await;
    assert_eq!(site.ask("document.querySelector('#totp-qr svg').getBoundingClientRect().width > 100").await, true);
    let link = site.ask("document.getElementById('totp-link').href").await;
    assert!(link.as_str().unwrap().starts_with("otpauth://totp/"), "{link}");
    site.enter("000000").await;
    site.says("The code is wrong. Enter the code that the app shows now.").await;
    let now = site.world.time().as_secs();
    let code = site.ask(&format!("{TOTP}({now})")).await;
    let next = site.ask(&format!("{TOTP}({})", now + 30)).await;
    site.ask("document.getElementById('totp-code').focus()").await;
    site.enter(code.as_str().unwrap()).await;
    site.until("text('done') === 'The authenticator app was set up.' && idle()").await;
    assert_eq!(site.texts("#totp-begin, #totp-delete").await, ["Replace", "Remove"]);

    site.press_button("recovery-create").await;
    site.focus("codes-copy").await;
    let codes = site.texts("#codes li").await;
    assert_eq!(codes.len(), 10);
    site.press_button("codes-done").await;
    site.focus("recovery-create").await;
    assert!(site.texts("#recovery-state").await[0].starts_with("10 of 10 codes are left."));
    site.browser.reload().await;
    site.until("shown('all') && idle()").await;
    let shown = site.ask("document.documentElement.outerHTML").await.to_string();
    assert!(!codes.iter().any(|code| shown.contains(code.trim())), "a recovery code is shown again");
    assert_eq!(site.browser.complaints().len(), 1, "one refused code");

    site.world.advance(30);
    for (way, code) in [("totp", next.as_str().unwrap()), ("recovery_code", codes[0].trim())] {
        site.log_in("mfa").await;
        site.prove_password().await;
        site.press_button(way).await;
        site.focus("otp").await;
        site.enter("999999").await;
        site.says("The code is wrong or has expired.").await;
        site.enter(code).await;
        site.comes_back().await;
    }
}

#[tokio::test]
async fn users_with_one_factor_learn_why_they_cannot_set_up_codes() {
    let Some(mut site) = Site::new("account-one-factor").await else { return };
    let hash = Passwords::insecure_fast().hash(Password::new(ADA_PASSWORD)).await.unwrap();
    let lone = NewUser::new("u-lone".parse().unwrap(), "lone".parse().unwrap()).password(hash);
    site.world.users.create(&"acme".parse().unwrap(), lone).await.unwrap();
    site.browser.open(&format!("{}/account/security", site.origin)).await;
    site.focus("identifier").await;
    site.enter("lone").await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter(ADA_PASSWORD).await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    let [about] = &site.texts("#totp-state").await[..] else { panic!("the page says nothing about apps") };
    assert!(about.starts_with("Codes are a second step. Your account has only one way to sign in"), "{about}");
    site.until("!['totp-begin', 'totp-delete', 'recovery-create'].some(shown) && shown('add-passkey')").await;
}

#[tokio::test]
async fn other_sessions_are_listed_and_ended() {
    let Some(mut site) = Site::new("account-sessions").await else { return };
    site.open_account().await;
    assert_eq!(site.ask("document.querySelectorAll('#sessions li').length").await, 1);
    // another browser of the same user, after the wait for another code
    site.world.advance(60);
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    site.open_account().await;
    site.until("document.querySelectorAll('#sessions li').length === 2 && idle()").await;
    let listed = site.texts("#sessions strong").await;
    assert!(listed.iter().filter(|name| name.ends_with("(this one)")).count() == 1, "{listed:?}");
    assert!(listed.iter().any(|name| name.contains("Chrom") && name.ends_with("(this one)")), "{listed:?}");
    site.press_button("end-others").await;
    site.until("text('done') === 'All other devices were signed out.' && idle()").await;
    assert_eq!(site.ask("document.querySelectorAll('#sessions li').length").await, 1);

    site.press_button("sign-out-everywhere").await;
    site.focus("yes").await;
    site.browser.press("Enter").await;
    // the page asks to sign in again
    site.focus("identifier").await;
    assert_eq!(site.ask("location.pathname").await, json!("/authentication/start"));
    assert_eq!(site.browser.complaints(), [""; 0]);
}
