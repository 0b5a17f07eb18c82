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
use site::{COUNTS, Site};
use tollgate::user::PhoneNumber;
use world::{ADA, ADA_PASSWORD};

/// Presses `Add a passkey`, and does what the pages ask for until the passkey is added. Returns the number of buttons that were
/// pressed after the first one, and of fields that were filled in.
async fn add_passkey(site: &mut Site) -> (u64, u64) {
    let form =
        "['who', 'choose', 'password', 'address', 'code'].find((id) => document.forms[id]?.getClientRects().length)";
    let is_added = "text('done').startsWith('The passkey was added.')";
    site.reset_counts().await;
    site.press_button("add-passkey").await;
    loop {
        site.until(&format!("idle() && ({form} || {is_added})")).await;
        let Some(form) = site.ask(form).await.as_str().map(str::to_owned) else { break };
        match &*form {
            "who" => {
                site.focus("identifier").await;
                site.enter(ADA).await;
            }
            "choose" => {
                let email = site.ask("Boolean(document.querySelector('#ways button[value=email]'))").await == true;
                site.press_button(if email { "email" } else { "password" }).await;
            }
            "password" => {
                site.focus("secret").await;
                site.enter(ADA_PASSWORD).await;
            }
            "address" => {
                site.focus("to").await;
                site.enter(ADA).await;
            }
            _ => {
                site.focus("otp").await;
                let code = site.world.code(ADA).await;
                site.enter(&code).await;
            }
        }
        site.until(&format!("!document.getElementById('{form}')?.getClientRects().length")).await;
    }
    let (buttons, fields) = site.counts().await;
    (buttons - 1, fields)
}

/// Opens the account page, and signs in by password alone.
async fn sign_in_by_password(site: &mut Site) {
    let page = format!("{}/account/security", site.origin);
    site.browser.open(&page).await;
    site.prove_password().await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
}

#[tokio::test]
async fn b10_after_a_password_a_passkey_takes_two_buttons_and_one_field_more() {
    let Some(mut site) = Site::new("account-step-up").await else { return };
    let device = site.browser.add_authenticator("internal").await;
    site.browser.set_present(&device, true).await;
    site.run_first(COUNTS).await;
    sign_in_by_password(&mut site).await;
    assert_eq!(site.texts("#user").await, ["Signed in as ada"]);
    let asks = "Once you have a passkey or an authenticator app, each sign-in asks for it.";
    assert_eq!(site.texts("#second").await, [asks]);
    assert_eq!(site.texts("#recovery-create.quiet").await, ["Create codes"]);
    assert_eq!(add_passkey(&mut site).await, (2, 1));
    assert_eq!(site.texts("#second").await, [""; 0]);
    assert_eq!(site.texts("#recovery-create").await, ["Create codes"]);
    assert_eq!(site.texts("#recovery-create.quiet").await, [""; 0]);
    let added = site.texts("#passkeys li").await;
    assert!(added.len() == 1 && added[0].contains("never used"), "{added:?}");
    // the proofs are fresh now
    let other = site.browser.add_authenticator("usb").await;
    site.browser.set_present(&device, false).await;
    site.browser.set_present(&other, true).await;
    assert_eq!(add_passkey(&mut site).await, (0, 0));
    assert_eq!(site.browser.complaints(), ["\"Failed to load resource: the server responded with a status of 403 (Forbidden)\" \"{}/account/passkeys/options\"".replace("{}", &site.origin)]);
}

#[tokio::test]
async fn b10_a_change_needs_fresh_proofs_and_continues_with_the_button() {
    let Some(mut site) = Site::new("account-fresh").await else { return };
    let device = site.browser.add_authenticator("internal").await;
    site.browser.set_present(&device, true).await;
    sign_in_by_password(&mut site).await;
    site.world.advance(6 * 60);
    site.press_button("add-passkey").await;
    site.until("shown('choose') && idle()").await;
    assert_eq!(
        site.texts("h1, #user, #step").await,
        ["Step 1 of 2", "Confirm that it is you", "Signed in as ada. Please confirm this change."]
    );
    let offered = ["Password", "Code by text message to +•••••••••00", "Code by e-mail to a•••@example.com"];
    assert_eq!(site.texts("#ways button").await, offered);
    assert_eq!(site.texts("#ways-out button").await, ["Use another account", "Cancel"]);
    // a cancelled one changes nothing, and does not begin again
    site.press_button("cancel").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    assert_eq!(site.texts("#done").await, [""; 0]);
    site.press_button("add-passkey").await;
    site.press_button("password").await;
    site.focus("secret").await;
    assert_eq!(site.ask("document.getElementById('username').readOnly").await, true);
    // a reload loses nothing
    site.browser.reload().await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter("wrong").await;
    site.says("The password is wrong.").await;
    site.enter(ADA_PASSWORD).await;
    site.press_button("email").await;
    site.focus("otp").await;
    let code = site.world.code(ADA).await;
    site.enter(&code).await;
    site.until(
        "location.pathname === '/account/security' && text('done').startsWith('The passkey was added.') && idle()",
    )
    .await;
    // it is the first factor that a sign-in asks for, so the page suggests recovery codes
    site.focus("recovery-create").await;

    // renaming needs no fresh proofs
    site.world.advance(6 * 60);
    site.ask("document.querySelector('#passkeys button').focus()").await;
    site.browser.press("Enter").await;
    site.until("document.activeElement.tagName === 'INPUT'").await;
    site.enter("My <b>phone</b>").await;
    site.until("text('done') === 'The passkey was renamed.' && idle()").await;
    assert_eq!(site.texts("#passkeys strong").await, ["My <b>phone</b>"]);
    // deleting does, and asks once
    site.ask("document.querySelector('#passkeys .danger').focus()").await;
    site.browser.press("Enter").await;
    site.until("document.activeElement.id === 'no'").await;
    let middle = "(({ top, bottom }) => Math.abs(top + bottom - innerHeight) < 4)(document.getElementById('ask').getBoundingClientRect())";
    assert_eq!(site.ask(middle).await, true);
    site.press_button("yes").await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter(ADA_PASSWORD).await;
    // the account has a passkey now, so the user needs it
    site.until("shown('key') && idle()").await;
    site.browser.press("Enter").await;
    site.until("location.pathname === '/account/security' && text('done') === 'The passkey was deleted.' && idle()")
        .await;

    // the login page says once that the session has ended
    site.browser.call("Network.clearBrowserCookies", json!({})).await;
    site.press_button("totp-begin").await;
    site.says("Your session has ended. Please sign in again.").await;
    site.focus("identifier").await;
    site.browser.reload().await;
    site.focus("identifier").await;
    assert_eq!(site.texts("#message").await, [""; 0]);
}

#[tokio::test]
async fn an_address_is_changed_after_one_confirmation_that_does_not_use_the_old_one() {
    const NEW: &str = "lovelace@example.com";
    let Some(mut site) = Site::new("account-address-step-up").await else { return };
    sign_in_by_password(&mut site).await;
    site.tab_to("#contacts button").await;
    // the only other way
    site.focus("otp").await;
    assert_eq!(site.texts("#step").await, ["Step 2 of 2"]);
    let code = site.world.code(world::ADA_PHONE).await;
    site.enter(&code).await;
    site.until("location.pathname === '/account/security'").await;
    site.focus("contact-value").await;

    // the proofs get too old meanwhile
    site.world.advance(6 * 60);
    site.enter(NEW).await;
    site.until("location.pathname === '/authentication/start' && shown('choose') && idle()").await;
    assert_eq!(site.texts("#ways button").await, ["Password", "Code by text message to +•••••••••00"]);
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter(ADA_PASSWORD).await;
    site.focus("otp").await;
    let code = site.world.code(world::ADA_PHONE).await;
    site.enter(&code).await;
    site.until("location.pathname === '/account/security'").await;
    site.focus("contact-value").await;
    assert_eq!(site.ask("document.activeElement.value").await, NEW);
    site.browser.press("Enter").await;
    site.focus("contact-code").await;
    let code = site.world.code(NEW).await;
    site.enter(&code).await;
    site.until("text('done') === 'The new contact is confirmed. Messages go there from now on.' && idle()").await;
    assert_eq!(site.texts("#contacts strong").await[0], "E-mail l•••@example.com");

    // nothing of it is left for the next change
    site.tab_to("#contacts button").await;
    site.focus("contact-value").await;
    assert_eq!(site.ask("document.activeElement.value").await, "");
}

#[tokio::test]
async fn b10_another_user_who_signs_in_instead_continues_nothing() {
    let Some(mut site) = Site::new("account-other-user").await else { return };
    sign_in_by_password(&mut site).await;
    site.press_button("totp-begin").await;
    site.press_button("restart").await;
    site.focus("identifier").await;
    assert_eq!(site.texts("h1, #user").await, ["Sign in"]);
    site.enter(world::GRACE).await;
    site.press_button("password").await;
    site.focus("secret").await;
    site.enter(world::GRACE_PASSWORD).await;
    site.press_button("email").await;
    site.focus("otp").await;
    let code = site.world.code(world::GRACE).await;
    site.enter(&code).await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    assert_eq!(site.texts("#user, #done").await, ["Signed in as grace"]);
    site.until("!shown('totp-setup')").await;
}

#[tokio::test]
async fn b10_a_sign_in_for_something_else_does_not_speak_of_a_change_that_was_abandoned() {
    let Some(mut site) = Site::new("account-abandoned").await else { return };
    sign_in_by_password(&mut site).await;
    site.press_button("totp-begin").await;
    site.until("shown('choose') && idle()").await;
    assert_eq!(site.texts("#user").await, ["Signed in as ada. Please confirm this change."]);
    site.world.advance(6 * 60);
    site.browser.open(&format!("{}/sign-in?return_to=%2F&max_age=299&steps=2", site.origin)).await;
    site.until("shown('choose') && idle()").await;
    assert_eq!(site.texts("#user, #ways-out button").await, ["Signed in as ada.", "Use another account"]);
    assert_eq!(site.ask("Object.keys(sessionStorage).filter((key) => key.startsWith('account ')).length").await, 0);
}

#[tokio::test]
async fn b10_a_choice_of_one_is_skipped() {
    let Some(mut site) = Site::new("account-one-contact").await else { return };
    let (acme, ada) = ("acme".parse().unwrap(), "u-ada".parse().unwrap());
    let phone = PhoneNumber::parse(world::ADA_PHONE).unwrap();
    site.world.users.remove_contact(&acme, &ada, &phone.into()).await.unwrap();
    site.run_first(COUNTS).await;
    let device = site.browser.add_authenticator("internal").await;
    site.browser.set_present(&device, true).await;
    sign_in_by_password(&mut site).await;
    assert_eq!(add_passkey(&mut site).await, (1, 1));
    // a link of somebody else sends no message
    site.world.advance(6 * 60);
    let sent = site.world.outbox.messages().len();
    sign_in_link(&mut site).await;
    site.press_button("password").await;
    site.focus("secret").await;
    assert_eq!(site.world.outbox.messages().len(), sent);
}

/// Opens a link to a sign-in that needs two fresh proofs.
async fn sign_in_link(site: &mut Site) {
    let link = format!("{}/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=2", site.origin);
    site.browser.open(&link).await;
    site.until("shown('choose') && idle()").await;
}

#[tokio::test]
async fn b19_passkeys_have_different_names_and_a_name_of_spaces_is_refused_with_a_reason() {
    let Some(mut site) = Site::new("account-names").await else { return };
    site.open_account().await;
    for kind in ["internal", "usb"] {
        let device = site.browser.add_authenticator(kind).await;
        site.enrol(&device).await;
    }
    let names = site.texts("#passkeys strong").await;
    assert!(names[0].contains("Chrom") && names[0].ends_with(" on Linux"), "{names:?}");
    assert_eq!(names[1], format!("{} (2)", names[0]));
    site.ask("document.querySelector('#passkeys button').focus()").await;
    site.browser.press("Enter").await;
    site.until("document.activeElement.tagName === 'INPUT'").await;
    site.enter("   ").await;
    site.says("Enter a name of 1 to 64 characters, not only spaces.").await;
    site.until("document.activeElement.tagName === 'INPUT'").await;
    site.enter("Laptop").await;
    site.until("text('done') === 'The passkey was renamed.' && idle()").await;
    assert_eq!(site.texts("#passkeys strong").await[0], "Laptop");

    // the dialog does not lead to the destructive button
    site.ask("document.querySelector('#passkeys .danger').focus()").await;
    site.browser.press("Enter").await;
    site.until("document.activeElement.textContent === 'Cancel'").await;
    site.browser.press("Enter").await;
    site.until("!shown('question') && idle()").await;
    assert_eq!(site.texts("#passkeys strong").await.len(), 2);
}

#[tokio::test]
async fn b19_an_authenticator_app_and_recovery_codes_are_set_up_and_used_as_the_second_step() {
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
    let code = site.app_code("totp-secret", now).await;
    let next = site.app_code("totp-secret", now + 30).await;
    site.ask("document.getElementById('totp-code').focus()").await;
    site.enter(&code).await;
    // b19: the page suggests what helps users who lose their app
    site.until("text('done').startsWith('The authenticator app was set up. Create recovery codes now') && idle()")
        .await;
    assert_eq!(site.texts("#totp-begin, #totp-delete").await, ["Replace", "Remove"]);
    site.focus("recovery-create").await;
    site.browser.press("Enter").await;
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
    for (way, code, wrong) in [
        ("totp", &*next, "The code is wrong. Enter the code that the app shows now."),
        ("recovery_code", codes[0].trim(), "The recovery code is wrong or has been used already."),
    ] {
        site.log_in("mfa").await;
        site.prove_password().await;
        site.focus("otp").await;
        assert_eq!(site.texts("#sent").await, ["Enter the code that your authenticator app shows."]);
        if way == "recovery_code" {
            site.press_button("other").await;
            assert_eq!(site.texts("#ways button").await, ["Authenticator app", "Recovery code"]);
            assert_eq!(site.texts("#lost").await, [""; 0]);
            site.press_button(way).await;
            site.focus("otp").await;
        }
        if way == "totp" {
            // one digit less is not sent
            site.enter("99999").await;
            assert_eq!(site.ask("document.getElementById('otp').validity.patternMismatch").await, true);
            site.ask("document.getElementById('otp').select()").await;
        }
        site.enter("999999").await;
        site.says(wrong).await;
        site.enter(code).await;
        site.comes_back().await;
    }

    site.browser.open(&format!("{}/account/security", site.origin)).await;
    site.until("text('done') === 'You signed in with a recovery code. 9 of 10 are left.' && idle()").await;
    site.press_button("totp-delete").await;
    let last =
        "Remove the authenticator app? Its codes then stop working, and your password alone may be enough to sign in.";
    assert_eq!(site.texts("#question").await, [last]);
    site.press_button("no").await;

    // a wait that one code has caused is explained at the other one
    site.log_in("mfa").await;
    site.prove_password().await;
    site.focus("otp").await;
    let refusal = "{ error: 'too_many_attempts', retry_after: 29 }";
    site.ask(&format!("globalThis.fetch = async () => new Response(JSON.stringify({refusal}), {{ status: 429 }})"))
        .await;
    site.enter("999999").await;
    const WAITS: &str = "text('message').startsWith('There were too many attempts. You can try again in ')";
    site.until(WAITS).await;
    site.press_button("other").await;
    site.press_button("recovery_code").await;
    site.until(&format!("text('sent').includes('recovery codes') && {WAITS} && idle()")).await;
}

#[tokio::test]
async fn b08_c131_an_app_costs_one_field_and_one_button_more_than_a_password() {
    let Some(mut site) = Site::new("account-second-factor").await else { return };
    site.run_first(COUNTS).await;
    site.log_in("web").await;
    site.prove_password().await;
    site.comes_back().await;
    // the application's page has the same origin
    let (buttons, fields) = site.counts().await;
    assert_eq!((buttons, fields), (3, 2));

    site.open_account().await;
    site.press_button("totp-begin").await;
    site.focus("totp-code").await;
    let now = site.world.time().as_secs();
    let (code, next) = (site.app_code("totp-secret", now).await, site.app_code("totp-secret", now + 30).await);
    site.enter(&code).await;
    site.until("text('done').startsWith('The authenticator app was set up.') && idle()").await;
    // the session that has set it up goes on
    site.browser.reload().await;
    site.until("shown('all') && idle()").await;
    site.reset_counts().await;
    site.world.advance(30);
    site.log_in("web").await;
    site.prove_password().await;
    site.until("text('step') === 'Step 2 of 2' && shown('code') && idle()").await;
    site.focus("otp").await;
    assert_eq!(site.texts("#sent").await, ["Enter the code that your authenticator app shows."]);
    let visible = site.texts("button").await;
    assert_eq!(visible, ["Continue", "Start again"], "no choice of one");
    assert_eq!(site.texts("#lost").await.len(), 1, "users who have lost the app find help");
    // a reload loses nothing
    site.browser.reload().await;
    site.focus("otp").await;
    site.enter(&next).await;
    site.comes_back().await;
    assert_eq!(site.counts().await, (buttons + 1, fields + 1));
    assert_eq!(site.browser.complaints(), [""; 0]);
}

#[tokio::test]
async fn b09_a_user_with_only_a_password_adds_an_app_and_recovery_codes() {
    let Some(mut site) = Site::new("account-one-factor").await else { return };
    site.create_lone().await;
    site.run_first(COUNTS).await;
    site.browser.open(&format!("{}/account/security", site.origin)).await;
    site.prove_password_of("lone").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    let why = site.texts("#second").await;
    assert!(why[0].starts_with("You have one way to confirm that it is you."), "{why:?}");
    assert!(
        why[0].ends_with("From then on, changes here need both, and each sign-in asks for the new one."),
        "{why:?}"
    );
    site.until("!['totp-delete', 'recovery-create'].some(shown) && shown('add-passkey')").await;
    site.reset_counts().await;
    site.press_button("totp-begin").await;
    site.focus("totp-code").await;
    let code = site.app_code("totp-secret", site.world.time().as_secs()).await;
    site.enter(&code).await;
    site.focus("recovery-create").await;
    assert_eq!(site.counts().await, (2, 1));
    let done = site.texts("#done").await;
    assert!(done[0].starts_with("The authenticator app was set up. Create recovery codes now"), "{done:?}");
    assert!(done[0].ends_with("From now on, each sign-in asks for the app."), "{done:?}");
    assert_eq!(site.texts("#second").await, [""; 0]);
    // the app was proved just now
    site.browser.press("Enter").await;
    site.focus("codes-copy").await;
    assert_eq!(site.texts("#codes li").await.len(), 10);
    assert_eq!(site.counts().await, (3, 1));
    assert_eq!(site.browser.complaints(), [""; 0]);
    // from now on, a change needs it too
    site.world.advance(301);
    site.press_button("codes-done").await;
    site.press_button("totp-delete").await;
    site.press_button("yes").await;
    site.until("location.pathname === '/authentication/start' && shown('password') && idle()").await;
}

#[tokio::test]
async fn b19_recovery_codes_are_suggested_after_the_first_passkey_too() {
    let Some(mut site) = Site::new("account-first-passkey").await else { return };
    site.create_lone().await;
    let device = site.browser.add_authenticator("internal").await;
    site.browser.open(&format!("{}/account/security", site.origin)).await;
    site.prove_password_of("lone").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    site.enrol(&device).await;
    site.focus("recovery-create").await;
    let words = "The passkey was added. You can sign in with it from now on. Create recovery codes now, so that you can sign \
                 in if you lose the passkey. From now on, each sign-in asks for the passkey.";
    assert_eq!(site.texts("#done").await, [words]);
    site.browser.press("Enter").await;
    site.focus("codes-copy").await;
    // another one changes less
    site.press_button("codes-done").await;
    let other = site.browser.add_authenticator("usb").await;
    site.enrol(&other).await;
    assert_eq!(site.texts("#done").await, ["The passkey was added. You can sign in with it from now on."]);
    site.focus("add-passkey").await;
    assert_eq!(site.browser.complaints(), [""; 0]);
}

#[tokio::test]
async fn b08_a_site_that_does_not_ask_for_the_factor_does_not_say_so() {
    let lax = |service: tollgate::auth::AuthServiceBuilder, _: &str| {
        service.policies(tollgate::Policies::new(tollgate::policy::Policy::default().without_enrolled_second_factor()))
    };
    let Some(mut site) = Site::with("account-lax", lax, axum::Router::new()).await else { return };
    site.create_lone().await;
    let device = site.browser.add_authenticator("internal").await;
    site.browser.open(&format!("{}/account/security", site.origin)).await;
    site.prove_password_of("lone").await;
    site.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    assert!(site.texts("#second").await[0].ends_with("From then on, changes here need both."));
    site.enrol(&device).await;
    let words = "The passkey was added. You can sign in with it from now on. Create recovery codes now, so that you can sign \
                 in if you lose the passkey.";
    assert_eq!(site.texts("#done").await, [words]);
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
    assert!(listed[0].contains("Chrom") && listed[0].ends_with("(this one)"), "{listed:?}");
    assert_eq!(site.ask("document.querySelectorAll('[id=\"\"]').length").await, 0);
    site.press_button("end-others").await;
    site.until("text('done') === 'All other devices were signed out.' && idle()").await;
    assert_eq!(site.ask("document.querySelectorAll('#sessions li').length").await, 1);

    site.press_button("sign-out-everywhere").await;
    site.press_button("yes").await;
    // the page asks to sign in again
    site.focus("identifier").await;
    assert_eq!(site.ask("location.pathname").await, json!("/authentication/start"));
    assert_eq!(site.browser.complaints(), [""; 0]);
}
