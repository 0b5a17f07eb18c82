//! A new password for a forgotten one: it needs as many classes of factors as the strictest login of the account, without the
//! password.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Identifier, NewUser, Password, StoredUsers, Tenant, UserId, Users,
    auth::{Invitation, SignUp},
    client::Clients,
    delivery::NoticeKind,
    event::{EventKind, Query},
    password::{BreachedPasswords, PasswordRules},
    policy::{Method, Policy},
    store::{Memory, StoreError},
    user::{AccountChange, Contact, EmailAddress},
};

use crate::{
    controlled_store::{ControlledStore, Fault},
    enrolled,
    five_tenants::challenge,
    own_account,
    sign_up::newest,
    world::{
        ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, CALLBACK, NOBODY, World, clients, form_of, join, parameters,
        posted, query, query_of, with,
    },
};

pub(crate) const FRESH: &str = "an even longer password";
pub(crate) const MAILA: &str = "maila@example.com";

pub(crate) fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

pub(crate) async fn begin(browser: &mut Browser, client: &str, name: &str) -> String {
    let answer = browser.post("/reset-password/start", &with(parameters(client), &[("identifier", name)])).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["session_id"].as_str().unwrap().to_owned()
}

/// Begins a reset without a name, as the page does for a link.
pub(crate) async fn begin_unnamed(browser: &mut Browser, client: &str) -> String {
    let answer = browser.post("/reset-password/start", &parameters(client)).await;
    answer.json()["session_id"].as_str().unwrap().to_owned()
}

pub(crate) async fn set(browser: &mut Browser, client: &str, id: &str) -> Answer {
    browser.life("reset-password", client, id, &[("password", FRESH)]).await
}

/// Proves a mailbox or a phone.
pub(crate) async fn prove(world: &World, browser: &mut Browser, client: &str, id: &str, address: &str) -> Value {
    let method = if address.contains('@') { "email" } else { "sms" };
    assert_eq!(browser.ask(client, id, method, address).await.status, 200);
    let code = world.code(address).await;
    let answer = browser.verify(client, id, &code).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// An account of globex, whose logins need one step, with a mailbox.
pub(crate) async fn add_maila(world: &World) -> UserId {
    let address = EmailAddress::parse(MAILA).unwrap();
    let id = UserId::parse("u-maila").unwrap();
    let ada = world.users.by_id(&tenant("acme"), &UserId::parse("u-ada").unwrap()).await.unwrap().unwrap();
    let new = NewUser::new(id.clone(), Identifier::parse(MAILA).unwrap()).contact(Contact::Email(address));
    world.users.create(&tenant("globex"), new.password(ada.password_hash().unwrap().clone())).await.unwrap();
    id
}

pub(crate) async fn signs_in(world: &World, client: &str, name: &str, password: &str) -> bool {
    let mut browser = world.browser();
    let id = browser.start(client, name).await;
    browser.password(client, &id, name, password).await.status == 200
}

/// Signs maila in at globex with the old password or a code, and returns the code for the client and its verifier.
pub(crate) async fn sign_in(world: &World, browser: &mut Browser, method: &str, scope: &str) -> (String, String) {
    let (challenge, verifier) = challenge();
    let own = with(parameters("other"), &[("scope", scope), ("code_challenge", &challenge)]);
    let started = browser.post("/authentication/start", &with(own.clone(), &[("identifier", MAILA)])).await.json();
    let own_call = with(own.clone(), &[("session_id", started["session_id"].as_str().unwrap())]);
    let typed = [("method", method), ("username", MAILA), ("password", ADA_PASSWORD), ("email", MAILA)];
    let typed = if method == "email" { vec![typed[0], typed[3]] } else { typed[..3].to_vec() };
    browser.post("/authentication/authenticate", &with(own_call.clone(), &typed)).await;
    if method == "email" {
        let code = world.code(MAILA).await;
        browser.post("/authentication/verify-otp", &with(own_call.clone(), &[("otp", &code)])).await;
    }
    browser.post("/authentication/complete", &own_call).await;
    (browser.get(&format!("/authorize?{}", query_of(&own))).await.redirected("code").unwrap(), verifier)
}

/// Returns the form that redeems a code.
fn redemption((code, verifier): &(String, String)) -> [(&str, &str); 5] {
    [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", CALLBACK),
        ("client_id", "other"),
        ("code_verifier", verifier),
    ]
}

/// Tries a password of maila, and returns the status.
async fn attempt(browser: &mut Browser, password: &str) -> u16 {
    let id = browser.start("other", MAILA).await;
    browser.password("other", &id, MAILA, password).await.status.as_u16()
}

fn notices(world: &World) -> Vec<(String, NoticeKind)> {
    let messages = world.outbox.messages();
    messages.iter().filter_map(|it| Some((it.to().to_owned(), it.notice()?.kind()))).collect()
}

#[tokio::test]
async fn c129_a_mailbox_is_enough_where_one_step_is_and_everything_that_was_begun_ends() {
    let world = World::new().await;
    add_maila(&world).await;
    // a session with its code, tokens that outlive their session, a login and a trusted browser
    let mut before = world.browser();
    let code = sign_in(&world, &mut before, "password", "openid").await;
    let mut device = before.clone();
    device.cookies.retain(|name, _| name == "__Host-auth_device");
    assert_eq!(device.cookies.len(), 1);
    // these were proved by the mailbox, which stays
    let mut elsewhere = world.browser();
    let granted = sign_in(&world, &mut elsewhere, "email", "openid offline_access").await;
    world.advance(31);
    let sessions = async || {
        let user = UserId::parse("u-maila").unwrap();
        world.sessions.list(&tenant("globex"), &user).await.unwrap().len()
    };
    assert_eq!(sessions().await, 2);
    let tokens = elsewhere.send(posted("/token"), form_of(&redemption(&granted))).await.json();
    let (access, refresh) = (tokens["access_token"].as_str().unwrap(), tokens["refresh_token"].as_str().unwrap());
    let userinfo = async |access: &str| {
        let request = http::Request::get("/userinfo").header("authorization", format!("Bearer {access}"));
        world.browser().send(request, "").await.status.as_u16()
    };
    assert_eq!(userinfo(access).await, 200);
    let mut open = world.browser();
    let pending = open.start("other", MAILA).await;
    open.password("other", &pending, MAILA, ADA_PASSWORD).await;

    let mut browser = world.browser();
    let id = begin(&mut browser, "other", MAILA).await;
    assert_eq!(set(&mut browser, "other", &id).await.error(), "steps_remaining");
    // the password is no step, and neither is the login one of a client
    assert_eq!(browser.password("other", &id, MAILA, ADA_PASSWORD).await.error(), "method_not_allowed");
    let proved = prove(&world, &mut browser, "other", &id, MAILA).await;
    assert_eq!((&proved["completed_steps"], &proved["remaining_steps"]), (&json!(1), &json!(0)));
    assert_eq!(browser.complete("other", &id).await.error(), "method_not_allowed");
    assert_eq!(browser.authorize("other").await.redirected("code"), None);
    let weak = browser.life("reset-password", "other", &id, &[("password", "short")]).await;
    assert_eq!(weak.error(), "password_too_short");
    assert!(signs_in(&world, "other", MAILA, ADA_PASSWORD).await);

    let done = set(&mut browser, "other", &id).await;
    assert_eq!((done.status.as_u16(), done.json()), (200, json!({ "status": "done" })));
    assert_eq!(set(&mut browser, "other", &id).await.status, 401);
    assert!(!signs_in(&world, "other", MAILA, ADA_PASSWORD).await);
    assert!(signs_in(&world, "other", MAILA, FRESH).await);
    // the reset is no login, and what was begun before has ended
    assert_eq!(browser.authorize("other").await.redirected("code"), None);
    assert_eq!(before.authorize("other").await.redirected("code"), None);
    assert_eq!(open.complete("other", &pending).await.error(), "session_expired");
    assert_eq!(before.send(posted("/token"), form_of(&redemption(&code))).await.error(), "invalid_grant");
    assert_eq!(sessions().await, 0);
    assert_eq!(userinfo(access).await, 401);
    let refreshed = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("client_id", "other")];
    assert_eq!(elsewhere.send(posted("/token"), form_of(&refreshed)).await.error(), "invalid_grant");
    // the browser waits like any other after the failures of strangers, although it types the new password
    while attempt(&mut world.browser(), "wrong").await != 429 {}
    assert_eq!(attempt(&mut device, FRESH).await, 429);
    world.settle().await;
    assert_eq!(notices(&world), [(MAILA.to_owned(), NoticeKind::PasswordReset)]);
    world.log.flush();
    assert_eq!(world.log.read_events(&Query::default().kind(EventKind::PasswordReset)).events.len(), 1);
}

#[tokio::test]
async fn c129_a_mailbox_alone_never_opens_an_account_of_two_steps() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = begin(&mut browser, "web", "ada").await;
    // the client of this login needs one step, but another one of the tenant needs two
    let proved = prove(&world, &mut browser, "web", &id, ADA).await;
    assert_eq!((&proved["completed_steps"], &proved["remaining_steps"]), (&json!(1), &json!(1)));
    assert_eq!(set(&mut browser, "web", &id).await.error(), "steps_remaining");
    let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
    assert_eq!(choices["methods"], json!(["sms", "whatsapp"]), "{choices}");
    assert!(choices.get("enrol").is_none());
    assert_eq!(browser.call("enrol", "web", &id, &[("method", "totp")]).await.error(), "method_not_allowed");
    assert_eq!(browser.ask("web", &id, "email", ADA).await.error(), "method_not_allowed");
    prove(&world, &mut browser, "web", &id, ADA_PHONE).await;
    assert_eq!(set(&mut browser, "web", &id).await.status, 200);
    assert!(signs_in(&world, "web", "ada", FRESH).await && !signs_in(&world, "web", "ada", ADA_PASSWORD).await);
    world.settle().await;
    let told: Vec<_> = notices(&world).into_iter().map(|(to, kind)| (to, kind == NoticeKind::PasswordReset)).collect();
    assert_eq!(told, [(ADA.to_owned(), true), (ADA_PHONE.to_owned(), true)]);
}

/// Clients of an application, which lists none of them.
struct Unlisted(ClientTable);

impl Clients for Unlisted {
    async fn find(&self, client_id: &str) -> Result<Option<Arc<Client>>, StoreError> {
        self.0.find(client_id).await
    }

    async fn allows_origin(&self, origin: &str) -> Result<bool, StoreError> {
        self.0.allows_origin(origin).await
    }
}

/// Begins a reset and proves a mailbox. Returns what the login then needs.
async fn remaining_after_mailbox(world: &World, client: &str, address: &str) -> Value {
    let mut browser = world.browser();
    let id = begin(&mut browser, client, address).await;
    let remaining = prove(world, &mut browser, client, &id, address).await["remaining_steps"].clone();
    let refused = set(&mut browser, client, &id).await;
    assert_eq!(refused.status == 200, remaining == 0, "{refused:?}");
    remaining
}

#[tokio::test]
async fn c129_clients_that_are_not_listed_may_need_two_steps() {
    let world = World::with(Memory::new(), |service| service.clients(Unlisted(clients()))).await;
    add_maila(&world).await;
    assert_eq!(remaining_after_mailbox(&world, "web", ADA).await, 1);
    assert_eq!(remaining_after_mailbox(&world, "other", MAILA).await, 1);
}

#[tokio::test]
async fn c129_a_route_of_two_steps_is_as_strict_as_a_login_of_two_steps() {
    let world = World::with(Memory::new(), |service| service.first_party(tenant("globex"))).await;
    add_maila(&world).await;
    let layer = || world.service.session_layer();
    let _one = layer().required().steps(1).unwrap();
    assert!(layer().steps(99).is_err());
    assert_eq!(remaining_after_mailbox(&world, "other", MAILA).await, 0);
    world.advance(31);
    let _two = layer().steps(2).unwrap();
    assert_eq!(remaining_after_mailbox(&world, "other", MAILA).await, 1);
}

#[tokio::test]
async fn c129_an_enrolled_factor_is_needed_and_stays() {
    let world = enrolled::world(|service| service).await;
    enrolled::enrol(&world, "u-ada", json!({ "totp": enrolled::app(2), "recovery": enrolled::recovery(2) })).await;
    let before = enrolled::stored(&world, "u-ada").await.unwrap();
    let mut browser = world.browser();
    let id = begin(&mut browser, "web", "ada").await;
    let proved = prove(&world, &mut browser, "web", &id, ADA).await;
    assert_eq!(proved["remaining_steps"], 1);
    // a second contact is no second factor
    assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.error(), "method_not_allowed");
    let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
    assert_eq!(choices["methods"], json!(["totp", "recovery_code"]), "{choices}");
    let wrong = browser.call("authenticate", "web", &id, &[("method", "totp"), ("code", "000000")]).await;
    assert_eq!(wrong.status, 401);
    let right = [("method", "totp"), ("code", enrolled::CODES[1])];
    assert_eq!(browser.call("authenticate", "web", &id, &right).await.json()["remaining_steps"], 0);
    assert_eq!(set(&mut browser, "web", &id).await.status, 200);
    let after = enrolled::stored(&world, "u-ada").await.unwrap();
    assert_eq!(after["recovery"], before["recovery"]);
    assert_eq!(after["totp"]["secret"], before["totp"]["secret"]);
    // the fresh login needs it as before
    let id = browser.start("web", "ada").await;
    assert_eq!(browser.password("web", &id, "ada", FRESH).await.json()["remaining_steps"], 1);
}

#[tokio::test]
async fn c129_an_app_that_is_too_weak_for_the_logins_of_the_account_counts_for_nothing() {
    let world = enrolled::world(|service| service).await;
    enrolled::enrol(&world, "u-ada", json!({ "totp": enrolled::app(1) })).await;
    let mut browser = world.browser();
    let id = begin(&mut browser, "web", "ada").await;
    assert_eq!(prove(&world, &mut browser, "web", &id, ADA).await["remaining_steps"], 1);
    let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
    assert_eq!(choices["methods"], json!(["sms", "whatsapp"]), "{choices}");
    let code = [("method", "totp"), ("code", enrolled::CODES[1])];
    assert_ne!(browser.call("authenticate", "web", &id, &code).await.status, 200);
    assert_eq!(set(&mut browser, "web", &id).await.error(), "steps_remaining");
    prove(&world, &mut browser, "web", &id, ADA_PHONE).await;
    assert_eq!(set(&mut browser, "web", &id).await.status, 200);
}

#[tokio::test]
async fn c129_the_step_that_a_client_adds_for_an_enrolled_factor_counts() {
    let named = Policy::slots([Method::Password, Method::Email]).unwrap();
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let all = all.into_iter().map(|client| if client.id() == "mfa" { client.policy(named.clone()) } else { client });
    let all = ClientTable::new(all).unwrap();
    let world = enrolled::world(|service| service.clients(all)).await;
    enrolled::enrol(&world, "u-ada", json!({ "totp": enrolled::app(2) })).await;
    // a login of that client needs the password, the mailbox and the app
    let mut browser = world.browser();
    let id = begin(&mut browser, "web", "ada").await;
    assert_eq!(prove(&world, &mut browser, "web", &id, ADA).await["remaining_steps"], 2);
    prove(&world, &mut browser, "web", &id, ADA_PHONE).await;
    let code = [("method", "totp"), ("code", enrolled::CODES[1])];
    assert_eq!(browser.call("authenticate", "web", &id, &code).await.json()["remaining_steps"], 0);
    assert_eq!(set(&mut browser, "web", &id).await.status, 200);
}

#[tokio::test]
async fn c129_an_account_with_too_few_factors_is_reset_by_the_application_only() {
    let world = enrolled::world(|service| service.first_party(tenant("globex"))).await;
    let maila = add_maila(&world).await;
    // a mailbox and an app, of which the app was lost; and a login that needs the app
    enrolled_app_of_globex(&world).await;
    let mut browser = world.browser();
    let id = begin(&mut browser, "other", MAILA).await;
    assert_eq!(prove(&world, &mut browser, "other", &id, MAILA).await["remaining_steps"], 1);
    assert_eq!(set(&mut browser, "other", &id).await.error(), "steps_remaining");

    let link = world.service.create_reset_link(&tenant("globex"), &maila).await.unwrap().unwrap();
    let (page, secret) = link.split_once("#reset=").unwrap();
    assert_eq!(page, "https://auth.example/reset-password");
    let unknown = UserId::parse("u-nobody").unwrap();
    assert_eq!(world.service.create_reset_link(&tenant("globex"), &unknown).await.unwrap(), None);
    assert_eq!(world.service.create_reset_link(&tenant("acme"), &maila).await.unwrap(), None);
    let page = browser.get("/reset-password").await;
    assert_eq!((page.status.as_u16(), browser.get(page.header("location")).await.status.as_u16()), (303, 200));
    let use_link = async |browser: &mut Browser, client: &str, id: &str| {
        browser.life("reset-password/link", client, id, &[("link", secret)]).await
    };
    // not for another tenant, not in a login of another kind
    let id = begin(&mut browser, "web", "ada").await;
    assert_eq!(use_link(&mut browser, "web", &id).await.error(), "invalid_link");
    let id = browser.start("other", MAILA).await;
    assert_eq!(use_link(&mut browser, "other", &id).await.error(), "method_not_allowed");
    // not in a login that has the name of anybody
    for name in [NOBODY, MAILA] {
        let id = begin(&mut browser, "other", name).await;
        assert_eq!(use_link(&mut browser, "other", &id).await.error(), "invalid_link");
    }
    for _ in 0..6 {
        assert!(!signs_in(&world, "other", MAILA, "wrong").await);
    }
    assert!(!signs_in(&world, "other", MAILA, ADA_PASSWORD).await, "locked");
    let id = begin_unnamed(&mut browser, "other").await;
    assert_eq!(use_link(&mut browser, "other", &id).await.status, 200);
    assert_eq!(use_link(&mut browser, "other", &id).await.error(), "invalid_link");
    assert_eq!(set(&mut browser, "other", &id).await.status, 200);
    let id = browser.start("other", MAILA).await;
    assert_eq!(browser.password("other", &id, MAILA, FRESH).await.json()["remaining_steps"], 1, "the app stays");

    // a link ends with everything of its user
    let link = world.service.create_reset_link(&tenant("globex"), &maila).await.unwrap().unwrap();
    let secret = link.split_once("#reset=").unwrap().1;
    world.service.end_user(&tenant("globex"), &maila).await.unwrap();
    let id = begin_unnamed(&mut browser, "other").await;
    assert_eq!(browser.life("reset-password/link", "other", &id, &[("link", secret)]).await.status, 200);
    assert_eq!(set(&mut browser, "other", &id).await.error(), "invalid_link");
    // and after a quarter of an hour
    let link = world.service.create_reset_link(&tenant("globex"), &maila).await.unwrap().unwrap();
    world.advance(15 * 60);
    let id = begin_unnamed(&mut browser, "other").await;
    let secret = link.split_once("#reset=").unwrap().1;
    let late = browser.life("reset-password/link", "other", &id, &[("link", secret)]).await;
    assert_eq!(late.error(), "invalid_link");

    world.service.reset_factors(&tenant("globex"), &maila).await.unwrap();
    let id = browser.start("other", MAILA).await;
    assert_eq!(browser.password("other", &id, MAILA, FRESH).await.json()["remaining_steps"], 0);
    world.settle().await;
    assert!(notices(&world).contains(&(MAILA.to_owned(), NoticeKind::FactorsReset)));
    world.log.flush();
    let events = |kind| world.log.read_events(&Query::default().kind(kind)).events;
    let (factors, passwords) = (events(EventKind::FactorsReset), events(EventKind::PasswordReset));
    assert_eq!((factors.len(), passwords.len()), (1, 1));
    assert!(factors[0].subject.is_some() && factors[0].subject == passwords[0].subject);
}

/// Enrols an app for the account of globex.
async fn enrolled_app_of_globex(world: &World) {
    use tollgate::store::{Key, Record};
    let mut app = enrolled::app(2);
    app["strength"] = enrolled::strength(2);
    let row = json!({ "handle": "A".repeat(43), "totp": app });
    let key = Key::new("credentials", Some(&tenant("globex")), b"u-maila").unwrap();
    let record = Record::new(row.to_string(), world.time(), tollgate::clock::UnixTime::from_nanos(u64::MAX)).unwrap();
    _ = world.store.insert(&key, record).await.unwrap();
}

#[tokio::test]
async fn c129_a_reset_shows_nothing_of_the_account_before_its_first_proof() {
    let world = enrolled::world(|service| service).await;
    enrolled::enrol(&world, "u-ada", json!({ "totp": enrolled::app(2) })).await;
    let mut shown = Vec::new();
    for name in ["ada", "grace", NOBODY, "no body"] {
        let mut browser = world.browser();
        let body = with(parameters("web"), &[("identifier", name)]);
        let mut answer = browser.post("/reset-password/start", &body).await.json();
        let id = answer["session_id"].take().as_str().unwrap().to_owned();
        let asked = browser.ask("web", &id, "email", NOBODY).await;
        let refused = set(&mut browser, "web", &id).await.error();
        let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.error();
        shown.push((answer, asked.status, asked.text.replace(&id, ""), refused, choices));
    }
    assert!(shown.iter().all(|one| *one == shown[0]), "{shown:?}");
    let methods = json!(["sms", "email", "whatsapp"]);
    assert_eq!((&shown[0].0["available_methods"], &shown[0].0["required_steps"]), (&methods, &json!(1)));
}

#[tokio::test]
async fn c129_of_two_resets_at_the_same_time_one_sets_the_password() {
    let world = World::new().await;
    add_maila(&world).await;
    let mut browsers = Vec::new();
    for _ in 0..2 {
        let mut browser = world.browser();
        let id = begin(&mut browser, "other", MAILA).await;
        prove(&world, &mut browser, "other", &id, MAILA).await;
        browsers.push((browser, id));
        world.advance(31);
    }
    // each of them twice
    let calls = browsers.iter().chain(&browsers).map(|(browser, id)| {
        let (mut browser, id) = (browser.clone(), id.clone());
        async move { set(&mut browser, "other", &id).await.status.as_u16() }
    });
    let answers = join(calls.collect::<Vec<_>>()).await;
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    assert!(signs_in(&world, "other", MAILA, FRESH).await);
}

#[tokio::test]
async fn c129_without_accounts_that_offer_it_there_is_no_reset() {
    let world = World::with(Memory::new(), |service| service.without_password_reset().sign_up(SignUp::Closed)).await;
    let mut browser = world.browser();
    for path in ["reset-password", "reset-password/start", "reset-password/link"] {
        assert_eq!(browser.life(path, "web", "x", &[]).await.status, 404);
    }
    let told = browser.send(
        http::Request::get(format!("/authentication/start?{}", query("web"))).header("accept", "application/json"),
        "",
    );
    let told = told.await.json();
    assert!(told.get("reset_password").is_none() && told.get("sign_up").is_none());
    let world = World::new().await;
    let mut browser = world.browser();
    let request = http::Request::get(format!("/authentication/start?{}", query("web")));
    let told = browser.send(request.header("accept", "application/json"), "").await.json();
    assert_eq!(told["reset_password"], "/reset-password");
}

#[tokio::test]
async fn c129_a_reset_is_told_although_what_it_ends_can_not_be_ended() {
    let mut failing = None;
    for _ in 0..2 {
        let store = ControlledStore::default();
        let world = World::with(store.clone(), |service| service).await;
        add_maila(&world).await;
        let mut browser = world.browser();
        let id = begin(&mut browser, "other", MAILA).await;
        prove(&world, &mut browser, "other", &id, MAILA).await;
        store.done();
        if let Some(at) = failing {
            store.fail(at, Fault::Before);
        }
        assert_eq!(set(&mut browser, "other", &id).await.status, 200);
        let done = store.done();
        assert_eq!(store.heal(), failing.is_some());
        // the last change of the generation comes after the password is set
        failing = done.iter().rposition(|call| call.ends_with(" generations"));
        assert!(signs_in(&world, "other", MAILA, FRESH).await);
        world.settle().await;
        assert_eq!(notices(&world), [(MAILA.to_owned(), NoticeKind::PasswordReset)]);
    }
}

/// Looks passwords up, and meanwhile the address of maila changes.
#[derive(Clone, Default)]
struct Meanwhile(Arc<OnceLock<StoredUsers>>);

impl BreachedPasswords for Meanwhile {
    type Error = std::convert::Infallible;

    async fn is_breached(&self, _: &Password) -> Result<bool, Self::Error> {
        if let Some(users) = self.0.get() {
            let contact = |email: &str| Contact::Email(EmailAddress::parse(email).unwrap());
            let (old, new) = (contact(MAILA), contact("new@example.com"));
            let id = UserId::parse("u-maila").unwrap();
            let changed = users.set_contact(&tenant("globex"), &id, Some(&old), Some(&new)).await;
            assert_eq!(changed.unwrap(), AccountChange::Done);
        }
        Ok(false)
    }
}

#[tokio::test]
async fn c129_proofs_that_stop_counting_while_the_password_is_checked_set_none() {
    let meanwhile = Meanwhile::default();
    let rules = PasswordRules::new().breached(meanwhile.clone());
    let world = World::with(Memory::new(), |service| service.password_rules(rules)).await;
    add_maila(&world).await;
    let mut browser = world.browser();
    let id = begin(&mut browser, "other", MAILA).await;
    prove(&world, &mut browser, "other", &id, MAILA).await;
    assert!(meanwhile.0.set(world.users.clone()).is_ok());
    assert_eq!(set(&mut browser, "other", &id).await.error(), "session_expired");
    let mut browser = world.browser();
    let id = browser.start("other", "new@example.com").await;
    assert_eq!(browser.password("other", &id, "new@example.com", ADA_PASSWORD).await.status, 200);
}

#[tokio::test]
async fn c128_c129_no_ticket_of_another_purpose_or_tenant_counts_in_a_reset() {
    let world = World::with(Memory::new(), |service| service.sign_up(SignUp::Open)).await;
    let maila = add_maila(&world).await;
    let mut browser = world.browser();
    let link_of = |link: Option<String>| link.unwrap().split_once("#reset=").unwrap().1.to_owned();
    let other_tenant = link_of(world.service.create_reset_link(&tenant("globex"), &maila).await.unwrap());
    let own = link_of(world.service.create_reset_link(&tenant("acme"), &"u-ada".parse().unwrap()).await.unwrap());
    let address = EmailAddress::parse("guest@example.com").unwrap();
    world.service.invite(&tenant("acme"), Invitation::new(address)).await.unwrap();
    let invitation = newest(&world, "guest@example.com").await.link().unwrap().url().to_owned();
    let invitation = invitation.split_once("#invitation=").unwrap().1;

    let id = begin_unnamed(&mut browser, "web").await;
    for secret in [invitation, &other_tenant, &"A".repeat(43), "short", ""] {
        let refused = browser.life("reset-password/link", "web", &id, &[("link", secret)]).await;
        assert_eq!((refused.status.as_u16(), &*refused.error()), (400, "invalid_link"), "{secret}");
        assert_eq!(set(&mut browser, "web", &id).await.error(), "steps_remaining");
    }
    assert_eq!(browser.life("reset-password/link", "web", &id, &[]).await.error(), "invalid_link");
    // none of them was used up by that
    let mut guest = world.browser();
    let body = with(parameters("web"), &[]);
    let sign_up = guest.post("/authentication/start", &body).await.json()["session_id"].as_str().unwrap().to_owned();
    for secret in [&*own, &other_tenant] {
        let refused = guest.life("sign-up/invitation", "web", &sign_up, &[("link", secret)]).await;
        assert_eq!(refused.error(), "invalid_link");
    }
    assert_eq!(guest.life("sign-up/invitation", "web", &sign_up, &[("link", invitation)]).await.status, 200);
    // the proof of a sign-up sets no password
    assert_eq!(set(&mut guest, "web", &sign_up).await.error(), "method_not_allowed");
    assert_eq!(browser.life("reset-password/link", "web", &id, &[("link", &own)]).await.status, 200);
    assert_eq!(set(&mut browser, "web", &id).await.status, 200);
    assert!(signs_in(&world, "web", "ada", FRESH).await && signs_in(&world, "other", MAILA, ADA_PASSWORD).await);
}

#[tokio::test]
async fn c129_somebody_who_lost_the_app_resets_with_a_recovery_code() {
    let world = own_account::site(|service| service).await;
    let mut owner = own_account::ada(&world).await;
    own_account::enrol_totp(&world, &mut owner).await;
    let codes = own_account::call(&mut owner, "recovery-codes", json!({})).await.json()["codes"].clone();
    let code = codes[0].as_str().unwrap();
    world.advance(31);
    let mut browser = world.browser();
    let id = begin(&mut browser, "web", "ada").await;
    let by_code = [("method", "recovery_code"), ("code", code)];
    assert_ne!(browser.call("authenticate", "web", &id, &by_code).await.status, 200, "not as the first step");
    assert_eq!(prove(&world, &mut browser, "web", &id, ADA).await["remaining_steps"], 1);
    let wrong = [("method", "recovery_code"), ("code", "abcd-efgh-jkmn")];
    assert_eq!(browser.call("authenticate", "web", &id, &wrong).await.status, 401);
    assert_eq!(set(&mut browser, "web", &id).await.error(), "steps_remaining");
    let proved = browser.call("authenticate", "web", &id, &by_code).await;
    assert_eq!((proved.status.as_u16(), &proved.json()["remaining_steps"]), (200, &json!(0)), "{proved:?}");
    assert_eq!(set(&mut browser, "web", &id).await.status, 200);
    // the code is used up, and the app is still asked for
    world.advance(31);
    let id = begin(&mut browser, "web", "ada").await;
    prove(&world, &mut browser, "web", &id, ADA).await;
    assert_eq!(browser.call("authenticate", "web", &id, &by_code).await.status, 401);
    let id = browser.start("web", "ada").await;
    assert_eq!(browser.password("web", &id, "ada", FRESH).await.json()["remaining_steps"], 1);
}

#[tokio::test]
async fn c129_the_last_recovery_code_resets_a_password_too() {
    let world = own_account::site(|service| service).await;
    let mut owner = own_account::ada(&world).await;
    own_account::enrol_totp(&world, &mut owner).await;
    let codes = own_account::call(&mut owner, "recovery-codes", json!({})).await.json()["codes"].clone();
    let code = codes[9].as_str().unwrap();
    // all others were used
    let mut row = enrolled::stored(&world, "u-ada").await.unwrap();
    let last = row["recovery"]["unused"][9].clone();
    row["recovery"]["unused"] = json!([last]);
    enrolled::enrol(&world, "u-ada", row).await;
    world.advance(31);
    let mut browser = world.browser();
    let id = begin(&mut browser, "web", "ada").await;
    assert_eq!(prove(&world, &mut browser, "web", &id, ADA).await["remaining_steps"], 1);
    let by_code = [("method", "recovery_code"), ("code", code)];
    let proved = browser.call("authenticate", "web", &id, &by_code).await;
    assert_eq!((proved.status.as_u16(), &proved.json()["remaining_steps"]), (200, &json!(0)), "{proved:?}");
    let row = enrolled::stored(&world, "u-ada").await.unwrap();
    assert_eq!(row["recovery"]["unused"], json!([]));
    let done = set(&mut browser, "web", &id).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert!(signs_in(&world, "web", "ada", FRESH).await);
}

#[tokio::test]
async fn c128_links_come_from_the_issuer_whatever_host_a_request_names() {
    let world = World::with(Memory::new(), |service| service.sign_up(SignUp::Open).first_party(tenant("acme"))).await;
    let mut browser = world.browser();
    let foreign = async |browser: &mut Browser, path: &str, body: Value| {
        let mut request = http::Request::post(path).header("content-type", "application/json");
        for name in ["host", "x-forwarded-host", "x-original-host"] {
            request = request.header(name, "evil.example");
        }
        let request = request.header("forwarded", "host=evil.example;proto=http");
        browser.send(request.header("x-forwarded-proto", "http"), body.to_string()).await
    };
    let started = foreign(&mut browser, "/authentication/start", parameters("web")).await.json();
    let own = with(parameters("web"), &[("session_id", started["session_id"].as_str().unwrap()), ("email", ADA)]);
    let sent = foreign(&mut browser, "/sign-up/code", own).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    assert_eq!(newest(&world, ADA).await.link().unwrap().url(), "https://auth.example/sign-in");
    // nor do the answers of a reset, and the messages after it
    let named = with(parameters("web"), &[("identifier", "ada")]);
    let started = foreign(&mut browser, "/reset-password/start", named).await;
    let id = started.json()["session_id"].as_str().unwrap().to_owned();
    world.advance(31);
    for address in [ADA, ADA_PHONE] {
        prove(&world, &mut browser, "web", &id, address).await;
    }
    let own = with(parameters("web"), &[("session_id", &id), ("password", FRESH)]);
    let done = foreign(&mut browser, "/reset-password", own).await;
    assert_eq!(done.status, 200, "{done:?}");
    world.settle().await;
    assert!(!format!("{started:?} {sent:?} {done:?} {:?}", world.outbox.messages()).contains("evil"));
    for message in world.outbox.messages() {
        assert!(!message.text(world.time()).contains("evil"));
    }
    let page = http::Request::get("/reset-password").header("host", "evil.example");
    assert!(browser.send(page, "").await.header("location").starts_with("/reset-password?"));
}
