//! Sessions whose proofs stop counting, at a site whose policy demands more than what is left.

use serde_json::json;
use tollgate::{
    Client, ClientTable, Policies, Session,
    auth::Totp,
    policy::{Method, Policy},
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::{
    enrolled::{app, enrol},
    five_tenants::{hashed, mailbox, tenant, user},
    issued_tokens::{IssuedTokens, all_are},
    own_account::{ada, call, credentials, enrol_totp, sessions, sign_in, totp},
    special_worlds::{client, put_keys},
    world::{ADA, ADA_PASSWORD, Browser, World, clients},
};

const NEW_PASSWORD: &str = "another one entirely";

/// A site where everybody needs a password, and a code by e-mail or of an app.
fn policies() -> Policies {
    let slots = [Method::Password.into(), Method::Email | Method::Totp | Method::RecoveryCode];
    Policies::default().tenant(tenant("acme"), Policy::slots(slots).unwrap())
}

/// A node of the site, on this store.
async fn node(store: &AnyStore, clock: &ManualClock) -> World {
    let more = |service: tollgate::auth::AuthServiceBuilder| {
        service.first_party(tenant("acme")).totp(Totp::new().name("Acme")).policies(policies())
    };
    World::on(store.clone(), clock.clone(), more).await
}

async fn site() -> World {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    node(&store, &ManualClock::new()).await
}

async fn set_password(world: &World, password: &str) {
    let hash = hashed(password).await;
    world.users.set_password(&tenant("acme"), &user("u-ada"), Some(hash)).await.unwrap();
}

/// Returns how the user of each session signed in, oldest first.
async fn amr(world: &World) -> Vec<String> {
    let all = sessions(world, "u-ada").await;
    all.iter().map(|session| session.amr().collect::<Vec<_>>().join(" ")).collect()
}

/// Returns the session of a browser.
async fn session_of(world: &World, browser: &Browser) -> Session {
    let sid = world.seen(Some(&tenant("acme")), browser).await.unwrap();
    sessions(world, "u-ada").await.into_iter().find(|session| session.sid().to_string() == sid).unwrap()
}

/// Signs in again through a client, and returns its tokens.
async fn tokens(world: &World, browser: &mut Browser) -> IssuedTokens {
    world.advance(31);
    let code = browser.sign_in_as(world, "web", (ADA, ADA_PASSWORD), Some(ADA), &[]).await;
    IssuedTokens::of(&browser.redeem("web", &code).await)
}

/// Returns where `/sign-in` leads: to the site, or to the login page.
async fn signs_in_to(browser: &mut Browser) -> String {
    let answer = browser.get("/sign-in").await;
    assert_eq!(answer.status, 303, "{answer:?}");
    answer.header("location").split('?').next().unwrap().to_owned()
}

#[tokio::test]
async fn b03_c132_a_code_alone_does_not_keep_a_session_where_the_policy_demands_a_password() {
    let (world, acme, id) = (site().await, tenant("acme"), user("u-ada"));
    let (browser, mut other) = (ada(&world).await, ada(&world).await);
    let issued = tokens(&world, &mut other).await;
    assert_eq!(world.service.credential_changed(&acme, &id).await.unwrap(), 0, "nothing has changed");
    set_password(&world, NEW_PASSWORD).await;
    assert_eq!(world.service.credential_changed(&acme, &id).await.unwrap(), 2);
    assert_eq!(amr(&world).await, [""; 0]);
    for browser in [&browser, &other] {
        assert_eq!(world.seen(Some(&acme), browser).await, None);
    }
    all_are(false, &world, "web", &issued).await;
    assert_eq!(signs_in_to(&mut other).await, "/authentication/start");
}

#[tokio::test]
async fn b03_c132_a_change_that_nobody_reports_ends_the_session_at_its_next_use_on_any_node() {
    let (store, clock, acme) = (AnyStore::from(Memory::new()), ManualClock::new(), tenant("acme"));
    put_keys(&store).await;
    let (one, two) = (node(&store, &clock).await, node(&store, &clock).await);
    for way in ["/sign-in", "/account", "/authorize"] {
        set_password(&one, ADA_PASSWORD).await;
        let mut browser = ada(&one).await;
        let issued = tokens(&one, &mut browser).await;
        browser.service = two.service.clone();
        assert_eq!(signs_in_to(&mut browser).await, "/");
        set_password(&one, NEW_PASSWORD).await;
        match way {
            "/sign-in" => assert_eq!(signs_in_to(&mut browser).await, "/authentication/start"),
            "/account" => {
                let answer = call(&mut browser, "recovery-codes", json!({})).await;
                assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "login_required"));
            }
            _ => assert_eq!(browser.authorize("web").await.redirected("code"), None),
        }
        assert_eq!(one.seen(Some(&acme), &browser).await, None, "{way}");
        assert_eq!(amr(&one).await, [""; 0], "{way}");
        assert_eq!(browser.refresh("web", issued.refresh()).await.error(), "invalid_grant", "{way}");
    }
}

#[tokio::test]
async fn b03_c132_a_session_lives_on_while_the_rest_of_its_proofs_meets_the_policy() {
    let (world, acme, id) = (site().await, tenant("acme"), user("u-ada"));
    let browser = sign_in(&world, ADA, &["password", "email"]).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    // the session has not used the app, and the new address proves nothing yet
    enrol(&world, "u-ada", json!({})).await;
    world.users.verify_contact(&acme, &id, mailbox("ada.king@example.com")).await.unwrap();
    assert_eq!(world.service.credential_changed(&acme, &id).await.unwrap(), 0);
    assert_eq!(amr(&world).await, ["pwd otp mfa"]);
    world.users.remove_contact(&acme, &id, &mailbox(ADA)).await.unwrap();
    assert_eq!(world.service.credential_changed(&acme, &id).await.unwrap(), 1);
    assert_eq!(world.seen(Some(&acme), &browser).await, None);
}

#[tokio::test]
async fn b03_c132_the_session_that_changes_the_password_lives_with_a_proof_of_the_new_one() {
    let (world, acme, id) = (site().await, tenant("acme"), user("u-ada"));
    let (mut browser, other) = (ada(&world).await, ada(&world).await);
    let session = session_of(&world, &browser).await;
    set_password(&world, NEW_PASSWORD).await;
    assert_eq!(world.service.password_changed(&session).await.unwrap(), 1, "the other session");
    assert_eq!(world.seen(Some(&acme), &other).await, None);
    assert_eq!(amr(&world).await, ["pwd otp mfa"]);
    assert_eq!(signs_in_to(&mut browser).await, "/");
    // the proof is as old as it was
    let renewed = session_of(&world, &browser).await;
    assert_eq!((renewed.sid(), renewed.auth_time()), (session.sid(), session.auth_time()));
    assert_eq!(world.service.credential_changed(&acme, &id).await.unwrap(), 0);
    // it counts no longer than the new password
    set_password(&world, "a third one").await;
    assert_eq!(world.service.credential_changed(&acme, &id).await.unwrap(), 1);
    // and a session that has ended does not come back
    assert_eq!(world.service.password_changed(&renewed).await.unwrap(), 0);
    assert_eq!(amr(&world).await, [""; 0]);
}

#[tokio::test]
async fn b03_c132_the_session_that_replaces_an_app_or_codes_lives_and_others_end() {
    let world = site().await;
    let secret = enrol_totp(&world, &mut ada(&world).await).await;
    let by_app = async || {
        world.advance(30);
        sign_in(&world, ADA, &["password", &format!("totp:{}", totp(&secret, world.time()))]).await
    };
    let (mut browser, other) = (by_app().await, by_app().await);
    let seen = async |browser: &Browser| world.seen(Some(&tenant("acme")), browser).await.is_some();
    enrol_totp(&world, &mut browser).await;
    assert_eq!((seen(&browser).await, seen(&other).await), (true, false));
    assert_eq!(signs_in_to(&mut browser).await, "/");

    let codes = call(&mut browser, "recovery-codes", json!({})).await.json();
    let by_code = async |at: usize| {
        let code = format!("recovery_code:{}", codes["codes"][at].as_str().unwrap());
        sign_in(&world, ADA, &["password", &code]).await
    };
    let (mut browser, other) = (by_code(0).await, by_code(1).await);
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    assert_eq!((seen(&browser).await, seen(&other).await), (true, false));
    assert_eq!(credentials(&mut browser).await["recovery_codes"]["remaining"], 10);
}

#[tokio::test]
async fn b03_c132_the_session_that_removes_an_app_lives_with_the_password() {
    let world = site().await;
    let mut owner = ada(&world).await;
    let secret = enrol_totp(&world, &mut owner).await;
    let by_app = async || {
        world.advance(30);
        sign_in(&world, ADA, &["password", &format!("totp:{}", totp(&secret, world.time()))]).await
    };
    let (mut browser, other) = (by_app().await, by_app().await);
    assert_eq!(call(&mut browser, "totp/delete", json!({})).await.status, 204);
    assert_eq!(world.seen(Some(&tenant("acme")), &other).await, None);
    assert_eq!(signs_in_to(&mut browser).await, "/");
    assert_eq!(session_of(&world, &browser).await.amr().collect::<Vec<_>>(), ["pwd"]);
    assert_eq!(signs_in_to(&mut owner).await, "/");
}

#[tokio::test]
async fn b03_a_client_can_have_its_policy_checked_when_codes_and_refresh_tokens_are_exchanged() {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    let two = |id: &str| client(id).policy(Policy::any(2).unwrap());
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let all = all.into_iter().chain([two("lax"), two("strict").recheck_policy()]);
    let clients = ClientTable::new(all).unwrap();
    let world = World::made(store, ManualClock::new(), clients, tollgate::Tokens::new(), |service| service).await;
    let code = async |id: &str| {
        world.advance(30);
        world.browser().sign_in_as(&world, id, (ADA, ADA_PASSWORD), Some(ADA), &[]).await
    };
    let issued = async |id: &str| {
        let issued = IssuedTokens::of(&world.browser().redeem(id, &code(id).await).await);
        IssuedTokens::of(&world.browser().refresh(id, issued.refresh()).await)
    };
    let families = [issued("lax").await, issued("strict").await];
    let codes = [code("lax").await, code("strict").await];
    set_password(&world, NEW_PASSWORD).await;
    for ((id, issued), code) in ["lax", "strict"].into_iter().zip(families).zip(codes) {
        let refreshed = world.browser().refresh(id, issued.refresh()).await;
        let redeemed = world.browser().redeem(id, &code).await;
        if id == "lax" {
            // the code by e-mail still counts
            assert_eq!((refreshed.status.as_u16(), redeemed.status.as_u16()), (200, 200));
            all_are(true, &world, id, &IssuedTokens::of(&refreshed)).await;
            continue;
        }
        for answer in [refreshed, redeemed] {
            assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_grant"), "{answer:?}");
        }
        all_are(false, &world, id, &issued).await;
    }
}
