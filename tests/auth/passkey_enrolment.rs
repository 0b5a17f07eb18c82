//! How users add, rename and delete passkeys of their own.

use serde_json::{Value, json};
use tollgate::{auth::Passkeys, delivery::NoticeKind, event::EventKind};

use crate::{
    own_account::{credentials, events},
    soft_passkey::{RP_ID, SoftPasskey, account, add, begin, outcome, prove, sign_in_fresh, text, world, world_with},
    world::{ADA, GRACE, World},
};

const OPTIONS: &str = "/account/passkeys/options";
const ADD: &str = "/account/passkeys";
const RENAME: &str = "/account/passkeys/rename";
const DELETE: &str = "/account/passkeys/delete";

#[tokio::test]
async fn a_passkey_is_added_renamed_and_deleted() {
    let world = world().await;
    let (mut browser, mut passkey) = (world.browser(), SoftPasskey::new());
    sign_in_fresh(&world, &mut browser, ADA).await;
    let options = account(&mut browser, OPTIONS, &json!({})).await.json()["publicKey"].clone();
    assert_eq!(options["rp"]["id"], RP_ID);
    assert_eq!(options["authenticatorSelection"]["residentKey"], "required");
    assert_eq!(options["excludeCredentials"], json!([]));
    let handle = crate::soft_passkey::bytes(&options["user"]["id"]);
    assert_eq!(handle.len(), 32);
    assert!(!String::from_utf8_lossy(&handle).contains("ada"), "the handle tells nothing about the user");

    let added = add(&mut browser, &mut passkey).await;
    let shown = added.json();
    assert_eq!((added.status.as_u16(), &shown["name"], &shown["backed_up"]), (201, &json!("phone"), &json!(true)));
    assert_eq!(shown["created_at"], world.time().as_secs());
    assert_eq!(shown["id"], text(&passkey.id));
    assert_eq!(passkey.handle, handle, "a user has one handle");
    let again = account(&mut browser, OPTIONS, &json!({})).await.json();
    assert_eq!(again["publicKey"]["excludeCredentials"], json!([{ "type": "public-key", "id": text(&passkey.id) }]));

    let renamed = account(&mut browser, RENAME, &json!({ "id": text(&passkey.id), "name": " Ada's phone " })).await;
    assert_eq!(renamed.status, 204, "{renamed:?}");
    let deleted = account(&mut browser, DELETE, &json!({ "id": text(&passkey.id) })).await;
    assert_eq!(deleted.status, 204);
    for path in [RENAME, DELETE] {
        let answer = account(&mut browser, path, &json!({ "id": text(&passkey.id), "name": "x" })).await;
        assert_eq!(outcome(&answer), (404, "not_found".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn the_user_is_told_about_passkeys_and_the_overview_shows_them() {
    let world = world().await;
    let (mut browser, mut passkey) = (world.browser(), SoftPasskey::new());
    sign_in_fresh(&world, &mut browser, ADA).await;
    assert_eq!(credentials(&mut browser).await["passkeys"], json!([]));
    let created_at = add(&mut browser, &mut passkey).await.json()["created_at"].clone();
    let shown = |name: &str, last_used_at: Value| {
        json!([{ "id": text(&passkey.id), "name": name, "created_at": created_at, "last_used_at": last_used_at,
            "backed_up": true }])
    };
    assert_eq!(credentials(&mut browser).await["passkeys"], shown("phone", Value::Null));
    let renamed = account(&mut browser, RENAME, &json!({ "id": text(&passkey.id), "name": " Ada's phone " })).await;
    assert_eq!(renamed.status, 204, "{renamed:?}");
    assert_eq!(credentials(&mut browser).await["passkeys"], shown("Ada's phone", Value::Null));
    world.advance(7);
    let (mut other, used_at) = (world.browser(), world.time().as_secs());
    let begun = begin(&mut other, "web", Some(ADA)).await;
    assert_eq!(prove(&mut other, &begun, &passkey).await.status, 200);
    assert_eq!(credentials(&mut browser).await["passkeys"], shown("Ada's phone", json!(used_at)));
    let unknown = account(&mut browser, DELETE, &json!({ "id": "AAAA" })).await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
    let deleted = account(&mut browser, DELETE, &json!({ "id": text(&passkey.id) })).await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    assert_eq!(credentials(&mut browser).await["passkeys"], json!([]));

    for kind in [EventKind::CredentialAdded, EventKind::CredentialRenamed, EventKind::CredentialRemoved] {
        assert_eq!(events(&world, kind), ["passkey"], "{kind:?}");
    }
    assert_eq!(events(&world, EventKind::NoticeSent), ["passkey", "passkey"]);
    world.settle().await;
    let messages = world.outbox.messages();
    let notices: Vec<_> =
        messages.iter().filter_map(|message| Some((message.to(), message.notice()?.kind()))).collect();
    // a new name changes nothing about how the user signs in
    assert_eq!(notices, [(ADA, NoticeKind::PasskeyAdded), (ADA, NoticeKind::PasskeyRemoved)]);
}

#[tokio::test]
async fn c117_changes_need_fresh_proofs() {
    let world = world().await;
    let (mut browser, mut passkey) = (world.browser(), SoftPasskey::new());
    sign_in_fresh(&world, &mut browser, ADA).await;
    assert_eq!(add(&mut browser, &mut passkey).await.status, 201);
    let options = account(&mut browser, OPTIONS, &json!({})).await.json();
    let response = SoftPasskey::new().create(&options);
    world.advance(301);
    for (path, body) in
        [(OPTIONS, json!({})), (ADD, json!({ "response": response })), (DELETE, json!({ "id": text(&passkey.id) }))]
    {
        let answer = account(&mut browser, path, &body).await;
        assert_eq!(outcome(&answer), (403, "fresh_login_required".to_owned()), "{path}");
        assert_eq!(answer.json()["login_url"], "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=2");
    }
    // a name is no way to sign in
    let renamed = account(&mut browser, RENAME, &json!({ "id": text(&passkey.id), "name": "x" })).await;
    assert_eq!(renamed.status, 204);
}

#[tokio::test]
async fn c117_a_first_factor_alone_cannot_add_a_passkey_as_its_second() {
    let world = world().await;
    let mut thief = world.browser();
    thief.log_in("web", ADA).await;
    assert!(thief.authorize("web").await.redirected("code").is_some());
    let answer = account(&mut thief, OPTIONS, &json!({})).await;
    assert_eq!(outcome(&answer), (403, "fresh_login_required".to_owned()), "{answer:?}");
    let answer = account(&mut thief, ADD, &json!({ "response": {} })).await;
    assert_eq!(outcome(&answer), (403, "fresh_login_required".to_owned()));
}

#[tokio::test]
async fn options_belong_to_one_session_and_work_once() {
    let world = world().await;
    let (mut ada, mut grace) = (world.browser(), world.browser());
    sign_in_fresh(&world, &mut ada, ADA).await;
    sign_in_fresh(&world, &mut grace, GRACE).await;
    let pending = |answer: &crate::world::Answer| assert_eq!(outcome(answer), (409, "no_pending_challenge".to_owned()));

    let options = account(&mut ada, OPTIONS, &json!({})).await.json();
    let mut passkey = SoftPasskey::new();
    let body = json!({ "response": passkey.create(&options) });
    pending(&account(&mut grace, ADD, &body).await);
    // a refused one burns the challenge
    let mut wrong = body.clone();
    wrong["response"]["rawId"] = json!("AAAA");
    assert_eq!(outcome(&account(&mut ada, ADD, &wrong).await), (401, "invalid_assertion".to_owned()));
    pending(&account(&mut ada, ADD, &body).await);
    // newer options replace older ones
    let older = account(&mut ada, OPTIONS, &json!({})).await.json();
    account(&mut ada, OPTIONS, &json!({})).await;
    let answer = account(&mut ada, ADD, &json!({ "response": passkey.create(&older) })).await;
    assert_eq!(outcome(&answer), (401, "invalid_assertion".to_owned()));

    let options = account(&mut ada, OPTIONS, &json!({})).await.json();
    let body = json!({ "response": passkey.create(&options) });
    let added = account(&mut ada, ADD, &body).await;
    assert_eq!((added.status.as_u16(), &added.json()["name"]), (201, &json!("Passkey")));
    pending(&account(&mut ada, ADD, &body).await);
    // a credential has one user
    let options = account(&mut grace, OPTIONS, &json!({})).await.json();
    let taken = account(&mut grace, ADD, &json!({ "response": passkey.create(&options) })).await;
    assert_eq!(outcome(&taken), (400, "invalid_request".to_owned()));
    let begun = begin(&mut grace, "web", None).await;
    refused_for_other_handle(&prove(&mut grace, &begun, &passkey).await);
}

fn refused_for_other_handle(answer: &crate::world::Answer) {
    assert_eq!(outcome(answer), (401, "invalid_assertion".to_owned()), "{answer:?}");
}

#[tokio::test]
async fn wrong_registrations_are_refused() {
    let world = world().await;
    let mut browser = world.browser();
    sign_in_fresh(&world, &mut browser, ADA).await;
    type Change = fn(&mut SoftPasskey);
    for (name, change) in [
        ("origin", (|it| it.origin = "https://evil.example".into()) as Change),
        ("embedded", |it| it.cross_origin = true),
        ("relying party", |it| it.rp_id = "evil.example".into()),
        ("presence", |it| it.flags &= !0x01),
        ("verification", |it| it.flags &= !0x04),
        ("backup", |it| it.flags &= !0x08),
    ] {
        let mut passkey = SoftPasskey::new();
        change(&mut passkey);
        let answer = add(&mut browser, &mut passkey).await;
        assert_eq!(outcome(&answer), (401, "invalid_assertion".to_owned()), "{name}");
    }
    for (name, response) in [("empty", json!({})), ("none", Value::Null), ("text", json!("x"))] {
        let answer = account(&mut browser, ADD, &json!({ "response": response })).await;
        assert_eq!(outcome(&answer), (400, "invalid_request".to_owned()), "{name}");
    }
    for name in ["", " ", "a\nb", &"x".repeat(65)] {
        let options = account(&mut browser, OPTIONS, &json!({})).await.json();
        let response = SoftPasskey::new().create(&options);
        let answer = account(&mut browser, ADD, &json!({ "name": name, "response": response })).await;
        assert_eq!(outcome(&answer), (400, "invalid_request".to_owned()), "{name:?}");
    }
    // truncated CBOR
    let options = account(&mut browser, OPTIONS, &json!({})).await.json();
    let mut response = SoftPasskey::new().create(&options);
    let object = response["response"]["attestationObject"].as_str().unwrap().to_owned();
    response["response"]["attestationObject"] = json!(object[..object.len() - 4]);
    let answer = account(&mut browser, ADD, &json!({ "response": response })).await;
    assert_eq!(outcome(&answer), (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn a_user_has_at_most_twenty_passkeys() {
    let world = world().await;
    let mut browser = world.browser();
    sign_in_fresh(&world, &mut browser, ADA).await;
    for _ in 0..20 {
        assert_eq!(add(&mut browser, &mut SoftPasskey::new()).await.status, 201);
    }
    assert_eq!(outcome(&add(&mut browser, &mut SoftPasskey::new()).await), (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn only_pages_of_this_site_and_signed_in_users_get_in() {
    let world = world().await;
    let mut browser = world.browser();
    for path in [OPTIONS, ADD, RENAME, DELETE] {
        let answer = account(&mut browser, path, &json!({})).await;
        assert_eq!(outcome(&answer), (401, "login_required".to_owned()), "{path}");
    }
    sign_in_fresh(&world, &mut browser, ADA).await;
    for path in [OPTIONS, ADD, RENAME, DELETE] {
        let request = http::Request::post(path).header("content-type", "application/json");
        let foreign = request.header("origin", "https://evil.example").header("sec-fetch-site", "cross-site");
        let answer = browser.send(foreign, "{}").await;
        assert_eq!(outcome(&answer), (403, "origin_not_allowed".to_owned()), "{path}");
    }
    let acme: tollgate::Tenant = "acme".parse().unwrap();
    let without = World::with(tollgate::store::Memory::new(), |service| service.first_party(acme)).await;
    let mut browser = without.browser();
    sign_in_fresh(&without, &mut browser, ADA).await;
    for path in [OPTIONS, ADD] {
        assert_eq!(outcome(&account(&mut browser, path, &json!({})).await), (404, "not_found".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn wrong_settings_are_reported() {
    for passkeys in [
        Passkeys::new("Example.com"),
        Passkeys::new("127.0.0.1"),
        // the origin of the issuer is not part of it
        Passkeys::new("other.example"),
        Passkeys::new(RP_ID).origin("https://evil.example"),
        Passkeys::new(RP_ID).tenant(&"acme".parse().unwrap(), "x.example", ["https://y.example"]),
    ] {
        let service = tollgate::AuthService::builder(crate::world::ISSUER, tollgate::store::Memory::new());
        let users = tollgate::StoredUsers::new(tollgate::store::Memory::new());
        let service = service.users(users).client_ip(tollgate::ClientIp::peer()).passkeys(passkeys);
        assert!(service.build().is_err());
    }
    // a login can consist of a passkey alone
    let only = world_with(Passkeys::new(RP_ID), tollgate::auth::AuthServiceBuilder::without_passwords).await;
    let mut browser = only.browser();
    assert!(begin(&mut browser, "web", None).await.options.is_object());
}
