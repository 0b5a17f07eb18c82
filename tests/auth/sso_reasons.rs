//! What a user and an operator learn about a sign-in at another identity provider that fails.

use serde_json::{Value, json};
use tollgate::event::{EventKind, Query};

use crate::{
    logged::Logged,
    sso_accounts::{login, trusting},
    sso_provider::{Accounts, SsoWorld, begun, outcome, reason, sent},
    world::{ADA, ADA_PASSWORD, GRACE, NOBODY},
};

/// Signs in at a provider that sends these claims, and returns why that fails.
async fn why(world: &SsoWorld, identifier: Option<&str>, claims: Value) -> String {
    world.provider.set(|provider| provider.claims = claims);
    let (mut browser, id) = login(world, "web", identifier).await;
    reason(&world.dance(&mut browser, "web", &id).await).to_owned()
}

/// Returns the methods and reasons of the failed steps since the last call, each once.
fn failures(world: &SsoWorld, since: &mut usize) -> Vec<(&'static str, &'static str)> {
    world.world.log.flush();
    let page = world.world.log.read_events(&Query::new().kind(EventKind::LoginFailed));
    let mut events: Vec<_> = page.events.iter().map(|event| (event.id, event.method, event.reason)).collect();
    events.sort_unstable();
    let new = events.iter().skip(*since).map(|(_, method, reason)| (method.unwrap_or(""), reason.unwrap_or("")));
    let new = new.collect();
    *since = events.len();
    new
}

#[tokio::test]
async fn b11_a_user_without_an_account_learns_what_helps_and_the_reason_is_recorded() {
    let hook = || Accounts(&[("lost-there", "u-nobody")]);
    let hooked = SsoWorld::with(|oidc| oidc, |connection| connection.create_account(hook())).await;
    let trusted = SsoWorld::with(|oidc| oidc, trusting).await;
    let plain = SsoWorld::with(|oidc| oidc, |connection| connection).await;
    for world in [&hooked, &trusted, &plain] {
        let (log, mut since) = (Logged::new(), 0);
        for (claims, expected, logged) in [
            (json!({}), "account_exists", "an account has this e-mail address but is not linked"),
            (json!({ "email": NOBODY }), "no_account", "no account is linked"),
            (json!({ "email_verified": false }), "address_not_verified", "has not verified the e-mail address"),
            (json!({ "email_verified": null }), "address_not_verified", "has not verified the e-mail address"),
            (json!({ "email": null }), "no_address", "set `OidcProvider::userinfo`"),
            (json!({ "nonce": "x" }), "wrong_answer", "another nonce"),
        ] {
            assert_eq!(why(world, None, claims.clone()).await, expected, "{claims}");
            let lines = log.take();
            assert!(lines.len() == 1 && lines[0].contains(logged), "{claims}: {lines:?}");
            assert!(!lines[0].contains("example.com"), "an address is in the log: {lines:?}");
            world.world.advance(1);
            assert_eq!(failures(world, &mut since), [("sso", expected)], "{claims}");
        }
    }
}

#[tokio::test]
async fn b11_c066_before_a_proved_step_the_answer_does_not_depend_on_the_typed_name() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    for claims in [
        json!({}),
        json!({ "email": NOBODY }),
        json!({ "email": GRACE, "email_verified": false }),
        json!({ "email": NOBODY, "email_verified": false }),
        json!({ "email": null }),
    ] {
        let expected = why(&world, None, claims.clone()).await;
        for identifier in [ADA, GRACE, NOBODY] {
            assert_eq!(why(&world, Some(identifier), claims.clone()).await, expected, "{identifier} {claims}");
        }
    }
    // an address that is not verified gets one answer, whether an account has it or not
    for email in [ADA, NOBODY, "x"] {
        let claims = json!({ "email": email, "email_verified": false });
        assert_eq!(why(&world, None, claims).await, "address_not_verified");
    }
    // the user of the provider is linked to ada by now
    world.provider.set(|provider| provider.claims = json!({}));
    assert_eq!(crate::sso_accounts::second_step(&world, "mfa").await, "ok");
    for identifier in [GRACE, NOBODY] {
        assert_eq!(why(&world, Some(identifier), json!({})).await, "other_account", "{identifier}");
    }
}

#[tokio::test]
async fn b11_after_a_proved_step_the_answer_says_what_a_link_lacks() {
    let untrusted = SsoWorld::with(|oidc| oidc, |connection| connection).await;
    let trusted = SsoWorld::with(|oidc| oidc, trusting).await;
    for (world, claims, expected) in [
        (&untrusted, json!({}), "not_linked"),
        (&trusted, json!({ "email": GRACE }), "not_linked"),
        (&trusted, json!({ "email": null }), "no_address"),
        (&trusted, json!({ "email_verified": false }), "address_not_verified"),
    ] {
        world.provider.set(|provider| provider.claims = claims.clone());
        let (mut browser, id) = login(world, "mfa", Some(ADA)).await;
        assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
        let answer = world.dance(&mut browser, "mfa", &id).await;
        assert_eq!((reason(&answer), &browser.status(&id).await.json()["completed_steps"]), (expected, &json!(1)));
    }
}

#[tokio::test]
async fn b11_a_closed_account_is_no_account() {
    let world = SsoWorld::new().await;
    let (mut browser, id) = login(&world, "web", None).await;
    assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), "ok");
    let (acme, ada) = ("acme".parse().unwrap(), "u-ada".parse().unwrap());
    world.world.users.disable(&acme, &ada).await.unwrap();
    let log = Logged::new();
    assert_eq!(why(&world, None, json!({})).await, "no_account");
    assert!(log.take()[0].contains("the account is closed"));
}

// ---- a user who takes too long

#[tokio::test]
async fn b13_a_user_who_comes_back_too_late_is_led_to_a_new_sign_in() {
    let world = SsoWorld::new().await;
    for late in [600, 600 + 3599] {
        let mut browser = world.world.browser();
        let id = begun(&mut browser, "web").await;
        let target = world.provider.signs_in(&sent(&mut browser, "web", &id).await);
        world.world.advance(late);
        let answer = browser.get(&target).await;
        assert_eq!(outcome(&answer), "expired", "{late}");
        assert!(answer.header("location").starts_with("/authentication/start?client_id=web&"), "{answer:?}");
        assert_eq!(world.provider.calls("/token").len(), 0);
    }
}

#[tokio::test]
async fn b13_a_user_whose_login_is_forgotten_gets_a_link_to_a_new_sign_in() {
    let page = async |service: fn(tollgate::auth::AuthServiceBuilder) -> tollgate::auth::AuthServiceBuilder,
                      base: &str| {
        let clock = tollgate::testing::ManualClock::new();
        let provider = crate::sso_provider::Provider::start(&clock).await;
        let connection = tollgate::sso::SsoConnection::new(crate::sso_provider::oidc(&provider));
        let more = |builder: tollgate::auth::AuthServiceBuilder| service(builder.sso("idp", connection));
        let world = crate::world::World::on(tollgate::store::Memory::new().into(), clock, more).await;
        let target = format!("{base}/authentication/sso/idp/callback?state=x.y&code=z");
        let get = |accept: &'static str| http::Request::get(&target).header("accept", accept);
        let html = world.browser().send(get("text/html"), "").await;
        assert_eq!(html.status, 401);
        (html.text, world.browser().send(get("application/json"), "").await.json())
    };
    let (html, json) = page(|service| service.first_party("acme".parse::<tollgate::Tenant>().unwrap()), "").await;
    assert!(html.contains(r#"<p><a href="/sign-in">Sign in again</a></p>"#), "{html}");
    assert!(!html.contains("This link does not work"), "{html}");
    assert_eq!((&json["error"], &json["login_url"]), (&json!("sso_failed"), &json!("/sign-in")));
    // without sign-in to the site itself, nothing is known about the application
    let (html, json) = page(|service| service, "").await;
    assert!(!html.contains("<a ") && html.contains("Please sign in again"), "{html}");
    assert_eq!(json["login_url"], Value::Null);
}

// ---- keys and claims

#[tokio::test]
async fn b14_a_key_that_is_rotated_right_after_a_sign_in_breaks_no_sign_in() {
    use crate::sso_provider::Key;
    let world = SsoWorld::new().await;
    assert_eq!(crate::sso_accounts::first_step(&world, None).await, "ok");
    let new = Key::p256("new");
    world.provider.set(|provider| (provider.published, provider.signing) = (vec![new.clone()], new));
    assert_eq!(crate::sso_accounts::first_step(&world, None).await, "ok");
    assert_eq!(world.provider.calls("/keys").len(), 2);
    // a provider whose tokens name keys that it does not publish causes no more requests
    world.provider.set(|provider| provider.signing = Key::p256("made-up"));
    for _ in 0..5 {
        assert_eq!(why(&world, None, json!({})).await, "wrong_answer");
    }
    assert_eq!(world.provider.calls("/keys").len(), 2);
}

#[tokio::test]
async fn b15_odd_claims_fail_no_sign_in_unless_they_are_required_and_the_log_names_them() {
    let odd = json!({ "amr": "pwd", "acr": 1, "name": ["Ada"], "auth_time": "today" });
    let world = SsoWorld::new().await;
    world.provider.set(|provider| provider.claims = odd.clone());
    assert_eq!(crate::sso_accounts::first_step(&world, None).await, "ok");

    let create =
        |connection: tollgate::sso::SsoConnection| connection.create_account(Accounts(&[("ada-there", "u-ada")]));
    let logged = async |settings: fn(tollgate::sso::OidcProvider) -> tollgate::sso::OidcProvider, claims: &Value| {
        let world = SsoWorld::with(settings, create).await;
        let log = Logged::new();
        assert_eq!(why(&world, None, claims.clone()).await, "wrong_answer");
        log.take().join("\n")
    };
    for (name, line) in [
        ("amr", logged(|oidc| oidc.require_amr(["pwd"]), &odd).await),
        ("acr", logged(|oidc| oidc.require_acr(["1"]), &odd).await),
        ("auth_time", logged(|oidc| oidc.max_age(std::time::Duration::from_secs(60)), &odd).await),
        ("exp", logged(|oidc| oidc, &json!({ "exp": "soon" })).await),
        ("hd", logged(|oidc| oidc.require_claim("hd", "example.com"), &json!({ "hd": 1 })).await),
    ] {
        assert!(line.contains(&format!("claim {name}")), "{name}: {line}");
    }
}

#[tokio::test]
async fn b15_rs512_is_logged_as_an_unsupported_algorithm() {
    let world = SsoWorld::new().await;
    let signing = crate::sso_provider::Key::rsa(0, jsonwebtoken::Algorithm::RS512);
    world.provider.set(|provider| provider.signing = signing);
    let log = Logged::new();
    assert_eq!(why(&world, None, json!({})).await, "wrong_answer");
    let lines = log.take().join("\n");
    assert!(lines.contains("unsupported algorithm") && !lines.contains("key"), "{lines}");
}

#[tokio::test]
async fn b16_a_missing_address_is_logged_with_the_setting_that_helps_and_the_setting_helps() {
    let creates = |connection: tollgate::sso::SsoConnection| connection.create_account(ByAddress);
    let only_sub = json!({ "email": null, "email_verified": null, "name": null });
    let world = SsoWorld::with(|oidc| oidc, creates).await;
    let log = Logged::new();
    assert_eq!(why(&world, None, only_sub.clone()).await, "no_address");
    assert!(log.take()[0].contains("set `OidcProvider::userinfo`"));

    let world = SsoWorld::with(tollgate::sso::OidcProvider::userinfo, creates).await;
    world.provider.set(|provider| {
        provider.claims = only_sub;
        provider.userinfo = json!({ "sub": "ada-there", "email": ADA, "email_verified": true });
    });
    assert_eq!(crate::sso_accounts::first_step(&world, None).await, "ok");
}

/// A hook that needs an address.
struct ByAddress;

impl tollgate::sso::CreateAccount for ByAddress {
    type Error = std::convert::Infallible;

    async fn account(
        &self,
        _: &tollgate::Tenant,
        user: &tollgate::sso::ProviderUser,
    ) -> Result<Option<tollgate::UserId>, Self::Error> {
        Ok(user.email().map(|_| "u-ada".parse().unwrap()))
    }
}

#[tokio::test]
async fn b19_a_cancelled_sign_in_is_no_warning() {
    let (world, log) = (SsoWorld::new().await, Logged::new());
    let (mut browser, id) = login(&world, "web", None).await;
    for (error, expected, warnings) in [("access_denied", "denied", 0), ("server_error", "unavailable", 1)] {
        world.provider.set(|provider| provider.callback = json!({ "code": null, "error": error }));
        assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), expected);
        let lines = log.take();
        assert_eq!(lines.len(), warnings, "{lines:?}");
    }
}
