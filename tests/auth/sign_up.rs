//! Sign-up: an account exists only after its address is proved, in the browser that asked.

use http::Request;
use serde_json::json;
use tollgate::{
    ClientTable, Identifier, NewUser, StoredUsers, Tenant, Tokens, UserId, Users,
    auth::{Invitation, SignUp},
    delivery::{LinkKind, Message},
    event::{EventKind, Query},
    store::Memory,
    tenant::HostTenant,
    testing::ManualClock,
    user::{ClaimTarget, ClaimsRequest, EmailAddress},
};

use crate::{
    controlled_store::ControlledStore,
    world::{ADA, Answer, Browser, World, clients, join, parameters, query, with},
};

pub(crate) const NEW: &str = "nora@example.com";
pub(crate) const NEW_PASSWORD: &str = "a long enough password";

fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

async fn world(kind: SignUp) -> World {
    World::with(Memory::new(), |service| service.sign_up(kind).first_party(tenant("acme"))).await
}

/// Starts a login without a name, as the page does.
pub(crate) async fn begin(browser: &mut Browser, client: &str) -> String {
    let mut body = parameters(client);
    body["continue_session"] = json!(false);
    let answer = browser.post("/authentication/start", &body).await;
    answer.json()["session_id"].as_str().unwrap().to_owned()
}

async fn send(browser: &mut Browser, client: &str, id: &str, email: &str) -> Answer {
    browser.life("sign-up/code", client, id, &[("email", email)]).await
}

async fn verify(browser: &mut Browser, client: &str, id: &str, code: &str) -> Answer {
    browser.life("sign-up/verify", client, id, &[("otp", code)]).await
}

pub(crate) async fn create(browser: &mut Browser, client: &str, id: &str) -> Answer {
    browser.life("sign-up", client, id, &[("password", NEW_PASSWORD)]).await
}

async fn exists(world: &World, at: &str, email: &str) -> bool {
    world.users.find(&tenant(at), &Identifier::parse(email).unwrap()).await.unwrap().is_some()
}

/// Waits for messages, and returns the newest one to this address.
pub(crate) async fn newest(world: &World, to: &str) -> Message {
    for _ in 0..1000 {
        world.settle().await;
        if let Some(found) = world.outbox.messages().into_iter().rev().find(|message| message.to() == to) {
            return found;
        }
        std::thread::yield_now();
    }
    panic!("no message to {to}");
}

#[tokio::test]
async fn c127_an_account_exists_after_its_address_is_proved_and_its_user_is_signed_in() {
    let world = world(SignUp::Open).await;
    let mut browser = world.browser();
    let id = begin(&mut browser, "web").await;
    assert_eq!(create(&mut browser, "web", &id).await.error(), "step_required");
    let sent = send(&mut browser, "web", &id, " Nora@Example.COM ").await;
    assert_eq!(sent.status, 200, "{sent:?}");
    assert_eq!(sent.json(), json!({ "channel": "email", "digits": 6, "expires_in": 600, "resend_in": 30 }));
    let code = world.code(NEW).await;
    assert!(!sent.text.contains(&code) && code.len() == 6);
    assert_eq!(create(&mut browser, "web", &id).await.error(), "step_required");
    assert!(!exists(&world, "acme", NEW).await);
    assert_eq!(verify(&mut browser, "web", &id, &code).await.status, 200);
    assert!(!exists(&world, "acme", NEW).await);
    // the code is used up, and a weak password changes nothing
    assert_eq!(verify(&mut browser, "web", &id, &code).await.error(), "no_pending_challenge");
    let weak = browser.life("sign-up", "web", &id, &[("password", "short")]).await;
    assert_eq!((weak.status.as_u16(), weak.error().as_str()), (400, "password_too_short"));
    let more = [("password", NEW_PASSWORD), ("name", "Nora N.")];
    let created = browser.life("sign-up", "web", &id, &more).await;
    assert_eq!((created.status.as_u16(), &created.json()["remaining_steps"]), (200, &json!(0)), "{created:?}");
    let account = world.users.find(&tenant("acme"), &Identifier::parse(NEW).unwrap()).await.unwrap().unwrap();
    assert_eq!((account.display_name(), account.contacts().count()), (Some("Nora N."), 1));
    assert!(account.contacts().all(|(_, is_proved)| is_proved));
    assert!(!exists(&world, "globex", NEW).await);
    // once
    assert_eq!(create(&mut browser, "web", &id).await.error(), "method_not_allowed");
    assert_eq!(browser.complete("web", &id).await.status, 200);
    assert!(browser.authorize("web").await.redirected("code").is_some());
    // and again with the password
    let mut later = world.browser();
    let id = later.start("web", NEW).await;
    assert_eq!(later.password("web", &id, NEW, NEW_PASSWORD).await.status, 200);
    world.log.flush();
    let created = world.log.read_events(&Query::default().kind(EventKind::AccountCreated)).events;
    assert_eq!(created.len(), 1);
    assert!(!format!("{created:?}").contains("nora"));
}

#[tokio::test]
async fn c127_a_login_of_two_steps_counts_the_address_and_the_password() {
    let world = world(SignUp::Open).await;
    let mut browser = world.browser();
    let id = begin(&mut browser, "mfa").await;
    send(&mut browser, "mfa", &id, NEW).await;
    let code = world.code(NEW).await;
    verify(&mut browser, "mfa", &id, &code).await;
    let created = create(&mut browser, "mfa", &id).await.json();
    assert_eq!((&created["completed_steps"], &created["remaining_steps"]), (&json!(2), &json!(0)));
    browser.complete("mfa", &id).await;
    assert!(browser.authorize("mfa").await.redirected("code").is_some());
}

#[tokio::test]
async fn c127_a_known_address_gets_the_same_answers_and_another_message() {
    let store = ControlledStore::default();
    let world = World::with(store.clone(), |service| service.sign_up(SignUp::Open)).await;
    let mut answers = Vec::new();
    for address in [ADA, NEW] {
        let mut browser = world.browser();
        let id = begin(&mut browser, "web").await;
        store.done();
        for _ in 0..2 {
            let answer = send(&mut browser, "web", &id, address).await;
            answers.push((answer, store.done()));
            for _ in 0..6 {
                let mut answer = verify(&mut browser, "web", &id, "wrong").await;
                answer.text = answer.text.replace(id.as_str(), "");
                answers.push((answer, store.done()));
            }
            world.settle().await;
            world.advance(31);
        }
    }
    let (one, other) = answers.split_at(answers.len() / 2);
    let written = |calls: &[String]| {
        calls.iter().map(|call| call.replace("insert", "write").replace("swap", "write")).collect::<Vec<_>>()
    };
    for ((known, known_calls), (unknown, unknown_calls)) in one.iter().zip(other) {
        let text = |answer: &Answer| (answer.status, answer.text.clone());
        assert_eq!(text(known), text(unknown));
        let names = |answer: &Answer| answer.headers.keys().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(known), names(unknown));
        assert_eq!(written(known_calls), written(unknown_calls));
    }
    let told = newest(&world, ADA).await;
    let link = told.link().unwrap();
    assert_eq!((link.kind(), link.url(), told.code()), (LinkKind::AccountExists, "https://auth.example", ""));
    assert_eq!(newest(&world, NEW).await.code().len(), 6);
}

#[tokio::test]
async fn c128_a_code_counts_in_the_browser_that_asked_and_nobody_replaces_it() {
    let world = world(SignUp::Open).await;
    let (mut own, mut stranger) = (world.browser(), world.browser());
    let (id, other) = (begin(&mut own, "web").await, begin(&mut stranger, "web").await);
    send(&mut own, "web", &id, NEW).await;
    let code = world.code(NEW).await;
    // a stranger signs up with the same address, and can't use the login of the owner
    assert_eq!(send(&mut stranger, "web", &other, NEW).await.status, 200);
    let strangers = world.code(NEW).await;
    if code != strangers {
        assert_eq!(verify(&mut stranger, "web", &other, &code).await.error(), "invalid_otp");
    }
    assert_eq!(verify(&mut stranger, "web", &id, &code).await.error(), "invalid_session");
    // another tenant
    let globex = begin(&mut own, "other").await;
    assert_eq!(verify(&mut own, "other", &globex, &code).await.error(), "no_pending_challenge");
    assert_eq!(verify(&mut own, "web", &id, &code).await.status, 200);
    assert_eq!(create(&mut own, "web", &id).await.status, 200);
    assert!(exists(&world, "acme", NEW).await && !exists(&world, "globex", NEW).await);
    // too late for the second one, who has the mailbox too
    assert_eq!(verify(&mut stranger, "web", &other, &strangers).await.status, 200);
    assert_eq!(create(&mut stranger, "web", &other).await.error(), "account_exists");
}

#[tokio::test]
async fn c127_of_many_requests_at_the_same_time_one_creates_the_account() {
    let world = world(SignUp::Open).await;
    let mut browser = world.browser();
    let id = begin(&mut browser, "web").await;
    send(&mut browser, "web", &id, NEW).await;
    let code = world.code(NEW).await;
    verify(&mut browser, "web", &id, &code).await;
    let requests = (0..8).map(|_| {
        let (mut browser, id) = (browser.clone(), id.clone());
        async move { create(&mut browser, "web", &id).await.status.as_u16() }
    });
    let answers = join(requests).await;
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
}

#[tokio::test]
async fn c127_strangers_use_up_eight_messages_a_day_and_five_from_one_address() {
    let world = world(SignUp::Open).await;
    for (network, first, most) in [(1, 0, 5), (2, 5, 8), (3, 8, 8)] {
        for number in first..10 {
            let mut browser = world.browser();
            browser.address = [192, 0, network, 1].into();
            let id = begin(&mut browser, "web").await;
            let answer = send(&mut browser, "web", &id, NEW).await;
            match number < most {
                true => assert_eq!(answer.status, 200),
                // who waits for a code must know that none comes
                false => {
                    assert_eq!((answer.status.as_u16(), &*answer.error()), (429, "too_many_attempts"));
                    assert_eq!(answer.header("retry-after"), "86400");
                }
            }
            world.settle().await;
        }
        for _ in 0..100 {
            world.settle().await;
        }
        let sent = world.outbox.messages().iter().filter(|message| message.to() == NEW).count();
        assert_eq!(sent, most, "{network}");
    }
    // in one browser, the next code comes after half a minute
    let mut browser = world.browser();
    let id = begin(&mut browser, "web").await;
    assert_eq!(send(&mut browser, "web", &id, "else@example.com").await.status, 200);
    let again = send(&mut browser, "web", &id, "else@example.com").await;
    assert_eq!((again.error().as_str(), again.header("retry-after")), ("slow_down", "30"));
    // which costs nothing, so five are sent
    for _ in 1..5 {
        world.advance(31);
        assert_eq!(send(&mut browser, "web", &id, "else@example.com").await.status, 200);
        for _ in 0..5 {
            assert_eq!(send(&mut browser, "web", &id, "else@example.com").await.error(), "slow_down");
        }
    }
    world.advance(31);
    assert_eq!(send(&mut browser, "web", &id, "else@example.com").await.error(), "too_many_attempts");
    assert_eq!(send(&mut browser, "web", &id, "other@example.com").await.status, 200);
}

#[tokio::test]
async fn c127_the_wait_for_a_code_ends_when_it_says_and_no_refusal_prolongs_it() {
    let world = world(SignUp::Open).await;
    for number in 0..8 {
        let mut browser = world.browser();
        browser.address = [192, 0, number % 2, 1].into();
        let id = begin(&mut browser, "web").await;
        assert_eq!(send(&mut browser, "web", &id, NEW).await.status, 200);
    }
    world.advance(23 * 3_600);
    let mut own = world.browser();
    own.address = [198, 51, 100, 1].into();
    let id = begin(&mut own, "web").await;
    for _ in 0..12 {
        let refused = send(&mut own, "web", &id, NEW).await;
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "3600"));
    }
    world.advance(3_600);
    let id = begin(&mut own, "web").await;
    assert_eq!(send(&mut own, "web", &id, NEW).await.status, 200);
}

#[tokio::test]
async fn c127_names_behind_a_plus_share_the_messages_of_a_mailbox() {
    let world = world(SignUp::Open).await;
    for network in 1..=10 {
        let mut browser = world.browser();
        browser.address = [192, 0, network, 1].into();
        let id = begin(&mut browser, "web").await;
        let address = format!("nora+{network}@example.com");
        let status = if network <= 8 { 200 } else { 429 };
        assert_eq!(send(&mut browser, "web", &id, &address).await.status, status);
        for _ in 0..100 {
            world.settle().await;
        }
    }
    let sent = world.outbox.messages().iter().filter(|message| message.to().starts_with("nora+")).count();
    assert_eq!(sent, 8);
    // another mailbox
    let mut browser = world.browser();
    let id = begin(&mut browser, "web").await;
    send(&mut browser, "web", &id, "norah@example.com").await;
    assert_eq!(world.code("norah@example.com").await.len(), 6);
}

#[tokio::test]
async fn c127_one_client_address_requests_thirty_codes_an_hour() {
    let world = world(SignUp::Open).await;
    let mut browser = world.browser();
    for number in 0..30 {
        let id = begin(&mut browser, "web").await;
        assert_eq!(send(&mut browser, "web", &id, &format!("new{number}@example.com")).await.status, 200);
        if number == 0 {
            // too soon, which is not charged
            assert_eq!(send(&mut browser, "web", &id, "new0@example.com").await.error(), "slow_down");
        }
        world.advance(60);
    }
    let id = begin(&mut browser, "web").await;
    let refused = send(&mut browser, "web", &id, NEW).await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (429, "too_many_attempts"));
    browser.address = [198, 51, 100, 1].into();
    assert_eq!(send(&mut browser, "web", &id, NEW).await.status, 200);
}

#[tokio::test]
async fn c127_guesses_lock_one_browser_and_no_other() {
    let world = world(SignUp::Open).await;
    // in one browser, five codes of one address
    let mut stranger = world.browser();
    let id = begin(&mut stranger, "web").await;
    send(&mut stranger, "web", &id, NEW).await;
    for _ in 0..5 {
        assert_eq!(verify(&mut stranger, "web", &id, "000000x").await.error(), "invalid_otp");
    }
    world.advance(29);
    send(&mut stranger, "web", &id, "else@example.com").await;
    send(&mut stranger, "web", &id, NEW).await;
    assert_eq!(verify(&mut stranger, "web", &id, "000000x").await.error(), "too_many_attempts");
    let guess = async |network: u8| {
        let mut stranger = world.browser();
        stranger.address = [192, 0, network, 1].into();
        let id = begin(&mut stranger, "web").await;
        // the last ones get no code
        let sent = send(&mut stranger, "web", &id, NEW).await.status;
        let error = if sent == 200 { "invalid_otp" } else { "no_pending_challenge" };
        for _ in 0..5 {
            assert_eq!(verify(&mut stranger, "web", &id, "000000x").await.error(), error);
        }
    };
    let mut own = world.browser();
    own.address = [198, 51, 100, 1].into();
    for strangers in [6, 16] {
        let id = begin(&mut own, "web").await;
        send(&mut own, "web", &id, NEW).await;
        let code = world.code(NEW).await;
        for network in 10..10 + strangers {
            guess(network).await;
        }
        let answer = verify(&mut own, "web", &id, &code).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        world.advance(24 * 3600);
    }
}

#[tokio::test]
async fn c127_sign_up_is_closed_by_default_and_its_domains_can_be_listed() {
    let closed = World::new().await;
    let mut browser = closed.browser();
    let id = begin(&mut browser, "web").await;
    for path in ["sign-up", "sign-up/code", "sign-up/verify", "sign-up/invitation"] {
        assert_eq!(browser.life(path, "web", &id, &[]).await.status, 404);
    }
    assert_eq!(browser.get(&format!("/sign-up?{}", query("web"))).await.status, 404);
    let create = format!("/authorize?{}&prompt=create", query("web"));
    assert_eq!(browser.get(&create).await.redirected("error").as_deref(), Some("invalid_request"));
    assert!(closed.service.invite(&tenant("acme"), Invitation::new(EmailAddress::parse(NEW).unwrap())).await.is_err());

    let listed =
        World::with(Memory::new(), |it| it.sign_up(SignUp::Open).sign_up_domains(["Example.org", "example.net"])).await;
    let mut browser = listed.browser();
    let id = begin(&mut browser, "web").await;
    for address in [NEW, ADA, "a@sub.example.org"] {
        assert_eq!(send(&mut browser, "web", &id, address).await.error(), "access_denied");
    }
    assert_eq!(send(&mut browser, "web", &id, "a@example.org").await.status, 200);
}

#[tokio::test]
async fn c127_prompt_create_leads_to_the_sign_up_and_ends_with_a_code() {
    let world = world(SignUp::Open).await;
    let mut browser = world.browser();
    let request = format!("/authorize?{}&prompt=create&state=xyz", query("web"));
    let answer = browser.get(&request).await;
    assert!(answer.header("location").starts_with("/sign-up?"), "{answer:?}");
    let page = browser.get(answer.header("location")).await;
    assert!(page.status == 200 && page.text.contains("id=\"join\""), "{page:?}");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    let mut body = with(parameters("web"), &[("prompt", "create")]);
    body["continue_session"] = json!(false);
    let started = browser.post("/authentication/start", &body).await.json();
    let id = started["session_id"].as_str().unwrap().to_owned();
    send(&mut browser, "web", &id, NEW).await;
    let code = world.code(NEW).await;
    verify(&mut browser, "web", &id, &code).await;
    create(&mut browser, "web", &id).await;
    browser.complete("web", &id).await;
    assert!(browser.get(&request).await.redirected("code").is_some());
    // a session is no answer to it
    assert!(browser.get(&request).await.header("location").starts_with("/sign-up?"));
    let metadata = browser.get("/.well-known/openid-configuration").await.json();
    assert!(metadata["prompt_values_supported"].as_array().unwrap().contains(&json!("create")));
    // the page of the site itself has a query of its own
    let page = browser.get("/sign-up?return_to=/account").await;
    assert_eq!(page.status, 303);
    assert!(page.header("location").contains("return_to=%2Faccount"), "{page:?}");
    assert_eq!(browser.get(page.header("location")).await.status, 200);
}

#[tokio::test]
async fn c128_an_invitation_creates_one_account_and_its_claims_come_from_the_application() {
    let world = world(SignUp::InvitationOnly).await;
    let acme = tenant("acme");
    let invitation = Invitation::new(EmailAddress::parse(NEW).unwrap()).claim("roles", ["editor"]).unwrap();
    assert!(Invitation::new(EmailAddress::parse(NEW).unwrap()).claim("sub", "u-ada").is_err());
    assert!(world.service.invite(&acme, invitation).await.unwrap());
    let message = newest(&world, NEW).await;
    let url = message.link().unwrap().url().to_owned();
    let (page, secret) = url.split_once("#invitation=").unwrap();
    assert_eq!(page, "https://auth.example/sign-up");
    assert_eq!(secret.len(), 43);

    let (mut own, mut stranger) = (world.browser(), world.browser());
    // a scanner opens the link, and HEAD does nothing either
    assert_eq!(stranger.get("/sign-up").await.status, 303);
    let id = begin(&mut own, "web").await;
    assert_eq!(send(&mut own, "web", &id, NEW).await.error(), "access_denied");
    let globex = begin(&mut own, "other").await;
    let accept = async |browser: &mut Browser, client: &str, id: &str| {
        browser.life("sign-up/invitation", client, id, &[("link", secret)]).await
    };
    assert_eq!(accept(&mut own, "other", &globex).await.error(), "invalid_link");
    let wrong = own.life("sign-up/invitation", "web", &id, &[("link", &"A".repeat(43))]).await;
    assert_eq!(wrong.error(), "invalid_link");
    assert_eq!(own.life("reset-password/link", "web", &id, &[("link", secret)]).await.error(), "method_not_allowed");
    let other = begin(&mut stranger, "web").await;
    assert_eq!(create(&mut stranger, "web", &other).await.error(), "step_required");
    for (browser, id) in [(&mut own, &id), (&mut stranger, &other)] {
        let accepted = accept(browser, "web", id).await;
        assert_eq!((accepted.status.as_u16(), &accepted.json()["email"]), (200, &json!(NEW)));
    }
    assert_eq!(create(&mut own, "web", &id).await.status, 200);
    // no second account, whether the other browser has accepted before or not
    for late in [create(&mut stranger, "web", &other).await, accept(&mut stranger, "web", &other).await] {
        assert_eq!((late.status.as_u16(), &*late.error()), (400, "invalid_link"), "{late:?}");
    }
    let account = world.users.find(&acme, &Identifier::parse(NEW).unwrap()).await.unwrap().unwrap();
    let claims = async |request: ClaimsRequest| world.users.claims(&acme, &account, &request).await.unwrap();
    let roles = claims(ClaimsRequest::new("web").with_scopes(["roles"])).await;
    assert_eq!(roles.get::<Vec<String>>(ClaimTarget::IdToken, "roles").unwrap(), ["editor"]);
    assert!(claims(ClaimsRequest::new("web")).await.get::<Vec<String>>(ClaimTarget::IdToken, "roles").is_none());
    // the secret is in no event
    world.log.flush();
    let events = world.log.read_events(&Query::default()).events;
    assert!(!format!("{events:?}").contains(secret) && !format!("{events:?}").contains("nora"));
}

/// Invites to a world whose accounts are in a store of their own, and returns the secret of the link.
pub(crate) async fn invited(rest: ControlledStore, accounts: ControlledStore) -> (World, StoredUsers, String) {
    let clock = ManualClock::new();
    let users = StoredUsers::with_clock(accounts, clock.clone());
    let own = users.clone();
    let world = World::on(rest.into(), clock, |it| it.users(own).sign_up(SignUp::InvitationOnly)).await;
    world.service.invite(&tenant("acme"), Invitation::new(EmailAddress::parse(NEW).unwrap())).await.unwrap();
    let secret = newest(&world, NEW).await.link().unwrap().url().split_once('=').unwrap().1.to_owned();
    (world, users, secret)
}

/// Accepts an invitation in a new browser.
pub(crate) async fn accepted(world: &World, secret: &str) -> (Browser, String) {
    let mut browser = world.browser();
    let id = begin(&mut browser, "web").await;
    let answer = browser.life("sign-up/invitation", "web", &id, &[("link", secret)]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    (browser, id)
}

#[tokio::test]
async fn c128_an_invitation_that_was_accepted_lives_until_its_account_is_created() {
    let (world, _, secret) = invited(ControlledStore::default(), ControlledStore::default()).await;
    let (mut late, id) = accepted(&world, &secret).await;
    world.advance(600);
    assert_eq!(create(&mut late, "web", &id).await.error(), "session_expired");
    // a tab that was closed
    drop(accepted(&world, &secret).await);
    world.advance(7 * 24 * 3600 - 601);
    let (mut browser, id) = accepted(&world, &secret).await;
    assert_eq!(create(&mut browser, "web", &id).await.status, 200);

    // but an account is created within the week
    let (world, _, secret) = invited(ControlledStore::default(), ControlledStore::default()).await;
    world.advance(7 * 24 * 3600 - 1);
    let (mut browser, id) = accepted(&world, &secret).await;
    world.advance(1);
    assert_eq!(create(&mut browser, "web", &id).await.error(), "invalid_link");
}

#[tokio::test]
async fn c128_of_two_browsers_with_one_invitation_at_the_same_time_one_creates_the_account() {
    let (rest, accounts) = (ControlledStore::default(), ControlledStore::default());
    let (world, users, secret) = invited(rest.clone(), accounts.clone()).await;
    let browsers = [accepted(&world, &secret).await, accepted(&world, &secret).await];
    rest.yields();
    accounts.yields();
    // each of them twice
    let calls = browsers.iter().chain(&browsers).map(|(browser, id)| {
        let (mut browser, id) = (browser.clone(), id.clone());
        async move { create(&mut browser, "web", &id).await }
    });
    let answers = join(calls.collect::<Vec<_>>()).await;
    let (created, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(created.len(), 1, "{answers:?}");
    for answer in refused {
        let error = answer.error();
        assert!(["account_exists", "invalid_link", "method_not_allowed"].contains(&&*error), "{answer:?}");
    }
    assert!(users.find(&tenant("acme"), &Identifier::parse(NEW).unwrap()).await.unwrap().is_some());
}

#[tokio::test]
async fn c128_an_older_invitation_ends_with_a_newer_one_and_with_the_account() {
    let world = world(SignUp::InvitationOnly).await;
    let acme = tenant("acme");
    let mut secrets = Vec::new();
    for _ in 0..2 {
        let invitation = Invitation::new(EmailAddress::parse(NEW).unwrap()).claim("roles", ["admin"]).unwrap();
        world.service.invite(&acme, invitation).await.unwrap();
        for _ in 0..100 {
            world.settle().await;
        }
        secrets.push(newest(&world, NEW).await.link().unwrap().url().split_once('=').unwrap().1.to_owned());
    }
    let accept = async |secret: &str| {
        let mut browser = world.browser();
        let id = begin(&mut browser, "web").await;
        let accepted = browser.life("sign-up/invitation", "web", &id, &[("link", secret)]).await;
        (accepted, browser, id)
    };
    assert_eq!(accept(&secrets[0]).await.0.error(), "invalid_link");
    let (accepted, mut browser, id) = accept(&secrets[1]).await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
    assert_eq!(create(&mut browser, "web", &id).await.status, 200);
    assert_eq!(accept(&secrets[1]).await.0.error(), "invalid_link");
    // the account has an invitation that can't be accepted, and the application withdraws it
    let address = EmailAddress::parse(NEW).unwrap();
    world.service.invite(&acme, Invitation::new(address.clone())).await.unwrap();
    for _ in 0..100 {
        world.settle().await;
    }
    let again = newest(&world, NEW).await.link().unwrap().url().split_once('=').unwrap().1.to_owned();
    assert!(!secrets.contains(&again));
    world.service.withdraw_invitation(&acme, &address).await.unwrap();
    assert_eq!(accept(&again).await.0.error(), "invalid_link");
    // after its link was opened, too
    let late = "late@example.com";
    let address = EmailAddress::parse(late).unwrap();
    for ends in ["withdrawn", "newer"] {
        world.service.invite(&acme, Invitation::new(address.clone())).await.unwrap();
        for _ in 0..100 {
            world.settle().await;
        }
        let secret = newest(&world, late).await.link().unwrap().url().split_once('=').unwrap().1.to_owned();
        let (accepted, mut browser, id) = accept(&secret).await;
        assert_eq!(accepted.status, 200, "{ends}");
        match ends {
            "withdrawn" => world.service.withdraw_invitation(&acme, &address).await.unwrap(),
            _ => assert!(world.service.invite(&acme, Invitation::new(address.clone())).await.unwrap()),
        }
        assert_eq!(create(&mut browser, "web", &id).await.error(), "invalid_link", "{ends}");
        assert!(!exists(&world, "acme", late).await, "{ends}");
    }
}

#[tokio::test]
async fn c128_links_are_built_from_the_issuer_and_live_for_a_week() {
    let clock = ManualClock::new();
    let store = Memory::new().into();
    let world =
        World::under("https://sso.example/auth", (store, clock), ClientTable::clone(&clients()), Tokens::new(), |it| {
            it.sign_up(SignUp::InvitationOnly).first_party(tenant("acme"))
        })
        .await;
    let invite = async || {
        world.service.invite(&tenant("acme"), Invitation::new(EmailAddress::parse(NEW).unwrap())).await.unwrap();
        let url = newest(&world, NEW).await.link().unwrap().url().to_owned();
        assert!(url.starts_with("https://sso.example/auth/sign-up#invitation="), "{url}");
        url.split_once('=').unwrap().1.to_owned()
    };
    let secret = invite().await;
    world.advance(7 * 24 * 3600);
    let mut browser = world.browser();
    let id = begin(&mut browser, "web").await;
    let late = browser.life("sign-up/invitation", "web", &id, &[("link", &secret)]).await;
    assert_eq!(late.error(), "invalid_link");
}

#[tokio::test]
async fn c128_links_open_the_configured_origin_of_their_tenant() {
    let (store, clock) = (Memory::new().into(), ManualClock::new());
    let world =
        World::under("https://sso.example/auth", (store, clock), ClientTable::clone(&clients()), Tokens::new(), |it| {
            it.sign_up(SignUp::InvitationOnly)
                .first_party(HostTenant::subdomain_of("sites.example").unwrap())
                .tenant_origin(&tenant("globex"), "https://globex.sites.example:8443")
        })
        .await;
    for (at, origin) in [("acme", "https://sso.example"), ("globex", "https://globex.sites.example:8443")] {
        let at = tenant(at);
        let invitation = Invitation::new(EmailAddress::parse(NEW).unwrap());
        world.service.invite(&at, invitation).await.unwrap();
        for _ in 0..100 {
            world.settle().await;
        }
        let url = newest(&world, NEW).await.link().unwrap().url().to_owned();
        assert!(url.starts_with(&format!("{origin}/auth/sign-up#invitation=")), "{url}");
        let id: UserId = format!("u-site-{}", at.as_str()).parse().unwrap();
        let user = NewUser::new(id.clone(), "site@example.com".parse().unwrap());
        world.users.create(&at, user).await.unwrap();
        let reset = world.service.create_reset_link(&at, &id).await.unwrap().unwrap();
        assert!(reset.starts_with(&format!("{origin}/auth/reset-password#reset=")), "{reset}");
    }
    // the page of the link is that of its tenant, whose users sign up there
    let mut browser = world.browser();
    let page = Request::get("/sign-up").header("host", "globex.sites.example:8443");
    let page = browser.send(page, "").await;
    assert_eq!(page.status, 303, "{page:?}");
    assert!(page.header("location").starts_with("/auth/sign-up?"), "{page:?}");
}

#[tokio::test]
async fn c128_a_wrong_origin_of_a_tenant_is_refused() {
    let build = |origin: &str| {
        let users = StoredUsers::new(Memory::new());
        let service = tollgate::AuthService::builder("https://auth.example", Memory::new()).users(users);
        service.client_ip(tollgate::ClientIp::peer()).tenant_origin(&tenant("acme"), origin).build()
    };
    for wrong in ["acme.example", "http://acme.example", "https://acme.example/", "https://acme.example/a", "https://"]
    {
        assert!(build(wrong).unwrap_err().to_string().starts_with("tenant origin"), "{wrong}");
    }
    assert!(build("https://acme.example").is_ok() && build("http://localhost:8080").is_ok());
}

#[tokio::test]
async fn c128_a_forgotten_user_leaves_no_invitation_and_no_message() {
    let world = world(SignUp::InvitationOnly).await;
    let acme = tenant("acme");
    let mut invited = Vec::new();
    for contact in [ADA, "eve@example.com"] {
        let invitation = Invitation::new(EmailAddress::parse(contact).unwrap()).claim("roles", ["admin"]).unwrap();
        world.service.invite(&acme, invitation).await.unwrap();
        for _ in 0..100 {
            world.settle().await;
        }
        invited.push(newest(&world, contact).await.link().unwrap().url().split_once('=').unwrap().1.to_owned());
    }
    // an address that was not proved may belong to somebody else
    let eve = NewUser::new("u-eve".parse().unwrap(), "eve".parse().unwrap());
    let eve = eve.unverified_contact(EmailAddress::parse("eve@example.com").unwrap());
    world.users.create(&acme, eve).await.unwrap();
    for user in ["u-ada", "u-eve"] {
        let user = user.parse().unwrap();
        world.service.forget_user(&acme, &user).await.unwrap();
        world.users.remove(&acme, &user).await.unwrap();
    }
    let accept = async |secret: &str| {
        let mut browser = world.browser();
        let id = begin(&mut browser, "web").await;
        browser.life("sign-up/invitation", "web", &id, &[("link", secret)]).await
    };
    assert_eq!(accept(&invited[0]).await.error(), "invalid_link");
    assert_eq!(accept(&invited[1]).await.status, 200);
}

#[tokio::test]
async fn c127_a_login_asks_for_ten_codes_to_whatever_addresses() {
    let world = world(SignUp::Open).await;
    let mut browser = world.browser();
    let id = begin(&mut browser, "web").await;
    for number in 0..10 {
        let sent = send(&mut browser, "web", &id, &format!("new{number}@example.com")).await;
        assert_eq!(sent.status, 200, "{sent:?}");
    }
    let refused = send(&mut browser, "web", &id, NEW).await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (429, "too_many_attempts"));
    let id = begin(&mut browser, "web").await;
    assert_eq!(send(&mut browser, "web", &id, NEW).await.status, 200);
}
