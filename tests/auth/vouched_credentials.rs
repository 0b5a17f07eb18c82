//! What vouched for a credential decides for which policies it counts.

use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Policies, Secret, Tokens, UserId,
    auth::{EnrolledCredential, Passkeys, Totp},
    event::EventKind,
    policy::{Method, Policy},
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::{
    controlled_store::ControlledStore,
    own_account::{LONE, acme, begin, call, enrol_totp, events, prove, sign_in_at, totp},
    soft_passkey::{RP_ID, SoftPasskey, add, text},
    world::{ADA, ADA_PASSWORD, Answer, Browser, CALLBACK, World, parameters, query, with},
};

/// Two clients that need one step, of which `keys` accepts passkeys alone, and names for what a request can ask for.
async fn world() -> World {
    world_on(Memory::new().into()).await
}

async fn world_on(store: AnyStore) -> World {
    let client = |id: &str| {
        Client::new(id, acme()).unwrap().scopes("openid").unwrap().redirect_uri(CALLBACK).unwrap().single_sign_on()
    };
    let keys = client("keys").policy(Policy::slots([Method::Passkey]).unwrap());
    let clients = ClientTable::new([client("web"), keys]).unwrap();
    let slots = |slots: &[&[Method]]| Policy::slots(slots.iter().copied()).unwrap();
    let policies = Policies::default();
    let policies = policies.acr("key", slots(&[&[Method::Passkey]])).unwrap();
    let policies = policies.acr("code", slots(&[&[Method::Password], &[Method::Totp, Method::Email]])).unwrap();
    let policies = policies.acr("app", slots(&[&[Method::Password], &[Method::Totp]])).unwrap();
    let policies =
        policies.acr("mail-or-key", slots(&[&[Method::Password], &[Method::Email, Method::Passkey]])).unwrap();
    let policies = policies.acr("two", Policy::any(2).unwrap()).unwrap();
    let more = |service: tollgate::auth::AuthServiceBuilder| {
        let totp = Totp::new().seal(&Secret::generate());
        service.first_party(acme()).totp(totp).passkeys(Passkeys::new(RP_ID)).policies(policies)
    };
    let world = World::made(store, ManualClock::new(), clients, Tokens::new(), more).await;
    let hash = tollgate::Passwords::insecure_fast().hash(tollgate::Password::new(ADA_PASSWORD)).await.unwrap();
    let lone = tollgate::NewUser::new(UserId::parse("u-lone").unwrap(), LONE.parse().unwrap()).password(hash);
    world.users.create(&acme(), lone).await.unwrap();
    world
}

/// Signs in with fresh proofs by these methods.
async fn fresh(world: &World, browser: &mut Browser, who: &str, methods: &[&str]) {
    let target = format!("/sign-in?max_age=0&steps={}", methods.len());
    assert_eq!(sign_in_at(world, browser, &target, who, methods).await.status, 303);
}

/// A login of its own at a client, with what the request asks for.
async fn start(browser: &mut Browser, client: &str, more: &[(&str, &str)]) -> (Value, Value) {
    let mut fields = with(parameters(client), more);
    fields["continue_session"] = json!(false);
    let started = browser.post("/authentication/start", &fields).await;
    assert_eq!(started.status, 200, "{started:?}");
    (with(parameters(client), &[("session_id", started.json()["session_id"].as_str().unwrap())]), started.json())
}

async fn by_passkey(browser: &mut Browser, (own, started): (&Value, &Value), passkey: &SoftPasskey) -> Answer {
    let options = &started["challenges"]["passkey"];
    let mut step = with(own.clone(), &[("method", "passkey")]);
    (step["challenge"], step["response"]) = (options["challenge"].clone(), passkey.get(options));
    browser.post("/authentication/authenticate", &step).await
}

/// Signs in at a client by this passkey alone, and returns the answer to the passkey.
async fn alone(world: &World, client: &str, more: &[(&str, &str)], passkey: &SoftPasskey) -> (u16, String) {
    let mut browser = world.browser();
    let (own, started) = start(&mut browser, client, more).await;
    let answer = by_passkey(&mut browser, (&own, &started), passkey).await;
    (answer.status.as_u16(), answer.error())
}

fn refused() -> (u16, String) {
    (401, "invalid_assertion".to_owned())
}

const PROVED: (u16, String) = (200, String::new());

/// A thief of the password of `lone` has added a passkey.
async fn stolen() -> (World, Browser, SoftPasskey) {
    let world = world().await;
    let (mut thief, mut passkey) = (world.browser(), SoftPasskey::new());
    fresh(&world, &mut thief, LONE, &["password"]).await;
    assert_eq!(add(&mut thief, &mut passkey).await.status, 201);
    (world, thief, passkey)
}

#[tokio::test]
async fn b01_c117_a_passkey_that_a_password_vouched_for_is_refused_where_policies_name_passkeys() {
    let (world, _, passkey) = stolen().await;
    assert_eq!(alone(&world, "keys", &[], &passkey).await, refused());
    assert_eq!(alone(&world, "web", &[("acr_values", "key")], &passkey).await, refused());
    assert_eq!(alone(&world, "web", &[], &passkey).await, PROVED, "it still counts where steps are counted");
    // the application knows better
    let lone = UserId::parse("u-lone").unwrap();
    let id = text(&passkey.id);
    assert!(!world.service.vouch_for(&acme(), &lone, EnrolledCredential::Passkey("AAAA")).await.unwrap());
    assert!(!world.service.vouch_for(&acme(), &lone, EnrolledCredential::Totp).await.unwrap());
    let grace = UserId::parse("u-grace").unwrap();
    assert!(!world.service.vouch_for(&acme(), &grace, EnrolledCredential::Passkey(&id)).await.unwrap());
    assert_eq!(events(&world, EventKind::CredentialVouched), [""; 0]);
    assert!(world.service.vouch_for(&acme(), &lone, EnrolledCredential::Passkey(&id)).await.unwrap());
    assert_eq!(events(&world, EventKind::CredentialVouched), ["passkey"]);
    assert_eq!(alone(&world, "keys", &[], &passkey).await, PROVED);
    assert_eq!(alone(&world, "web", &[("acr_values", "key")], &passkey).await, PROVED);
}

#[tokio::test]
async fn b01_c117_a_login_or_a_session_by_it_meets_no_request_that_names_passkeys() {
    let (world, _, passkey) = stolen().await;
    let mut browser = world.browser();
    let (own, started) = start(&mut browser, "web", &[]).await;
    assert_eq!(by_passkey(&mut browser, (&own, &started), &passkey).await.status, 200);
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    // the completed login was for another plan
    let strict = browser.get(&format!("/authorize?{}&acr_values=key", query("web"))).await;
    assert_eq!(strict.redirected("code"), None, "{strict:?}");
    assert!(browser.authorize("web").await.redirected("code").is_some());
    // nor does single sign-on accept the session, and a login carries nothing of it
    for target in [format!("/authorize?{}", query("keys")), format!("/authorize?{}&acr_values=key", query("web"))] {
        let answer = browser.get(&target).await;
        assert_eq!(answer.redirected("code"), None, "{answer:?}");
    }
    let started = browser.post("/authentication/start", &parameters("keys")).await.json();
    assert_eq!(started["next_step"], 1);
    // until the application vouches for the passkey
    let (lone, id) = (UserId::parse("u-lone").unwrap(), text(&passkey.id));
    assert!(world.service.vouch_for(&acme(), &lone, EnrolledCredential::Passkey(&id)).await.unwrap());
    let answer = browser.get(&format!("/authorize?{}", query("keys"))).await;
    assert!(answer.redirected("code").is_some(), "{answer:?}");
}

/// Completes a sign-in to the site by this passkey. `GET /sign-in/finish` comes next.
async fn completed_sign_in(browser: &mut Browser, target: &str, passkey: &SoftPasskey) {
    let fields = begin(browser, target).await;
    let started = browser.post("/authentication/start", &fields).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(by_passkey(browser, (&own, &started), passkey).await.status, 200);
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
}

#[tokio::test]
async fn b01_c117_a_proof_that_joins_the_session_during_a_request_does_not_count_in_it() {
    for polls in 0..30 {
        let store = ControlledStore::default();
        let world = world_on(store.clone().into()).await;
        let (mut thief, mut first, mut second) = (world.browser(), SoftPasskey::new(), SoftPasskey::new());
        fresh(&world, &mut thief, LONE, &["password"]).await;
        assert_eq!(add(&mut thief, &mut first).await.status, 201);
        assert_eq!(add(&mut thief, &mut second).await.status, 201);
        let mut browser = world.browser();
        completed_sign_in(&mut browser, "/sign-in", &first).await;
        assert_eq!(browser.get("/sign-in/finish").await.status, 303);
        // and a sign-in that began before
        let mut before = world.browser();
        completed_sign_in(&mut before, "/sign-in", &second).await;
        browser.cookies.extend(before.cookies);
        let mut same = Browser { cookies: browser.cookies.clone(), ..world.browser() };
        let target = format!("/authorize?{}", query("keys"));
        store.yields();
        let mut asked = Box::pin(async move { same.get(&target).await });
        let mut answer = None;
        for _ in 0..polls {
            if let Poll::Ready(early) = asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                answer = Some(early);
                break;
            }
        }
        let has_ended = answer.is_some();
        assert_eq!(browser.get("/sign-in/finish").await.header("location"), "/");
        let id = text(&first.id);
        assert_eq!(call(&mut thief, "passkeys/delete", json!({ "id": id })).await.status, 204);
        let answer = match answer {
            Some(answer) => answer,
            None => asked.await,
        };
        assert_eq!(answer.redirected("code"), None, "after {polls} polls: {answer:?}");
        if has_ended {
            return;
        }
    }
    panic!("the request has more store calls than were tried");
}

#[tokio::test]
async fn b01_c117_a_chain_of_enrolments_vouches_for_no_more_than_its_beginning() {
    let world = world().await;
    let (mut thief, mut last) = (world.browser(), SoftPasskey::new());
    fresh(&world, &mut thief, ADA, &["password", "email"]).await;
    assert_eq!(add(&mut thief, &mut last).await.status, 201);
    for _ in 0..3 {
        // with everything that the account has by now
        let fields = begin(&mut thief, "/sign-in?max_age=0&steps=2").await;
        let started = thief.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await.json();
        let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
        let proved = by_passkey(&mut thief, (&own, &started), &last).await;
        assert_eq!(proved.status, 200, "{proved:?}");
        assert_eq!(prove((&world, &mut thief), &own, (ADA, "password"), "").await.status, 200);
        assert_eq!(thief.post("/authentication/complete", &own).await.status, 200);
        assert_eq!(thief.get("/sign-in/finish").await.status, 303);
        let mut next = SoftPasskey::new();
        next.handle.clone_from(&last.handle);
        assert_eq!(add(&mut thief, &mut next).await.status, 201);
        assert_eq!(alone(&world, "keys", &[], &next).await, refused());
        assert_eq!(alone(&world, "web", &[], &next).await, PROVED);
        last = next;
    }
}

#[tokio::test]
async fn b01_c117_a_credential_counts_where_the_methods_that_vouched_for_it_met_the_policy() {
    let world = world().await;
    let (mut browser, mut passkey) = (world.browser(), SoftPasskey::new());
    fresh(&world, &mut browser, ADA, &["password", "email"]).await;
    assert_eq!(add(&mut browser, &mut passkey).await.status, 201);
    let secret = enrol_totp(&world, &mut browser).await;
    // password and e-mail meet this policy, so the passkey can take the place of the e-mail
    let after_password = async |acr: &str, passkey: Option<&SoftPasskey>| {
        world.advance(31);
        let mut browser = world.browser();
        let (own, started) = start(&mut browser, "web", &[("acr_values", acr), ("identifier", ADA)]).await;
        if let Some(passkey) = passkey {
            let answer = by_passkey(&mut browser, (&own, &started), passkey).await;
            return (answer.status.as_u16(), answer.error());
        }
        assert_eq!(prove((&world, &mut browser), &own, (ADA, "password"), "").await.status, 200);
        let id = own["session_id"].as_str().unwrap();
        let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
        let answer = prove((&world, &mut browser), &own, (ADA, "totp"), &totp(&secret, world.time())).await;
        let is_offered = choices["methods"].as_array().unwrap().contains(&json!("totp"));
        assert_eq!(is_offered, answer.status == 200, "{acr}: {choices}");
        (answer.status.as_u16(), answer.error())
    };
    assert_eq!(after_password("mail-or-key", Some(&passkey)).await, PROVED);
    assert_eq!(after_password("two", Some(&passkey)).await, PROVED);
    assert_eq!(after_password("key", Some(&passkey)).await, refused());
    assert_eq!(after_password("code", None).await, PROVED);
    assert_eq!(after_password("two", None).await, PROVED);
    assert_eq!(after_password("app", None).await, (401, "invalid_otp".to_owned()));
    let ada = UserId::parse("u-ada").unwrap();
    assert!(world.service.vouch_for(&acme(), &ada, EnrolledCredential::Totp).await.unwrap());
    assert_eq!(after_password("app", None).await, PROVED);
    // new codes have a strength of their own
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    assert!(world.service.vouch_for(&acme(), &ada, EnrolledCredential::RecoveryCodes).await.unwrap());
}
