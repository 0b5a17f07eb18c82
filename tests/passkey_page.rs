//! Passkeys on the login page, in a real browser with virtual authenticators.

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

use serde_json::{Value, json};
use site::{IGNORES_SUGGESTIONS, Site};
use world::ADA_PASSWORD;

/// A site, and an authenticator that has a passkey of Ada.
async fn enrolled(name: &str) -> Option<(Site, String)> {
    let mut site = Site::new(name).await?;
    let device = site.browser.add_authenticator("internal").await;
    site.open_account().await;
    site.enrol(&device).await;
    Some((site, device))
}

const REFUSED: &str = "The passkey was not accepted.";

#[tokio::test]
async fn a_passkey_is_enrolled_and_used_with_the_button() {
    let Some((mut site, device)) = enrolled("passkey-button").await else { return };
    let passkeys = site.browser.passkeys(&device).await;
    assert_eq!(passkeys.len(), 1);
    assert_eq!((&passkeys[0]["rpId"], &passkeys[0]["isResidentCredential"]), (&json!("localhost"), &json!(true)));
    assert!(!passkeys[0].to_string().contains("u-ada"), "the user handle is the user id");
    site.use_passkey("web", &device).await;
    site.comes_back().await;
    assert_eq!(site.ask("document.cookie.includes('aborted=yes')").await, true, "the suggestion went on");
    assert_eq!(site.browser.complaints(), [""; 0]);
}

#[tokio::test]
async fn a_passkey_is_suggested_in_the_field_for_the_name() {
    let Some((mut site, device)) = enrolled("passkey-suggested").await else { return };
    site.browser.set_present(&device, true).await;
    site.log_in("web").await;
    site.comes_back().await;
}

/// Records the calls of the page.
const RECORD: &str = "
const send = fetch;
window.sent = [];
window.fetch = async (url, options) => {
  if (options.method === 'POST') sent.push(new URL(url).pathname.split('/').pop());
  const answer = await send(url, options);
  document.body.dataset.answered = sent.join();
  return answer;
};";

#[tokio::test]
async fn a_visit_starts_one_login_at_most_and_only_if_the_browser_suggests_passkeys() {
    let Some((mut site, _)) = enrolled("passkey-visit").await else { return };
    site.run_first(RECORD).await;
    site.log_in("web").await;
    site.focus("identifier").await;
    assert_eq!(site.ask("sent").await, json!(["start"]));
    // after a reload, the login is used again
    site.until("document.body.dataset.answered").await;
    site.browser.reload().await;
    site.focus("identifier").await;
    assert_eq!(site.ask("sent").await, json!(["authenticate"]));
    // a typed name ends the suggestion
    site.enter(world::ADA).await;
    site.until("shown('choose') && idle()").await;
    assert_eq!(site.ask("sent").await, json!(["authenticate", "start"]));
    site.press_button("restart").await;

    site.run_first("PublicKeyCredential.isConditionalMediationAvailable = async () => false").await;
    site.log_in("web").await;
    site.focus("identifier").await;
    assert_eq!(site.ask("sent").await, json!([]));
    assert_eq!(site.texts("#quick button").await, ["Sign in with a passkey"]);
}

#[tokio::test]
async fn browsers_without_passkeys_show_no_button_for_them() {
    let Some((mut site, _)) = enrolled("passkey-none").await else { return };
    site.run_first("delete globalThis.PublicKeyCredential").await;
    site.log_in("web").await;
    site.focus("identifier").await;
    assert_eq!(site.texts("#who button").await, ["Continue"]);
    site.enter(world::ADA).await;
    site.until("shown('choose') && idle()").await;
    assert_eq!(site.texts("#ways button").await, ["Password", "Code by text message", "Code by e-mail"]);
}

#[tokio::test]
async fn after_a_passkey_without_a_name_the_second_step_is_chosen_from_masked_addresses() {
    let Some((mut site, device)) = enrolled("passkey-first").await else { return };
    site.use_passkey("mfa", &device).await;
    site.until("text('step') === 'Step 2 of 2' && shown('choose') && idle()").await;
    let offered = site.texts("#ways button").await;
    assert!(offered.contains(&"Password".to_owned()), "{offered:?}");
    let masked = offered.iter().find(|text| text.starts_with("Code by e-mail to ")).unwrap();
    assert!(masked.contains('•') && masked.ends_with("@example.com"), "{masked}");
    assert!(!offered.iter().any(|text| text.contains("Passkey")), "{offered:?}");
    assert!(!site.ask("document.documentElement.outerHTML").await.to_string().contains(world::ADA));

    site.press_button("email").await;
    site.focus("otp").await;
    let sent = site.texts("#sent").await;
    assert!(sent[0].starts_with("We have sent a code of 6 digits to ") && sent[0].contains('•'), "{sent:?}");
    // another method, and back again
    site.press_button("other").await;
    site.press_button("password").await;
    // the name is not known on this page
    site.focus("username").await;
    site.browser.insert(world::ADA).await;
    site.browser.press("Tab").await;
    site.focus("secret").await;
    site.enter(ADA_PASSWORD).await;
    site.comes_back().await;
}

#[tokio::test]
async fn a_passkey_is_the_second_step_after_a_password() {
    let Some((mut site, device)) = enrolled("passkey-second").await else { return };
    site.log_in("mfa").await;
    site.prove_password().await;
    // the user has a passkey, so there is no choice
    site.until("text('step') === 'Step 2 of 2' && shown('key') && idle()").await;
    assert_eq!(site.texts("button").await, ["Use a passkey", "Start again"]);
    // the user cancels at first
    site.browser.set_user_verified(&device, false).await;
    site.browser.set_present(&device, true).await;
    site.browser.press("Enter").await;
    site.says("No passkey was used. Try again, or sign in another way.").await;
    site.browser.set_user_verified(&device, true).await;
    site.browser.press("Enter").await;
    site.comes_back().await;
}

/// Calls `navigator.credentials.get` on the current page.
async fn assertion(site: &mut Site, options: &Value) -> Value {
    let get = format!(
        "navigator.credentials.get({{ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON({options}) }})
             .then((passkey) => passkey.toJSON())"
    );
    site.ask(&get).await
}

#[tokio::test]
async fn a_passkey_that_was_used_at_another_origin_is_refused() {
    let Some((mut site, device)) = enrolled("passkey-origin").await else { return };
    // the same host, so the browser lets the other origin use the passkey
    for (origin, expected) in [(site.foreign.clone(), 401), (site.origin.clone(), 200)] {
        site.log_in("web").await;
        site.focus("identifier").await;
        let query = site.ask("location.search").await;
        let call = |path: &str, more: Value| {
            format!(
                "fetch('/authentication/{path}', {{
                    method: 'POST', headers: {{ 'content-type': 'application/json' }},
                    body: JSON.stringify({{ ...Object.fromEntries(new URLSearchParams({query})), ...{more} }}),
                }}).then(async (response) => ({{ status: response.status, ...await response.json() }}))"
            )
        };
        let started = site.ask(&call("start", json!({}))).await;
        let options = &started["challenges"]["passkey"];
        site.browser.open(&origin).await;
        site.until("document.title === 'Empty'").await;
        site.browser.set_present(&device, true).await;
        let response = assertion(&mut site, options).await;
        site.browser.set_present(&device, false).await;
        site.browser.open(&site.origin.clone()).await;
        site.until("document.title === 'Empty'").await;
        let proof = json!({
            "session_id": started["session_id"], "method": "passkey", "challenge": options["challenge"],
            "response": response,
        });
        let answer = site.ask(&call("authenticate", proof)).await;
        assert_eq!(answer["status"] == "success", expected == 200, "{origin}: {answer}");
        assert_eq!(answer["error"] == "invalid_assertion", expected == 401, "{origin}: {answer}");
    }
}

#[tokio::test]
async fn a_deleted_passkey_is_refused_and_the_user_signs_in_another_way() {
    let Some((mut site, device)) = enrolled("passkey-deleted").await else { return };
    site.ask("document.querySelector('#passkeys button.danger').focus()").await;
    site.browser.press("Enter").await;
    site.press_button("yes").await;
    site.until("text('done') === 'The passkey was deleted.' && idle()").await;
    assert_eq!(site.texts("#passkeys li").await, [""; 0]);

    site.use_passkey("web", &device).await;
    site.says(REFUSED).await;
    assert_eq!(site.browser.complaints().len(), 1, "one refused request");
    site.ask("document.getElementById('identifier').focus()").await;
    site.prove_password().await;
    site.comes_back().await;
}

#[tokio::test]
async fn a_cloned_passkey_is_refused() {
    let Some((mut site, device)) = enrolled("passkey-cloned").await else { return };
    let clone = site.browser.passkeys(&device).await.remove(0);
    for _ in 0..2 {
        site.use_passkey("web", &device).await;
        site.comes_back().await;
    }
    let original = site.browser.passkeys(&device).await.remove(0);
    assert!(original["signCount"].as_u64() > clone["signCount"].as_u64(), "{original}");
    site.browser.set_passkey(&device, &clone).await;
    site.use_passkey("web", &device).await;
    site.says(REFUSED).await;
    site.browser.set_passkey(&device, &original).await;
    site.use_passkey("web", &device).await;
    site.comes_back().await;
}

#[tokio::test]
async fn two_devices_have_a_passkey_each() {
    let Some((mut site, phone)) = enrolled("passkey-devices").await else { return };
    // the options exclude the first one
    site.browser.set_present(&phone, true).await;
    site.press_button("add-passkey").await;
    site.says("This device already has a passkey for your account.").await;
    site.browser.set_present(&phone, false).await;

    let key = site.browser.add_authenticator("usb").await;
    site.enrol(&key).await;
    assert_eq!(site.ask("document.querySelectorAll('#passkeys li').length").await, 2);
    for device in [&phone, &key] {
        assert_eq!(site.browser.passkeys(device).await.len(), 1);
        site.use_passkey("web", device).await;
        site.comes_back().await;
    }
}

#[tokio::test]
async fn an_expired_challenge_is_replaced() {
    let Some((mut site, device)) = enrolled("passkey-expired").await else { return };
    site.run_first(IGNORES_SUGGESTIONS).await;
    site.run_first(RECORD).await;
    site.log_in("web").await;
    site.until("document.body.dataset.answered === 'start' && idle()").await;
    // the page does not notice, as after a night in standby
    site.world.advance(6 * 60);
    site.browser.set_present(&device, true).await;
    site.press_button("with-passkey").await;
    site.says("That took too long. Please try again.").await;
    site.press_button("with-passkey").await;
    site.comes_back().await;
}
