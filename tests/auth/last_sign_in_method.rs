//! The last way to sign in can't be deleted.

use serde_json::{Value, json};
use tollgate::{
    NewUser, Password, Passwords, Policies,
    auth::{AuthServiceBuilder, Passkeys, Totp},
    policy::{Method, Policy},
    store::AnyStore,
};

use crate::{
    controlled_store::ControlledStore,
    enrolled::{app, enrol, stored},
    own_account::{LONE, acme, ada, begin, call, enrol_totp, sign_in, totp},
    soft_passkey::{RP_ID, SoftPasskey, text},
    world::{ADA_PASSWORD, Answer, Browser, World, join, with},
};

/// Creates a site with a user `u-only` who has no password and no contact, and `u-lone` who has a password.
async fn site(store: impl Into<AnyStore>, more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder) -> World {
    let world = World::with(store, |service| {
        more(
            service
                .first_party(acme())
                .passkeys(Passkeys::new(RP_ID))
                .totp(Totp::new().seal(&tollgate::Secret::generate())),
        )
    })
    .await;
    let hash = Passwords::insecure_fast().hash(Password::new(ADA_PASSWORD)).await.unwrap();
    let lone = NewUser::new("u-lone".parse().unwrap(), LONE.parse().unwrap()).password(hash);
    let only = NewUser::new("u-only".parse().unwrap(), "only".parse().unwrap());
    for user in [lone, only] {
        world.users.create(&acme(), user).await.unwrap();
    }
    world
}

fn soft() -> SoftPasskey {
    // the handle that `enrol` writes
    let mut passkey = SoftPasskey::new();
    passkey.handle = vec![0; 32];
    passkey
}

fn row(passkeys: &[&SoftPasskey], more: &Value) -> Value {
    let mut row = json!({ "passkeys": passkeys.iter().map(|passkey| passkey.stored(1)).collect::<Vec<_>>() });
    row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    row
}

async fn sign_in_by_passkey(world: &World, passkey: &SoftPasskey) -> Browser {
    let mut browser = world.browser();
    let fields = begin(&mut browser, "/sign-in").await;
    let started = browser.post("/authentication/start", &fields).await.json();
    let options = &started["challenges"]["passkey"];
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap()), ("method", "passkey")]);
    let mut step = own.clone();
    (step["challenge"], step["response"]) = (options["challenge"].clone(), passkey.get(options));
    let proved = browser.post("/authentication/authenticate", &step).await;
    assert_eq!(proved.status, 200, "{proved:?}");
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    browser.get("/sign-in/finish").await;
    browser
}

async fn delete(browser: &mut Browser, passkey: &SoftPasskey) -> Answer {
    call(browser, "passkeys/delete", json!({ "id": text(&passkey.id) })).await
}

fn refused(answer: &Answer) {
    assert_eq!((answer.status.as_u16(), &*answer.error()), (409, "last_sign_in_method"));
}

#[tokio::test]
async fn c117_the_last_passkey_stays_unless_there_is_a_password_or_a_contact() {
    let world = site(tollgate::store::Memory::new(), |service| service).await;
    let (first, second) = (soft(), soft());
    // neither codes, which are second steps, nor a link to a provider that is not offered are a way to sign in
    let link = json!({ "issuer": "https://idp.example", "subject": "x", "provider": "idp", "name": "", "created_at": 7,
        "strength": 1 });
    enrol(&world, "u-only", row(&[&first, &second], &json!({ "totp": app(1), "links": [link] }))).await;
    let mut browser = sign_in_by_passkey(&world, &first).await;
    assert_eq!(delete(&mut browser, &second).await.status, 204);
    refused(&delete(&mut browser, &first).await);
    assert_eq!(delete(&mut browser, &second).await.status, 404);
    assert_eq!(stored(&world, "u-only").await.unwrap()["passkeys"][0]["id"], text(&first.id));
    sign_in_by_passkey(&world, &first).await;
    // what is no way to sign in can be deleted
    assert_eq!(call(&mut browser, "totp/delete", json!({})).await.status, 204);
    let id = crate::own_account::credentials(&mut browser).await["links"][0]["id"].clone();
    assert_eq!(call(&mut browser, "links/delete", json!({ "id": id })).await.status, 204);

    let passkey = crate::weak_second_factor::with_weak_passkey(&world).await;
    let mut lone = crate::weak_second_factor::signed_in(&world, true, &passkey).await;
    assert_eq!(delete(&mut lone, &passkey).await.status, 204);
}

#[tokio::test]
async fn c117_of_two_deletions_at_the_same_time_one_leaves_the_last_passkey() {
    let store = ControlledStore::default();
    let world = site(store.clone(), |service| service).await;
    for _ in 0..5 {
        let (first, second) = (soft(), soft());
        enrol(&world, "u-only", row(&[&first, &second], &json!({}))).await;
        let browser = sign_in_by_passkey(&world, &first).await;
        let mut tabs = [browser.clone(), browser];
        store.yields();
        let [one, other] = &mut tabs;
        let answers = join([delete(one, &first), delete(other, &second)]).await;
        let codes: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        assert_eq!(stored(&world, "u-only").await.unwrap()["passkeys"].as_array().unwrap().len(), 1, "{codes:?}");
        assert!(codes.contains(&204), "{codes:?}");
        // the session of a deleted passkey ends, and its other call is refused for this reason if it comes later
        assert!(codes.contains(&409) || codes.contains(&401) || codes.contains(&403), "{codes:?}");
    }
}

#[tokio::test]
async fn c117_a_second_factor_stays_where_two_are_required() {
    let two = Policies::default().tenant(acme(), Policy::any(2).unwrap());
    let world = site(tollgate::store::Memory::new(), |service| service.policies(two)).await;
    enrol(&world, "u-lone", json!({ "totp": app(2) })).await;
    let secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    let code = format!("totp:{}", totp(secret, world.time()));
    let mut lone = sign_in(&world, LONE, &["password", &code]).await;
    refused(&call(&mut lone, "totp/delete", json!({})).await);
    assert!(!stored(&world, "u-lone").await.unwrap()["totp"].is_null());
    // ada has contacts
    let mut owner = ada(&world).await;
    enrol_totp(&world, &mut owner).await;
    assert_eq!(call(&mut owner, "totp/delete", json!({})).await.status, 204);
}

#[tokio::test]
async fn b01_c117_the_last_passkey_that_the_policy_accepts_stays() {
    let keys = Policies::default().tenant(acme(), Policy::slots([Method::Passkey]).unwrap());
    let world = site(tollgate::store::Memory::new(), |service| service.policies(keys)).await;
    let (weak, vouched) = (soft(), soft());
    let mut stored = row(&[&weak, &vouched], &json!({}));
    // a password vouched for the first one, and the application for the second one
    stored["passkeys"][0]["strength"] = json!({ "steps": 1, "proved": [["password"]] });
    stored["passkeys"][1]["strength"] = json!({ "steps": 255, "proved": [] });
    enrol(&world, "u-only", stored).await;
    let mut browser = sign_in_by_passkey(&world, &vouched).await;
    refused(&delete(&mut browser, &vouched).await);
    assert_eq!(delete(&mut browser, &weak).await.status, 204);
    refused(&delete(&mut browser, &vouched).await);
}
