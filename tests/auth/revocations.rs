//! Everything that ends sessions, logins, codes and tokens, and everything that must not.

use std::time::Duration;

use http::Request;
use tollgate::{
    Passwords, Secret, Session, Sessions,
    clock::UnixTime,
    event::{EventKind, Query},
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::{
    controlled_store::ControlledStore,
    five_tenants::{TENANTS, hashed, mailbox, node, tenant, user, world, world_with},
    issued_tokens::{IssuedTokens, all_are, claims},
    special_worlds::put_keys,
    world::{ADA, ADA_PASSWORD, Answer, Browser, GRACE, GRACE_PASSWORD, ISSUER, World, form_of, posted},
};

const AS_ADA: (&str, &str) = (ADA, ADA_PASSWORD);
const AS_GRACE: (&str, &str) = (GRACE, GRACE_PASSWORD);
const NEW_ADDRESS: &str = "ada.king@example.com";

/// Logs in by password and returns the tokens.
async fn tokens(world: &World, browser: &mut Browser, client: &str, scope: &str) -> IssuedTokens {
    let code = browser.sign_in_as(world, client, AS_ADA, None, &[("scope", scope)]).await;
    IssuedTokens::of(&browser.redeem(client, &code).await)
}

/// Returns the tokens of a silent sign-in.
async fn silent_tokens(browser: &mut Browser, client: &str) -> IssuedTokens {
    let code = browser.silently(client).await.unwrap();
    IssuedTokens::of(&browser.redeem(client, &code).await)
}

fn is_login_required(answer: &Answer) -> bool {
    answer.redirected("error").as_deref() == Some("login_required")
}

/// Returns the session of a browser at acme.
async fn session_of(world: &World, browser: &Browser) -> Session {
    let acme = tenant("acme");
    let sid = world.seen(Some(&acme), browser).await.unwrap();
    world.sessions_of(&acme, "u-ada").await.into_iter().find(|session| session.sid().to_string() == sid).unwrap()
}

async fn confirm_logout(browser: &mut Browser, client: &str) -> Answer {
    let request = posted("/logout").header("sec-fetch-site", "same-origin").header("origin", ISSUER);
    browser.send(request.header("accept", "text/html"), form_of(&[("client_id", client), ("confirmed", "yes")])).await
}

async fn log_out(browser: &mut Browser, hint: &str) -> Answer {
    browser.send(Request::get(format!("/logout?id_token_hint={hint}")).header("accept", "text/html"), "").await
}

fn is_done(answer: &Answer) -> bool {
    answer.status == 200 && answer.text.contains("<h1>You are logged out</h1>")
}

fn asks(answer: &Answer) -> bool {
    answer.status == 200 && answer.text.contains("<h1>Log out?</h1>")
}

/// Steps up the session of a browser to two steps, and returns the tokens.
async fn step_up(world: &World, browser: &mut Browser, address: &str) -> IssuedTokens {
    let login = browser.begin("acme-bank", &[]).await;
    assert_eq!((&login.started["required_steps"], &login.started["next_step"]), (&2.into(), &2.into()));
    assert_eq!(browser.prove_mailbox(world, &login, address).await.status, 200);
    let code = browser.finish(&login).await.unwrap();
    IssuedTokens::of(&browser.redeem("acme-bank", &code).await)
}

#[tokio::test]
async fn c118_a_session_cookie_with_a_wrong_secret_is_ignored_and_changes_nothing() {
    let (world, acme) = (world().await, tenant("acme"));
    let mut browser = world.browser();
    let issued = tokens(&world, &mut browser, "acme-web", "openid").await;
    let cookie = world.cookie_of(&acme);
    let (sid, secret) = browser.cookies[&cookie].split_once('.').unwrap();
    assert_eq!(claims(issued.id())["sid"], sid, "tokens contain the sid");
    let before = world.sessions_of(&acme, "u-ada").await.remove(0);
    // use is recorded once a minute
    world.advance(61);
    let other = Secret::generate().expose().to_owned();
    for value in [format!("{sid}.{other}"), format!("{sid}."), sid.to_owned(), format!("{sid}{secret}")] {
        let mut thief = world.browser();
        let restore = |thief: &mut Browser| drop(thief.cookies.insert(cookie.clone(), value.clone()));
        restore(&mut thief);
        assert_eq!(world.seen(Some(&acme), &thief).await, None);
        assert!(is_login_required(&thief.silently("acme-shop").await.unwrap_err()));
        assert_eq!(thief.begin("acme-bank", &[]).await.started["next_step"], 1);
        restore(&mut thief);
        assert!(is_done(&confirm_logout(&mut thief, "acme-web").await));
        restore(&mut thief);
        // a sign-in with this cookie begins a new session
        thief.sign_in_as(&world, "acme-web", AS_GRACE, None, &[]).await;
        assert!(!thief.cookies[&cookie].starts_with(sid));
    }
    let after = world.sessions_of(&acme, "u-ada").await.remove(0);
    assert_eq!(after.last_use(), before.last_use());
    assert_eq!(world.seen(Some(&acme), &browser).await.as_deref(), Some(sid));
    all_are(true, &world, "acme-web", &issued).await;
    world.log.flush();
    assert!(!world.log.read_events(&Query::new().kind(EventKind::SessionWrongSecret)).events.is_empty());
}

#[tokio::test]
async fn c119_ending_a_user_works_on_all_nodes_even_if_their_clocks_differ() {
    for seconds in [-20, 0, 20] {
        let store = AnyStore::from(Memory::new());
        put_keys(&store).await;
        let world = node(store.clone(), ManualClock::new(), |service| service).await;
        let clock = ManualClock::new();
        clock.set_wall(UnixTime::from_secs(world.time().as_secs().saturating_add_signed(seconds)));
        let other = node(store, clock, |service| service).await;
        let acme = tenant("acme");

        let mut browser = world.browser();
        let issued = tokens(&world, &mut browser, "acme-web", "openid").await;
        let offline = tokens(&world, &mut world.browser(), "acme-web", "openid offline_access").await;
        let open = [
            world.browser().sign_in_as(&world, "acme-web", AS_ADA, None, &[]).await,
            world.browser().sign_in_as(&world, "acme-web", AS_ADA, None, &[("scope", "openid offline_access")]).await,
            browser.silently("acme-shop").await.unwrap(),
        ];
        let [mut unproved, mut half, mut done, mut asked] = [(); 4].map(|()| world.browser());
        let unproved_login = unproved.begin("acme-web", &[("identifier", ADA)]).await;
        let half_login = half.begin("acme-two", &[("identifier", ADA)]).await;
        assert_eq!(half.prove_password(&half_login, ADA, ADA_PASSWORD).await.status, 200);
        let done_login = done.begin("acme-web", &[("identifier", ADA)]).await;
        assert_eq!(done.prove_password(&done_login, ADA, ADA_PASSWORD).await.status, 200);
        assert_eq!(done.step(&done_login, "complete", &[]).await.status, 200);
        let asked_login = asked.begin("acme-web", &[("identifier", ADA)]).await;
        let sent = asked.step(&asked_login, "authenticate", &[("method", "email"), ("email", ADA)]).await;
        assert_eq!(sent.status, 200);
        let mailed = world.code(ADA).await;
        let carried_login = browser.begin("acme-bank", &[]).await;
        let of_grace = {
            let code = world.browser().sign_in_as(&world, "acme-web", AS_GRACE, None, &[]).await;
            IssuedTokens::of(&browser.redeem("acme-web", &code).await)
        };

        let count = other.service.end_user(&acme, &user("u-ada")).await.unwrap();
        assert_eq!(count, 4, "sessions");

        for node in [&world, &other] {
            for browser in [&mut browser, &mut unproved, &mut half, &mut done, &mut asked] {
                browser.service = node.service.clone();
            }
            assert_eq!(node.sessions_of(&acme, "u-ada").await.len(), 0);
            assert_eq!(node.seen(Some(&acme), &browser).await, None);
            assert!(is_login_required(&browser.silently("acme-shop").await.unwrap_err()));
            for issued in [&issued, &offline] {
                all_are(false, node, "acme-web", issued).await;
                assert_eq!(browser.refresh("acme-web", issued.refresh()).await.error(), "invalid_grant");
            }
            for (client, code) in [("acme-web", &open[0]), ("acme-web", &open[1]), ("acme-shop", &open[2])] {
                assert_eq!(browser.redeem(client, code).await.error(), "invalid_grant", "{seconds}");
            }
            // steps proved before no longer count, and neither do steps proved in that login now
            unproved.prove_password(&unproved_login, ADA, ADA_PASSWORD).await;
            half.prove_mailbox(&world, &half_login, ADA).await;
            asked.step(&asked_login, "verify-otp", &[("otp", &mailed)]).await;
            browser.prove_mailbox(&world, &carried_login, ADA).await;
            for (browser, login) in [
                (&mut unproved, &unproved_login),
                (&mut half, &half_login),
                (&mut done, &done_login),
                (&mut asked, &asked_login),
                (&mut browser, &carried_login),
            ] {
                assert_eq!(browser.finish(login).await.unwrap_err().redirected("code"), None, "{seconds}");
            }
            // introspection is used because a layer would refuse tokens from the future
            assert_eq!(browser.introspect("acme-web", &of_grace.access).await["active"], true);
        }
        all_are(true, &world, "acme-web", &of_grace).await;
        assert_eq!(world.sessions_of(&acme, "u-ada").await.len(), 0);

        // a login that begins at the very same moment works on both nodes
        let mut fresh = world.browser();
        let code = fresh.sign_in_as(&world, "acme-web", AS_ADA, None, &[]).await;
        let again = IssuedTokens::of(&fresh.redeem("acme-web", &code).await);
        for node in [&world, &other] {
            fresh.service = node.service.clone();
            assert_eq!(fresh.introspect("acme-web", &again.access).await["active"], true);
            assert_eq!(fresh.with_token("/userinfo", &again.access).await.status, 200);
            assert!(fresh.silently("acme-shop").await.is_ok(), "{seconds}");
        }
    }
}

#[tokio::test]
async fn c120_a_new_password_ends_what_only_the_old_one_proved() {
    let (world, acme) = (world().await, tenant("acme"));
    let mut browser = world.browser();
    let by_password = tokens(&world, &mut browser, "acme-web", "openid").await;
    let offline = tokens(&world, &mut world.browser(), "acme-web", "openid offline_access").await;
    let by_both = step_up(&world, &mut browser, ADA).await;
    let open = browser.silently("acme-shop").await.unwrap();
    let alone = world.browser().sign_in_as(&world, "acme-web", AS_ADA, None, &[]).await;
    let sid = world.seen(Some(&acme), &browser).await.unwrap();
    let mut other = world.browser();
    tokens(&world, &mut other, "acme-web", "openid").await;

    world.change_password(&acme, "u-ada", "another one entirely").await;

    // the session keeps the proof of the mailbox, which is enough for one step but not for two
    let silent = silent_tokens(&mut browser, "acme-shop").await;
    assert_eq!(claims(silent.id())["amr"], serde_json::json!(["otp"]));
    assert!(is_login_required(&browser.silently("acme-bank").await.unwrap_err()));
    assert_eq!(world.seen(Some(&acme), &browser).await, Some(sid));
    all_are(true, &world, "acme-bank", &by_both).await;
    assert_eq!(browser.redeem("acme-shop", &open).await.status, 200);
    // everything that relied only on the password has ended
    assert_eq!(browser.redeem("acme-web", &alone).await.error(), "invalid_grant");
    for issued in [&by_password, &offline] {
        assert_eq!(browser.refresh("acme-web", issued.refresh()).await.error(), "invalid_grant");
        all_are(false, &world, "acme-web", issued).await;
    }
    assert!(is_login_required(&other.silently("acme-shop").await.unwrap_err()));
    assert_eq!(world.seen(Some(&acme), &other).await, None, "the session ended when its account was read");
    // the missing step can be proved with the new password
    let login = browser.begin("acme-bank", &[]).await;
    assert_eq!((&login.started["next_step"], &login.started["available_methods"][0]), (&2.into(), &"password".into()));
    assert_eq!(browser.prove_password(&login, ADA, "another one entirely").await.status, 200);
    browser.finish(&login).await.unwrap();
    assert!(browser.silently("acme-bank").await.is_ok());
}

#[tokio::test]
async fn c120_a_changed_contact_ends_what_only_the_old_one_proved() {
    let (world, acme) = (world().await, tenant("acme"));
    let mut browser = world.browser();
    let by_password = tokens(&world, &mut browser, "acme-web", "openid").await;
    let by_both = step_up(&world, &mut browser, ADA).await;
    world.advance(31);
    let mut by_mail = world.browser();
    let login = by_mail.begin("acme-web", &[("identifier", ADA)]).await;
    assert_eq!(by_mail.prove_mailbox(&world, &login, ADA).await.status, 200);
    let code = by_mail.finish(&login).await.unwrap();
    let mailed = IssuedTokens::of(&by_mail.redeem("acme-web", &code).await);
    // adding a contact ends nothing
    world.users.verify_contact(&acme, &user("u-ada"), mailbox(NEW_ADDRESS)).await.unwrap();
    all_are(true, &world, "acme-web", &mailed).await;
    assert!(browser.silently("acme-bank").await.is_ok());

    world.users.remove_contact(&acme, &user("u-ada"), &mailbox(ADA)).await.unwrap();

    assert_eq!(browser.refresh("acme-web", mailed.refresh()).await.error(), "invalid_grant");
    all_are(false, &world, "acme-web", &mailed).await;
    assert!(is_login_required(&by_mail.silently("acme-shop").await.unwrap_err()));
    assert_eq!(world.seen(Some(&acme), &by_mail).await, None);
    all_are(true, &world, "acme-web", &by_password).await;
    all_are(true, &world, "acme-bank", &by_both).await;
    let silent = silent_tokens(&mut browser, "acme-shop").await;
    assert_eq!(claims(silent.id())["amr"], serde_json::json!(["pwd"]));
    assert!(is_login_required(&browser.silently("acme-bank").await.unwrap_err()));
    assert_eq!(step_up(&world, &mut browser, NEW_ADDRESS).await.scope, "openid");
}

#[tokio::test]
async fn c120_sessions_end_at_once_if_the_application_reports_a_change() {
    let (world, acme) = (world().await, tenant("acme"));
    let (mut one, mut two) = (world.browser(), world.browser());
    tokens(&world, &mut one, "acme-web", "openid").await;
    tokens(&world, &mut two, "acme-web", "openid").await;
    step_up(&world, &mut two, ADA).await;
    let end_changed = async || world.service.credential_changed(&acme, &user("u-ada")).await.unwrap();
    assert_eq!(end_changed().await, 0, "nothing has changed");
    world.change_password(&acme, "u-ada", "another one entirely").await;
    // until then, a layer does not read the account
    assert!(world.seen(Some(&acme), &one).await.is_some());
    assert_eq!(end_changed().await, 1);
    assert_eq!(world.seen(Some(&acme), &one).await, None);
    assert!(world.seen(Some(&acme), &two).await.is_some());
    world.change_contact(&acme, "u-ada", ADA, NEW_ADDRESS).await;
    assert_eq!(end_changed().await, 1);
    assert_eq!(world.seen(Some(&acme), &two).await, None);
}

#[tokio::test]
async fn c120_a_sign_in_that_overlaps_a_change_leaves_no_session_of_the_old_password() {
    let (acme, ada) = (tenant("acme"), user("u-ada"));
    let wait = async |rounds| {
        for _ in 0..rounds {
            tokio::task::yield_now().await;
        }
    };
    let mut ended = Vec::new();
    for delay in 0..60 {
        let store = ControlledStore::default();
        put_keys(&store.clone().into()).await;
        let world = node(store.clone().into(), ManualClock::new(), |service| service).await;
        let mut thief = world.browser();
        let login = thief.begin("acme-web", &[("identifier", ADA)]).await;
        assert_eq!(thief.prove_password(&login, ADA, ADA_PASSWORD).await.status, 200);
        assert_eq!(thief.step(&login, "complete", &[]).await.status, 200);
        let new = hashed("another one entirely").await;
        store.yields();
        let (changed, code) = tokio::join!(
            async {
                wait(30).await;
                world.users.set_password(&acme, &ada, Some(new)).await.unwrap();
                world.service.credential_changed(&acme, &ada).await.unwrap()
            },
            async {
                wait(delay).await;
                thief.return_of(&login).await
            }
        );
        assert_eq!(world.seen(Some(&acme), &thief).await, None, "{delay}");
        assert!(world.sessions_of(&acme, "u-ada").await.is_empty(), "{delay}");
        ended.push((code.is_ok(), changed));
    }
    // the session was there before the change, was noticed by the sign-in, and never began
    assert!(ended.contains(&(true, 1)) && ended.contains(&(false, 0)), "{ended:?}");
}

#[tokio::test]
async fn c120_an_outdated_login_does_not_end_a_newer_session_of_its_browser() {
    let (world, acme) = (world().await, tenant("acme"));
    let mut browser = world.browser();
    let old = browser.begin("acme-web", &[("identifier", ADA)]).await;
    assert_eq!(browser.prove_password(&old, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(browser.step(&old, "complete", &[]).await.status, 200);
    world.change_password(&acme, "u-ada", "another one entirely").await;
    browser.sign_in_as(&world, "acme-shop", (ADA, "another one entirely"), None, &[]).await;
    let session = world.seen(Some(&acme), &browser).await;
    assert!(session.is_some());
    let denied = browser.return_of(&old).await.unwrap_err();
    assert_eq!(denied.redirected("error").as_deref(), Some("access_denied"), "{denied:?}");
    assert_eq!(world.seen(Some(&acme), &browser).await, session);
}

#[tokio::test]
async fn c120_a_hash_upgrade_ends_nothing() {
    let world = world().await;
    let mut browser = world.browser();
    let issued = tokens(&world, &mut browser, "acme-web", "openid").await;
    let open = browser.silently("acme-shop").await.unwrap();
    let mut half = world.browser();
    let login = half.begin("acme-two", &[("identifier", ADA)]).await;
    assert_eq!(half.prove_password(&login, ADA, ADA_PASSWORD).await.status, 200);

    // a node with stricter settings upgrades the hash
    let strong = |service: tollgate::auth::AuthServiceBuilder| service.passwords(Passwords::new());
    let strong = node(world.store.clone(), world.clock.clone(), strong).await;
    let stored = async || {
        let account = tollgate::Users::by_id(&world.users, &tenant("acme"), &user("u-ada")).await.unwrap().unwrap();
        account.password_hash().unwrap().as_str().to_owned()
    };
    let before = stored().await;
    strong.browser().sign_in_as(&strong, "acme-web", AS_ADA, None, &[]).await;
    assert_ne!(stored().await, before);

    all_are(true, &world, "acme-web", &issued).await;
    assert_eq!(browser.redeem("acme-shop", &open).await.status, 200);
    assert_eq!(browser.refresh("acme-web", issued.refresh()).await.status, 200);
    assert!(browser.silently("acme-shop").await.is_ok());
    assert_eq!(half.prove_mailbox(&world, &login, ADA).await.status, 200);
    let code = half.finish(&login).await.unwrap();
    assert_eq!(half.redeem("acme-two", &code).await.status, 200);
}

#[tokio::test]
async fn c119_after_a_revocation_no_code_is_issued_that_would_be_refused() {
    let acme = tenant("acme");
    for way in ["user", "sid", "others", "session", "service"] {
        let world = world().await;
        let (mut browser, mut other) = (world.browser(), world.browser());
        let issued = tokens(&world, &mut browser, "acme-web", "openid").await;
        tokens(&world, &mut other, "acme-web", "openid").await;
        let (early, carried) = (browser.silently("acme-shop").await.unwrap(), browser.begin("acme-bank", &[]).await);
        let sessions: &Sessions = &world.sessions;
        let (own, others) = (session_of(&world, &browser).await, session_of(&world, &other).await);
        match way {
            "user" => assert_eq!(sessions.revoke_user(&acme, &user("u-ada")).await.unwrap(), 2),
            "sid" => assert!(sessions.revoke_sid(&own.sid()).await.unwrap()),
            "others" => assert_eq!(sessions.revoke_others(&others).await.unwrap(), 1),
            "session" => sessions.revoke(&own).await.unwrap(),
            _ => assert!(world.service.end_session(&own.sid()).await.unwrap()),
        }
        assert!(is_login_required(&browser.silently("acme-shop").await.unwrap_err()), "{way}");
        assert_eq!(browser.redeem("acme-shop", &early).await.error(), "invalid_grant", "{way}");
        assert_eq!(browser.refresh("acme-web", issued.refresh()).await.error(), "invalid_grant", "{way}");
        all_are(false, &world, "acme-web", &issued).await;
        // a login carried over from that session cannot go on either
        browser.prove_mailbox(&world, &carried, ADA).await;
        assert_eq!(browser.finish(&carried).await.unwrap_err().redirected("code"), None, "{way}");
        assert_eq!(browser.begin("acme-bank", &[]).await.started["next_step"], 1, "{way}");
        assert_eq!(other.silently("acme-shop").await.is_ok(), way != "user", "{way}");
        // a new sign-in gets codes that can be redeemed, even in the same second
        let again = tokens(&world, &mut browser, "acme-web", "openid").await;
        silent_tokens(&mut browser, "acme-shop").await;
        all_are(true, &world, "acme-web", &again).await;
    }
}

#[tokio::test]
async fn c121_a_second_tenant_keeps_the_first_session_and_a_fifth_ends_the_oldest() {
    let world = world().await;
    let tenants = TENANTS.map(tenant);
    for of in &tenants[1..] {
        world.create(of, &format!("u-{of}"), "ada", ADA, ADA_PASSWORD).await;
    }
    let mut browser = world.browser();
    let mut all = Vec::new();
    for of in &tenants {
        world.advance(1);
        let client = format!("{of}-web");
        let code = browser.sign_in_as(&world, &client, ("ada", ADA_PASSWORD), None, &[]).await;
        let issued = IssuedTokens::of(&browser.redeem(&client, &code).await);
        all.push((of.clone(), client, issued));
        let oldest = all.len().saturating_sub(4);
        for (at, (of, client, issued)) in all.iter().enumerate() {
            let lives = at >= oldest;
            all_are(lives, &world, client, issued).await;
            assert_eq!(world.seen(Some(of), &browser).await.is_some(), lives, "{of}");
            assert_eq!(browser.cookies.contains_key(&world.cookie_of(of)), lives, "{of}");
            assert_eq!(browser.silently(&format!("{of}-shop")).await.is_ok(), lives, "{of}");
        }
        // a layer without a tenant never picks one of several sessions
        assert_eq!(world.seen(None, &browser).await.is_some(), all.len() == 1);
    }
    // signing out of one tenant keeps the other sessions
    assert!(is_done(&log_out(&mut browser, all[2].2.id()).await));
    for (at, (of, client, issued)) in all.iter().enumerate() {
        all_are(at != 0 && at != 2, &world, client, issued).await;
        assert_eq!(world.seen(Some(of), &browser).await.is_some(), at != 0 && at != 2, "{of}");
    }
}

#[tokio::test]
async fn c121_another_user_at_the_same_tenant_ends_the_session_and_its_tokens() {
    let (world, acme) = (world().await, tenant("acme"));
    let mut browser = world.browser();
    let first = tokens(&world, &mut browser, "acme-web", "openid").await;
    let second = step_up(&world, &mut browser, ADA).await;
    let open = browser.silently("acme-shop").await.unwrap();
    let mut elsewhere = world.browser();
    let kept = tokens(&world, &mut elsewhere, "acme-web", "openid").await;
    let old = browser.cookies[&world.cookie_of(&acme)].clone();

    let code = browser.sign_in_as(&world, "acme-web", AS_GRACE, None, &[]).await;
    let of_grace = IssuedTokens::of(&browser.redeem("acme-web", &code).await);

    all_are(false, &world, "acme-web", &first).await;
    all_are(false, &world, "acme-bank", &second).await;
    assert_eq!(browser.redeem("acme-shop", &open).await.error(), "invalid_grant");
    for (client, issued) in [("acme-web", &first), ("acme-bank", &second)] {
        assert_eq!(browser.refresh(client, issued.refresh()).await.error(), "invalid_grant");
    }
    all_are(true, &world, "acme-web", &of_grace).await;
    all_are(true, &world, "acme-web", &kept).await;
    assert_eq!(claims(silent_tokens(&mut browser, "acme-shop").await.id())["sub"], "u-grace");
    let mut thief = world.browser();
    thief.cookies.insert(world.cookie_of(&acme), old);
    assert_eq!(world.seen(Some(&acme), &thief).await, None);
    assert_eq!(world.sessions_of(&acme, "u-ada").await.len(), 1);
}

#[tokio::test]
async fn an_id_token_from_before_a_step_up_still_ends_its_session() {
    let (world, acme) = (world().await, tenant("acme"));
    for rotates in [false, true] {
        let mut browser = world.browser();
        let first = tokens(&world, &mut browser, "acme-web", "openid").await;
        world.advance(31);
        let second = step_up(&world, &mut browser, ADA).await;
        if rotates {
            let session = world.sessions_of(&acme, "u-ada").await.pop().unwrap();
            let (cookie, _) = world.sessions.rotate(&session).await.unwrap().unwrap();
            let value = cookie.header_value().to_str().unwrap().split([';', '=']).nth(1).unwrap().to_owned();
            browser.cookies.insert(world.cookie_of(&acme), value);
        }
        let third = tokens(&world, &mut browser, "acme-web", "openid").await;
        let fourth = silent_tokens(&mut browser, "acme-shop").await;
        let sids = [&first, &second, &third, &fourth].map(|issued| claims(issued.id())["sid"].to_string());
        assert!(sids.windows(2).all(|pair| pair[0] == pair[1]), "{sids:?}");
        assert!(is_done(&log_out(&mut browser, first.id()).await));
        assert!(!browser.cookies.contains_key(&world.cookie_of(&acme)));
        for (client, issued) in
            [("acme-web", &first), ("acme-bank", &second), ("acme-web", &third), ("acme-shop", &fourth)]
        {
            all_are(false, &world, client, issued).await;
            assert_eq!(browser.refresh(client, issued.refresh()).await.error(), "invalid_grant");
        }
        assert_eq!(world.sessions_of(&acme, "u-ada").await.len(), 0);
    }
}

#[tokio::test]
async fn no_page_confirms_a_logout_while_the_browser_still_has_a_session() {
    let (world, acme) = (world().await, tenant("acme"));
    let mut browser = world.browser();
    let before = tokens(&world, &mut browser, "acme-web", "openid").await;
    let session = world.sessions_of(&acme, "u-ada").await.remove(0);
    world.sessions.revoke(&session).await.unwrap();
    let now = tokens(&world, &mut browser, "acme-web", "openid").await;
    assert_ne!(claims(before.id())["sid"], claims(now.id())["sid"]);

    // the token names an ended session, but the browser has another one
    assert!(asks(&log_out(&mut browser, before.id()).await));
    // browsers withhold cookies from a form of another site, but send them with the redirect that follows
    let session = browser.cookies.clone();
    browser.cookies.clear();
    let request = posted("/logout").header("sec-fetch-site", "cross-site").header("origin", "https://app.example");
    let fields = [("id_token_hint", before.id()), ("client_id", "acme-web"), ("state", "a b")];
    let answer = browser.send(request.header("accept", "text/html"), form_of(&fields)).await;
    let location = "/logout?client_id=acme-web&state=a%20b";
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, location), "{answer:?}");
    browser.cookies = session;
    assert!(asks(&browser.send(Request::get(answer.header("location")).header("accept", "text/html"), "").await));
    all_are(true, &world, "acme-web", &now).await;
    // the session of the token ends even if the request has no cookies
    let mut bare = world.browser();
    let request = posted("/logout").header("sec-fetch-site", "cross-site").header("origin", "https://app.example");
    let answer = bare.send(request, form_of(&[("id_token_hint", now.id())])).await;
    assert_eq!(answer.status, 303);
    all_are(false, &world, "acme-web", &now).await;
    let answer = browser.send(Request::get(answer.header("location")).header("accept", "text/html"), "").await;
    assert!(is_done(&answer), "{answer:?}");
}

#[tokio::test]
async fn c109_remembered_sessions_last_30_days_or_24_hours_after_two_steps() {
    const HOUR: u64 = 3600;
    let month = Duration::from_secs(30 * 24 * HOUR);
    let (world, acme) = (world_with(|service| service.remember_me(month)).await, tenant("acme"));
    let max_age = |answer: &Answer| {
        let all = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap().to_owned());
        let own = all.filter(|cookie| cookie.starts_with(&world.cookie_of(&acme))).collect::<Vec<_>>();
        assert_eq!(own.len(), 1, "{own:?}");
        own[0].split("; ").find_map(|part| part.strip_prefix("Max-Age=")).map(|age| age.parse::<u64>().unwrap())
    };
    let sign_in = async |client: &str, remember: Option<bool>| {
        world.advance(31);
        let mut browser = world.browser();
        let login = browser.begin_remembered(client, remember).await;
        assert_eq!(browser.prove_password(&login, ADA, ADA_PASSWORD).await.status, 200);
        if client == "acme-two" {
            assert_eq!(browser.prove_mailbox(&world, &login, ADA).await.status, 200);
        }
        assert_eq!(browser.step(&login, "complete", &[]).await.status, 200);
        let answer = browser.return_whole(&login).await;
        assert!(answer.redirected("code").is_some(), "{answer:?}");
        (browser, max_age(&answer))
    };
    for (client, remember, expected, hours) in [
        ("acme-web", Some(true), Some(30 * 24 * HOUR), 30 * 24),
        ("acme-two", Some(true), Some(24 * HOUR), 24),
        ("acme-web", Some(false), None, 1),
        ("acme-web", None, None, 1),
    ] {
        let (browser, age) = sign_in(client, remember).await;
        assert_eq!(age, expected, "{client} {remember:?}");
        assert!(world.seen(Some(&acme), &browser).await.is_some());
        world.advance(hours * HOUR - 1);
        assert!(world.seen(Some(&acme), &browser).await.is_some(), "{client} {remember:?}");
        world.advance(if expected.is_some() { 1 } else { HOUR });
        assert_eq!(world.seen(Some(&acme), &browser).await, None, "{client} {remember:?}");
    }
    // without the operator's setting, the choice has no effect
    let plain = crate::five_tenants::world().await;
    let mut browser = plain.browser();
    let login = browser.begin_remembered("acme-web", Some(true)).await;
    assert_eq!(browser.prove_password(&login, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(browser.step(&login, "complete", &[]).await.status, 200);
    assert_eq!(max_age(&browser.return_whole(&login).await), None);
}
