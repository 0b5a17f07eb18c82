//! Tokens belong to a user, not to a name, and end when their proofs stop counting.

use std::time::Duration;

use serde_json::json;
use tollgate::{
    AuthService, Client, ClientIp, Identifier, Password, Passwords, Secret, Tenant, Tokens, UserId,
    clock::{Clock, SystemClock},
    event::{EventKind, Query},
    store::{AnyStore, Memory},
    testing::{DpopKey, ManualClock},
    user::{Contact, EmailAddress},
};

use crate::{
    issued_tokens::{IssuedTokens, all_are, at_layer},
    special_worlds::world_with,
    token_requests::{Grant, set, without},
    world::{ADA, Browser, ISSUER, World, clients, parameters, query_of, with},
};

fn ada() -> (Tenant, UserId) {
    ("acme".parse().unwrap(), "u-ada".parse().unwrap())
}

fn reuses(world: &World) -> usize {
    world.log.flush();
    world.log.read_events(&Query::new().kind(EventKind::TokenReused)).events.len()
}

#[tokio::test]
async fn c120_a_user_who_changes_their_sign_in_address_keeps_all_tokens() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid email").await;
    let open = browser.sign_in("web").await;
    let (acme, ada) = ada();
    let new = "ada@new.example";
    world.users.add_identifier(&acme, &ada, &Identifier::parse(new).unwrap()).await.unwrap();
    world.users.remove_identifier(&acme, &ada, &Identifier::parse(ADA).unwrap()).await.unwrap();
    let old = Contact::from(EmailAddress::parse(ADA).unwrap());
    world.users.remove_contact(&acme, &ada, &old).await.unwrap();
    let contact = Contact::from(EmailAddress::parse(new).unwrap());
    world.users.add_contact(&acme, &ada, contact.clone()).await.unwrap();
    world.users.verify_contact(&acme, &ada, contact).await.unwrap();
    world.users.set_names(&acme, &ada, Some("Ada King"), Some("ada.king")).await.unwrap();

    all_are(true, &world, "web", &issued).await;
    assert_eq!(browser.with_token("/userinfo", &issued.access).await.json()["email"], new);
    let next = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    all_are(true, &world, "web", &next).await;
    let opened = IssuedTokens::of(&browser.redeem("web", &open).await);
    all_are(true, &world, "web", &opened).await;
}

#[tokio::test]
async fn c120_a_new_password_ends_tokens_based_on_the_old_one() {
    for place in ["refresh", "userinfo", "code"] {
        let world = World::new().await;
        let mut browser = world.browser();
        let issued = browser.tokens("web", "openid offline_access").await;
        let open = browser.sign_in("web").await;
        let (acme, ada) = ada();
        let hash = Passwords::insecure_fast().hash(Password::new("another one entirely")).await.unwrap();
        world.users.set_password(&acme, &ada, Some(hash)).await.unwrap();
        match place {
            "refresh" => assert_eq!(browser.refresh("web", issued.refresh()).await.error(), "invalid_grant"),
            "userinfo" => assert_eq!(browser.with_token("/userinfo", &issued.access).await.status, 401),
            _ => assert_eq!(browser.redeem("web", &open).await.error(), "invalid_grant"),
        }
        if place != "code" {
            // the first place that reads the account to use a token ends the family everywhere
            assert_eq!(at_layer(&world.service.verifier(), &issued.access).await, 401, "{place}");
        }
        all_are(false, &world, "web", &issued).await;
    }
}

#[tokio::test]
async fn c120_a_hash_upgrade_ends_no_tokens() {
    let world = World::new().await;
    let issued = world.browser().tokens("web", "openid").await;
    // another service on the same store, with the default cost, upgrades the weak hash
    let strong = AuthService::builder(ISSUER, world.store.clone())
        .clients(clients())
        .users(world.users.clone())
        .client_ip(ClientIp::peer())
        .email(world.outbox.clone())
        .clock(world.clock.clone())
        .tokens(Tokens::new())
        .build()
        .unwrap();
    let (acme, ada) = ada();
    let hash = async || {
        let account = tollgate::Users::by_id(&world.users, &acme, &ada).await.unwrap().unwrap();
        account.password_hash().unwrap().as_str().to_owned()
    };
    let before = hash().await;
    let mut browser = Browser { service: strong, ..world.browser() };
    browser.sign_in("web").await;
    assert_ne!(hash().await, before);
    all_are(true, &world, "web", &issued).await;
    assert_eq!(world.browser().refresh("web", issued.refresh()).await.status, 200);
}

#[tokio::test]
async fn c126_a_used_refresh_token_revokes_its_family_even_if_the_request_is_otherwise_wrong() {
    let form = [("grant_type", "refresh_token"), ("client_id", "web")];
    let wrong = [
        form.to_vec(),
        set(&form, "client_id", "mfa"),
        set(&form, "client_id", "nobody"),
        without(&form, "client_id"),
        without(&form, "grant_type"),
        set(&form, "grant_type", "authorization_code"),
        set(&form, "scope", "a\"b"),
        set(&form, "scope", "openid profile email"),
        set(&form, "client_secret", "x"),
    ];
    for fields in wrong {
        let world = World::new().await;
        let mut browser = world.browser();
        let first = browser.tokens("web", "openid").await;
        let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
        let presented = [&fields[..], &[("refresh_token", first.refresh())]].concat();
        world.advance(9);
        let answer = browser.form("/token", &presented).await;
        assert_eq!(answer.status == 200, fields == form, "{answer:?}");
        all_are(true, &world, "web", &next).await;
        world.advance(1);
        assert_ne!(browser.form("/token", &presented).await.status, 200);
        all_are(false, &world, "web", &next).await;
        assert_eq!(reuses(&world), 1, "{fields:?}");
        assert_ne!(browser.form("/token", &presented).await.status, 200);
        assert_eq!(reuses(&world), 1, "the family had already ended");
    }
}

#[tokio::test]
async fn c126_a_used_refresh_token_revokes_its_family_without_its_key_and_a_made_up_one_does_not() {
    let (world, key) = (World::new().await, DpopKey::generate());
    let mut browser = world.browser();
    let proof = || key.proof("POST", &format!("{ISSUER}/token")).issued_at(world.time()).sign();
    let post = async |browser: &mut Browser, fields: &[(&str, &str)]| {
        let request = crate::world::posted("/token").header("dpop", proof());
        browser.send(request, crate::world::form_of(fields)).await
    };
    let code = browser.sign_in("web").await;
    let first = IssuedTokens::of(&post(&mut browser, &crate::token_requests::redemption("web", &code)).await);
    let form = [("grant_type", "refresh_token"), ("client_id", "web"), ("refresh_token", first.refresh())];
    let next = IssuedTokens::of(&post(&mut browser, &form).await);
    world.advance(10);
    assert_eq!(browser.form("/token", &form).await.error(), "invalid_grant");
    assert_eq!(browser.introspect("web", next.refresh()).await, json!({ "active": false }));

    // made-up tokens revoke nothing
    let first = browser.tokens("web", "openid").await;
    let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
    world.advance(10);
    let mut made_up = first.refresh().to_owned().into_bytes();
    made_up[40] = if made_up[40] == b'A' { b'B' } else { b'A' };
    let made_up = String::from_utf8(made_up).unwrap();
    assert_eq!(browser.introspect("web", &made_up).await, json!({ "active": false }));
    assert_eq!(browser.refresh("web", &made_up).await.error(), "invalid_grant");
    all_are(true, &world, "web", &next).await;
    assert_eq!(browser.refresh("web", first.refresh()).await.error(), "invalid_grant");
    all_are(false, &world, "web", &next).await;
}

#[tokio::test]
async fn one_session_has_at_most_twenty_families_of_a_client() {
    let world = world_with(Client::single_sign_on).await;
    let (mut browser, mut elsewhere) = (world.browser(), world.browser());
    let other = elsewhere.tokens("special", "openid").await;
    let mut all = vec![browser.tokens("special", "openid").await];
    for _ in 0..20 {
        world.advance(1);
        let verifier = Secret::generate().expose().to_owned();
        let challenge =
            tollgate::pkce::CodeChallenge::from_verifier(&tollgate::pkce::CodeVerifier::parse(&verifier).unwrap())
                .to_string();
        let own = with(parameters("special"), &[("code_challenge", &challenge), ("prompt", "none")]);
        let answer = browser.get(&format!("/authorize?{}", query_of(&own))).await;
        let code = answer.redirected("code").unwrap_or_else(|| panic!("{answer:?}"));
        all.push(IssuedTokens::of(&browser.redeem("special", &Grant { code, verifier }).await));
    }
    all_are(false, &world, "special", &all[0]).await;
    for issued in [&all[1], &all[20], &other] {
        all_are(true, &world, "special", issued).await;
    }
}

#[tokio::test]
async fn a_process_without_logins_can_verify_tokens_with_the_store_alone() {
    let store = AnyStore::from(Memory::new());
    let clock = ManualClock::new();
    let real = SystemClock::new();
    clock.set_wall(real.unix(real.now()));
    let world = World::on(store.clone(), clock, |service| service).await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let verifier = Tokens::new().verifier_in(ISSUER, store).unwrap();
    assert_eq!(at_layer(&verifier, &issued.access).await, 200);
    browser.revoke("web", issued.refresh()).await;
    assert_eq!(at_layer(&verifier, &issued.access).await, 401);
    assert!(Tokens::new().verifier_in("http://auth.example", Memory::new()).is_err());
}

#[tokio::test]
async fn the_grace_and_the_lifetime_within_a_session_can_be_configured() {
    let store = AnyStore::from(Memory::new());
    let tokens =
        Tokens::new().refresh_grace(Duration::from_secs(3)).session_refresh_lifetime(Duration::from_secs(3600));
    let world = World::made(store, ManualClock::new(), clients(), tokens, |service| service).await;
    let mut browser = world.browser();
    let [first, second] = [browser.tokens("web", "openid").await, browser.tokens("web", "openid").await];
    let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
    world.advance(2);
    assert_eq!(IssuedTokens::of(&browser.refresh("web", first.refresh()).await).refresh, next.refresh);
    world.advance(1);
    assert_eq!(browser.refresh("web", first.refresh()).await.error(), "invalid_grant");
    all_are(false, &world, "web", &next).await;
    world.advance(3596);
    let second = IssuedTokens::of(&browser.refresh("web", second.refresh()).await);
    world.advance(1);
    assert_eq!(browser.refresh("web", second.refresh()).await.error(), "invalid_grant");
}
