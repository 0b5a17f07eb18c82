//! Links to other identity providers: their conditions and their effect.

use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Tenant, Tokens, UserId,
    auth::Totp,
    delivery::NoticeKind,
    event::EventKind,
    policy::Policy,
    sso::{CreateAccount, OidcProvider, ProviderUser, SsoCallback, SsoConnection, SsoError, SsoProvider, SsoRequest},
    store::Memory,
    testing::ManualClock,
    user::{Contact, EmailAddress},
};

use crate::{
    enrolled::{CODES, app, enrol},
    own_account::events,
    sso_accounts::{first_step, login, second_step, trusting},
    sso_provider::{Accounts, Provider, SsoWorld, Trouble, begun, is_open, oidc, outcome},
    world::{ADA, ADA_PASSWORD, Browser, CALLBACK, World, parameters},
};

fn ada() -> (Tenant, UserId) {
    ("acme".parse().unwrap(), "u-ada".parse().unwrap())
}

fn contact(address: &str) -> Contact {
    Contact::Email(EmailAddress::parse(address).unwrap())
}

// ---- whose link it is

#[tokio::test]
async fn c084_the_same_subject_at_two_providers_is_two_people() {
    let clock = ManualClock::new();
    let providers = [Provider::start(&clock).await, Provider::start(&clock).await];
    let [trusted, other] = [0, 1].map(|at: usize| SsoConnection::new(oidc(&providers[at])));
    let more = |service: tollgate::auth::AuthServiceBuilder| service.sso("one", trusting(trusted)).sso("two", other);
    let world = World::on(Memory::new().into(), clock, more).await;
    let come_from = async |browser: &mut Browser, (client, id): (&str, &str), at: usize| {
        let more = [("method", "sso"), ("provider", ["one", "two"][at])];
        let answer = browser.call("authenticate", client, id, &more).await.json();
        let target = providers[at].signs_in(answer["redirect_url"].as_str().unwrap());
        outcome(&browser.get(&target).await).to_owned()
    };
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(come_from(&mut browser, ("mfa", &id), 0).await, "ok");
    for (at, expected) in [(1, "failed"), (0, "ok")] {
        let id = begun(&mut browser, "web").await;
        assert_eq!(come_from(&mut browser, ("web", &id), at).await, expected);
    }
}

#[tokio::test]
async fn c083_a_subject_has_at_most_255_characters() {
    struct Everyone;
    impl CreateAccount for Everyone {
        type Error = std::io::Error;

        async fn account(&self, _: &Tenant, _: &ProviderUser) -> Result<Option<UserId>, std::io::Error> {
            Ok(Some(UserId::parse("u-ada").unwrap()))
        }
    }
    let world = SsoWorld::with(|oidc| oidc, |connection| connection.create_account(Everyone)).await;
    for (length, expected) in [(0, "failed"), (1, "ok"), (255, "ok"), (256, "failed")] {
        world.provider.set(|provider| provider.claims = json!({ "sub": "x".repeat(length) }));
        assert_eq!(first_step(&world, None).await, expected, "{length}");
    }
}

// ---- what a first link needs

#[tokio::test]
async fn c084_an_address_that_was_never_verified_does_not_link() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    let (acme, ada) = ada();
    world.provider.set(|provider| provider.claims = json!({ "email": "later@example.com" }));
    world.world.users.add_contact(&acme, &ada, contact("later@example.com")).await.unwrap();
    assert_eq!(second_step(&world, "mfa").await, "failed");
    assert_eq!(first_step(&world, None).await, "failed", "nothing was linked");
    world.world.users.verify_contact(&acme, &ada, contact("later@example.com")).await.unwrap();
    assert_eq!(second_step(&world, "mfa").await, "ok");
}

#[tokio::test]
async fn c084_trust_in_a_domain_is_no_trust_in_others_that_end_like_it() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    let (acme, ada) = ada();
    let users = &world.world.users;
    let offered = async || {
        let (mut browser, id) = login(&world, "mfa", Some(ADA)).await;
        assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
        browser.get(&format!("/authentication/choices?session_id={id}")).await.json()["providers"].clone()
    };
    for address in ["ada@sub.example.com", "ada@notexample.com"] {
        users.verify_contact(&acme, &ada, contact(address)).await.unwrap();
        world.provider.set(|provider| provider.claims = json!({ "email": address }));
        assert_eq!(second_step(&world, "mfa").await, "failed", "{address}");
    }
    assert_ne!(offered().await, json!([]));
    users.remove_contact(&acme, &ada, &contact(ADA)).await.unwrap();
    assert_eq!(offered().await, json!([]));
    // an address at the domain that is not verified yet is not enough to be offered a link either
    users.add_contact(&acme, &ada, contact(ADA)).await.unwrap();
    assert_eq!(offered().await, json!([]));
}

#[tokio::test]
async fn c084_a_directory_that_anyone_can_open_vouches_for_no_address() {
    let (template, tid) = ("https://login.example/{tenantid}/v2.0", "9188040d-6c67-4c5b-b112-36a304b66dad");
    let directory = template.replace("{tenantid}", tid);
    let hook = |connection| trusting(connection).create_account(Accounts(&[("ada-there", "u-ada")]));
    for with_userinfo in [false, true] {
        let own = |oidc: OidcProvider| {
            let oidc = oidc.issuer_template(template).unwrap();
            if with_userinfo { oidc.userinfo() } else { oidc }
        };
        let world = SsoWorld::with(own, hook).await;
        let vouches = json!({ "sub": "ada-there", "email": ADA, "email_verified": true });
        world.provider.set(|provider| {
            provider.metadata = json!({ "issuer": template, "authorization_response_iss_parameter_supported": null });
            provider.callback = json!({ "iss": null });
            provider.claims = json!({ "iss": directory, "tid": tid, "email": ADA, "email_verified": !with_userinfo });
            provider.userinfo = vouches;
        });
        assert_eq!(second_step(&world, "mfa").await, "failed", "{with_userinfo}");
        // the operator's hook decides without the address
        assert_eq!(first_step(&world, None).await, "ok", "{with_userinfo}");
    }
}

#[tokio::test]
async fn c084_proofs_that_come_from_a_session_vouch_for_no_link() {
    let clock = ManualClock::new();
    let provider = Provider::start(&clock).await;
    let client = |id: &str| {
        let client = Client::new(id, "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
        client.redirect_uri(CALLBACK).unwrap().origin("https://app.example").unwrap().single_sign_on()
    };
    let clients = ClientTable::new([
        client("web"),
        client("mfa").policy(Policy::any(2).unwrap()),
        client("three").policy(Policy::any(3).unwrap()),
    ]);
    let connection = trusting(SsoConnection::new(oidc(&provider)));
    let more = |service: tollgate::auth::AuthServiceBuilder| service.sso("idp", connection);
    let world = World::made(Memory::new().into(), clock, clients.unwrap(), Tokens::new(), more).await;
    let world = SsoWorld { world, provider };
    let mut browser = world.world.browser();
    browser.log_in("web", ADA).await;
    assert!(browser.authorize("web").await.redirected("code").is_some());

    let going_on = async |browser: &mut Browser, client: &str| {
        let started = browser.post("/authentication/start", &parameters(client)).await.json();
        assert_eq!(started["next_step"], 2, "{started}");
        started["session_id"].as_str().unwrap().to_owned()
    };
    // somebody else may sit at this browser by now
    let id = going_on(&mut browser, "mfa").await;
    let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
    assert_eq!(choices["providers"], json!([]));
    assert_eq!(outcome(&world.dance(&mut browser, "mfa", &id).await), "failed");
    assert_eq!(first_step(&world, None).await, "failed", "nothing was linked");
    // a proof of this login vouches, but the link is only as strong as the proofs of this login
    let id = going_on(&mut browser, "three").await;
    assert_eq!(browser.ask("three", &id, "sms", crate::world::ADA_PHONE).await.status, 200);
    let code = world.world.code(crate::world::ADA_PHONE).await;
    assert_eq!(browser.verify("three", &id, &code).await.status, 200);
    assert_eq!(outcome(&world.dance(&mut browser, "three", &id).await), "failed");
    assert_eq!(first_step(&world, None).await, "failed", "nothing was linked");
    assert_eq!(second_step(&world, "mfa").await, "ok", "in a new browser");
}

#[tokio::test]
async fn c084_a_user_whose_logins_were_ended_is_not_linked_by_one_of_them() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    let (mut browser, id) = login(&world, "mfa", Some(ADA)).await;
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    let target = world.provider.signs_in(&crate::sso_provider::sent(&mut browser, "mfa", &id).await);
    let (acme, ada) = ada();
    world.world.service.end_user(&acme, &ada).await.unwrap();
    assert_eq!(outcome(&browser.get(&target).await), "failed");
    assert_eq!(first_step(&world, None).await, "failed", "nothing was linked");
}

// ---- what a link does

#[tokio::test]
async fn c084_a_user_is_told_once_of_a_new_link() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    let notices = async || {
        world.world.settle().await;
        let messages = world.world.outbox.messages();
        let told = messages.iter().filter_map(|message| Some((message.to().to_owned(), message.notice()?.kind())));
        told.collect::<Vec<_>>()
    };
    world.provider.set(|provider| provider.claims = json!({ "email_verified": false }));
    assert_eq!(second_step(&world, "mfa").await, "failed");
    assert_eq!(notices().await, []);
    world.provider.set(|provider| provider.claims = json!({}));
    for _ in 0..2 {
        assert_eq!(second_step(&world, "mfa").await, "ok");
        assert_eq!(notices().await, [(ADA.to_owned(), NoticeKind::LinkAdded)]);
        assert_eq!(events(&world.world, EventKind::SsoLinked), ["sso"]);
    }
}

#[tokio::test]
async fn c120_unlinking_ends_what_the_link_has_proved() {
    let world = SsoWorld::new().await;
    let (acme, ada) = ada();
    let unlinked = async || enrol(&world.world, "u-ada", json!({})).await;
    // in a login that is complete
    let (mut browser, id) = login(&world, "web", None).await;
    assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), "ok");
    assert_eq!(browser.complete("web", &id).await.status, 200);
    unlinked().await;
    assert_eq!(browser.authorize("web").await.redirected("error").as_deref(), Some("access_denied"));
    // in a session, which keeps the password
    let mut sessions = Vec::new();
    for client in ["mfa", "web"] {
        let (mut browser, id) = login(&world, client, None).await;
        assert_eq!(outcome(&world.dance(&mut browser, client, &id).await), "ok");
        if client == "mfa" {
            assert_eq!(browser.password(client, &id, ADA, ADA_PASSWORD).await.status, 200);
        }
        assert_eq!(browser.complete(client, &id).await.status, 200);
        assert!(browser.authorize(client).await.redirected("code").is_some());
        sessions = world.world.sessions.list(&acme, &ada).await.unwrap();
    }
    assert_eq!(sessions.len(), 2);
    unlinked().await;
    assert_eq!(world.world.service.credential_changed(&acme, &ada).await.unwrap(), 1);
    let sessions = world.world.sessions.list(&acme, &ada).await.unwrap();
    let left: Vec<_> = sessions.iter().map(|session| session.amr().collect::<Vec<_>>()).collect();
    assert_eq!(left, [["pwd"]]);
}

// ---- what a provider answers

#[tokio::test]
async fn c083_long_answers_and_answers_with_another_status_do_not_count() {
    let hook = |connection: SsoConnection| connection.create_account(Accounts(&[("ada-there", "u-ada")]));
    let world = SsoWorld::with(OidcProvider::userinfo, hook).await;
    let answer = |padding: usize| json!({ "sub": "ada-there", "padding": "x".repeat(padding) }).to_string();
    for (status, padding, expected) in [
        (200, 0, "ok"),
        (200, 250 * 1024, "ok"),
        (200, 257 * 1024, "failed"),
        (201, 0, "failed"),
        (203, 0, "failed"),
        (206, 0, "failed"),
        (301, 0, "failed"),
        (302, 0, "failed"),
        (307, 0, "failed"),
        (308, 0, "failed"),
        (400, 0, "failed"),
        (401, 0, "failed"),
        (500, 0, "unavailable"),
    ] {
        let trouble = Trouble::Answers(status, answer(padding));
        world.provider.set(|provider| provider.trouble = [("/userinfo", trouble)].into());
        assert_eq!(first_step(&world, None).await, expected, "{status} {padding}");
    }
    // a second member of the same name does not replace the first
    let twice = r#"{"sub":"ada-there","groups":["a"],"groups":["b"]}"#.to_owned();
    world.provider.set(|provider| provider.trouble = [("/userinfo", Trouble::Says(twice))].into());
    assert_eq!(first_step(&world, None).await, "failed");
}

#[tokio::test]
async fn c082_long_callbacks_are_refused_before_anything_is_sent() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let target = world.provider.signs_in(&crate::sso_provider::sent(&mut browser, "web", &id).await);
    let answer = browser.get(&format!("{target}&padding={}", "x".repeat(16 * 1024))).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_request"));
    assert!(is_open(&mut browser, &id).await);
    assert_eq!(outcome(&browser.get(&target).await), "ok", "the challenge is still open");

    let id = begun(&mut browser, "web").await;
    let target = world.provider.signs_in(&crate::sso_provider::sent(&mut browser, "web", &id).await);
    let calls = world.provider.calls("/token").len();
    let target = crate::sso_provider::with_parameter(&target, "code", &"x".repeat(4097));
    assert_eq!(outcome(&browser.get(&target).await), "failed");
    assert_eq!(world.provider.calls("/token").len(), calls);
}

#[tokio::test]
async fn c084_a_user_with_ten_links_gets_no_other() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    let link = |number: usize| {
        json!({ "issuer": "https://idp.example", "subject": number.to_string(), "provider": "idp", "name": "",
            "created_at": 0, "strength": 2 })
    };
    let links = |most: usize| json!({ "links": (0..most).map(link).collect::<Vec<_>>() });
    for (count, expected) in [(10, "failed"), (9, "ok")] {
        enrol(&world.world, "u-ada", links(count)).await;
        assert_eq!(second_step(&world, "mfa").await, expected, "{count}");
    }
}

/// A provider with this URL.
struct At(&'static str);

impl SsoProvider for At {
    async fn authorization_url(&self, _: &SsoRequest<'_>) -> Result<String, SsoError> {
        Ok(self.0.to_owned())
    }

    async fn user(&self, _: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        Err(SsoError::Denied)
    }
}

#[tokio::test]
async fn c081_a_browser_is_never_sent_to_a_url_that_is_not_safe() {
    for (url, is_safe) in [
        ("https://idp.example/authorize?x=1", true),
        ("http://127.0.0.1:8080/authorize", true),
        ("http://idp.example/authorize", false),
        ("http://10.0.0.1/authorize", false),
        ("http://localhost.example/authorize", false),
        ("https://ada:secret@idp.example/authorize", false),
        ("javascript:alert(1)", false),
        ("data:text/html,x", false),
        ("//idp.example/authorize", false),
        ("/authorize", false),
        ("", false),
    ] {
        let world = World::with(Memory::new(), |service| service.sso("idp", At(url))).await;
        let mut browser = world.browser();
        let id = begun(&mut browser, "web").await;
        let answer = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", "idp")]).await;
        if is_safe {
            assert_eq!(answer.json()["redirect_url"], url);
        } else {
            assert_eq!((answer.status.as_u16(), &*answer.error()), (502, "provider_unavailable"), "{url}");
            assert_eq!(answer.json()["redirect_url"], Value::Null, "{url}");
        }
        assert!(is_open(&mut browser, &id).await);
    }
}

// ---- the second factor of the account

#[tokio::test]
async fn b08_c131_a_sign_in_at_another_provider_is_one_factor() {
    let clock = ManualClock::new();
    clock.set_wall(tollgate::clock::UnixTime::from_secs(30));
    let provider = Provider::start(&clock).await;
    let connection = SsoConnection::new(oidc(&provider));
    let more = |service: tollgate::auth::AuthServiceBuilder| service.sso("idp", connection).totp(Totp::new());
    let world = World::on(Memory::new().into(), clock, more).await;
    let link = json!({ "issuer": provider.issuer(), "subject": "ada-there", "provider": "idp", "name": "", "created_at": 0,
        "strength": 2 });
    enrol(&world, "u-ada", json!({ "links": [link], "totp": app(2) })).await;
    let mut browser = world.browser();
    let id = begun(&mut browser, "web").await;
    let away = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", "idp")]).await.json();
    let target = provider.signs_in(away["redirect_url"].as_str().unwrap());
    assert_eq!(outcome(&browser.get(&target).await), "ok");
    assert_eq!(browser.status(&id).await.json()["remaining_steps"], 1);
    assert_eq!(browser.complete("web", &id).await.error(), "steps_remaining");
    let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
    assert_eq!((&choices["methods"], &choices["providers"]), (&json!(["totp"]), &json!([])));
    let shown = [("method", "totp"), ("code", CODES[1])];
    assert_eq!(browser.call("authenticate", "web", &id, &shown).await.json()["remaining_steps"], 0);
    assert_eq!(browser.complete("web", &id).await.status, 200);
    assert!(browser.authorize("web").await.redirected("code").is_some());
}
