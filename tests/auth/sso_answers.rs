//! Answers of identity providers that are wrong in one way, and answers that are right in an unusual way.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::{
    sso_provider::{Behavior, CLIENT, Key, SsoWorld, Trouble, begun, is_open, outcome},
    world::Browser,
};

/// A change of the provider.
type Change = Box<dyn FnOnce(&mut Behavior)>;

/// Changes the provider for one sign-in and returns its outcome. The login is alive afterwards.
async fn tried(world: &SsoWorld, browser: &mut Browser, id: &str, change: impl FnOnce(&mut Behavior)) -> String {
    let mut before = None;
    world.provider.set(|provider| before = Some(provider.clone()));
    world.provider.set(change);
    let answer = world.dance(browser, "web", id).await;
    world.provider.set(|provider| *provider = before.unwrap());
    outcome(&answer).to_owned()
}

/// Replaces a time by one that is this many seconds from now.
fn time(name: &'static str, seconds: f64) -> Change {
    Box::new(move |provider| provider.times.push((name, seconds)))
}

/// Replaces a claim.
fn claim(name: &'static str, value: Value) -> Change {
    Box::new(move |provider| provider.claims[name] = value)
}

#[tokio::test]
async fn c083_every_wrong_answer_is_refused_and_the_login_stays_alive() {
    let world = SsoWorld::new().await;
    let elsewhere = format!("{}/elsewhere", world.provider.issuer());
    let stolen = Key::p256("rsa-1");
    let cases: Vec<(&str, Change)> = vec![
        ("another issuer", claim("iss", json!("https://other.example"))),
        ("no issuer", claim("iss", json!(null))),
        ("another audience", claim("aud", json!("another-client"))),
        ("no audience", claim("aud", json!([]))),
        ("a second audience", claim("aud", json!([CLIENT, "another-client"]))),
        ("another authorized party", claim("azp", json!("another-client"))),
        ("another nonce", claim("nonce", json!("x"))),
        ("no nonce", claim("nonce", json!(null))),
        ("expired", time("exp", -60.0)),
        ("no expiry", claim("exp", json!(null))),
        ("from the future", time("iat", 61.0)),
        ("no time", claim("iat", json!(null))),
        ("not yet valid", time("nbf", 61.0)),
        ("no subject", claim("sub", json!(null))),
        ("an empty subject", claim("sub", json!(""))),
        ("a long subject", claim("sub", json!("x".repeat(256)))),
        ("an access token", Box::new(|provider| provider.typ = Some("at+jwt"))),
        ("an unknown key", Box::new(|provider| provider.signing = Key::p256("unknown"))),
        ("another key of the same id", Box::new(move |provider| provider.signing = stolen)),
        (
            "another algorithm of the key",
            Box::new(|provider| {
                provider.signing = Key::p256("rsa-1");
                provider.forge = |token| with_header(&token, &json!({ "alg": "RS256", "kid": "rsa-1" }));
            }),
        ),
        (
            "no signature",
            Box::new(|provider| {
                provider.forge = |token| {
                    let token = with_header(&token, &json!({ "alg": "none", "kid": "rsa-1" }));
                    format!("{}.", token.rsplit_once('.').unwrap().0)
                };
            }),
        ),
        (
            "a symmetric key",
            Box::new(|provider| {
                provider.forge = |token| with_header(&token, &json!({ "alg": "HS256", "kid": "rsa-1" }));
            }),
        ),
        (
            "a critical extension",
            Box::new(|provider| {
                provider.forge = |token| with_header(&token, &json!({ "alg": "RS256", "kid": "rsa-1", "crit": ["x"] }));
            }),
        ),
        (
            "a changed claim",
            Box::new(|provider| {
                provider.forge = |token| {
                    let parts: Vec<&str> = token.split('.').collect();
                    let mut claims: Value = serde_json::from_slice(&BASE64URL.decode(parts[1]).unwrap()).unwrap();
                    claims["name"] = json!("Grace");
                    format!("{}.{}.{}", parts[0], BASE64URL.encode(claims.to_string()), parts[2])
                };
            }),
        ),
        ("no token at all", Box::new(|provider| provider.forge = |_| String::new())),
        ("a huge token", Box::new(|provider| provider.forge = |token| token + &"A".repeat(20_000))),
        (
            "another issuer in the callback",
            Box::new(|provider| provider.callback = json!({ "iss": "https://o.example" })),
        ),
        ("no issuer in the callback", Box::new(|provider| provider.callback = json!({ "iss": null }))),
        ("no code", Box::new(|provider| provider.callback = json!({ "code": null }))),
        ("a wrong code", Box::new(|provider| provider.callback = json!({ "code": "guessed" }))),
        ("a huge code", Box::new(|provider| provider.callback = json!({ "code": "x".repeat(5000) }))),
        ("a refused code", trouble(Trouble::Status(400))),
        ("refused client", trouble(Trouble::Status(401))),
        ("a redirect", trouble(Trouble::Redirects(elsewhere))),
        ("a huge response", trouble(Trouble::Floods)),
        ("no JSON", trouble(Trouble::Says("<html>".to_owned()))),
        ("no ID token", trouble(Trouble::Says(r#"{"access_token":"x"}"#.to_owned()))),
        ("two ID tokens", trouble(Trouble::Says(r#"{"id_token":"a.b.c","id_token":"a.b.c"}"#.to_owned()))),
    ];
    let mut accepted = Vec::new();
    for (case, change) in cases {
        let mut browser = world.world.browser();
        let id = begun(&mut browser, "web").await;
        if tried(&world, &mut browser, &id, change).await != "failed" {
            accepted.push(case);
            continue;
        }
        assert!(is_open(&mut browser, &id).await, "{case}");
        assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), "ok", "after {case}");
        // unknown key ids are looked up every 30 seconds at most
        world.world.advance(31);
    }
    assert!(accepted.is_empty(), "{accepted:?}");
    assert!(world.provider.calls("/elsewhere").is_empty(), "no redirect is followed");
}

fn trouble(trouble: Trouble) -> Change {
    Box::new(|provider| drop(provider.trouble.insert("/token", trouble)))
}

fn with_header(token: &str, header: &Value) -> String {
    let (_, rest) = token.split_once('.').unwrap();
    format!("{}.{rest}", BASE64URL.encode(header.to_string()))
}

#[tokio::test]
async fn c083_a_provider_that_fails_meanwhile_is_unavailable_and_costs_no_attempt() {
    let limit = std::time::Duration::from_secs(3);
    let world = SsoWorld::with(
        |oidc| oidc.timeout(limit).unwrap(),
        |connection| connection.create_account(crate::sso_provider::Accounts(&[("ada-there", "u-ada")])),
    )
    .await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    for case in [Trouble::Status(500), Trouble::Status(503), Trouble::Status(429), Trouble::Hangs] {
        assert_eq!(tried(&world, &mut browser, &id, trouble(case.clone())).await, "unavailable", "{case:?}");
        assert!(is_open(&mut browser, &id).await, "{case:?}");
    }
    for _ in 0..20 {
        assert_eq!(tried(&world, &mut browser, &id, trouble(Trouble::Status(500))).await, "unavailable");
    }
    assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), "ok");
}

#[tokio::test]
async fn c083_providers_that_sign_in_their_own_way_work() {
    let world = SsoWorld::new().await;
    let (rsa, p256, p384) = (Key::rsa(1, Algorithm::PS256), Key::p256("p256"), Key::p384("p384"));
    let signed = |key: &Key, typ: Option<&'static str>| -> Change {
        let key = key.clone();
        Box::new(move |provider| {
            provider.published.push(key.clone());
            (provider.signing, provider.typ) = (key, typ);
        })
    };
    let cases: Vec<(&str, Change)> = vec![
        ("PS256", signed(&rsa, Some("JWT"))),
        ("ES384", signed(&p384, Some("JWT"))),
        ("ES256", signed(&p256, Some("jwt"))),
        ("no typ", signed(&Key::rsa(0, Algorithm::RS256).named("again"), None)),
        ("one audience in a list", claim("aud", json!([CLIENT]))),
        ("an authorized party", claim("azp", json!(CLIENT))),
        ("a clock that is behind", time("exp", -59.0)),
        ("a clock that is ahead", time("iat", 60.0)),
        ("fractions of seconds", time("exp", 100.5)),
        ("claims of other types", claim("address", json!({ "country": ["x"] }))),
    ];
    for (case, change) in cases {
        let mut browser = world.world.browser();
        let id = begun(&mut browser, "web").await;
        assert_eq!(tried(&world, &mut browser, &id, change).await, "ok", "{case}");
        world.world.advance(31);
    }
}

#[tokio::test]
async fn c083_rotated_keys_are_found_and_withdrawn_ones_refused() {
    let world = SsoWorld::new().await;
    let (first, second) = (Key::rsa(0, Algorithm::RS256), Key::p256("second"));
    for (published, signing, expected) in [
        (vec![first.clone()], first.clone(), "ok"),
        (vec![first.clone(), second.clone()], second.clone(), "ok"),
        (vec![second.clone()], second.clone(), "ok"),
        (vec![Key::p384("third")], Key::p384("other"), "failed"),
        (vec![second.clone()], first, "failed"),
        (vec![second.clone()], second, "ok"),
    ] {
        world.provider.set(|provider| (provider.published, provider.signing) = (published, signing));
        let mut browser = world.world.browser();
        let id = begun(&mut browser, "web").await;
        assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), expected);
        world.world.advance(31);
    }
}

#[tokio::test]
async fn c084_a_level_that_is_required_of_the_provider_is_verified() {
    let create = |connection: tollgate::sso::SsoConnection| {
        connection.create_account(crate::sso_provider::Accounts(&[("ada-there", "u-ada")]))
    };
    let age = std::time::Duration::from_secs(300);
    let world =
        SsoWorld::with(|oidc| oidc.require_acr(["gold", "silver"]).require_amr(["mfa"]).max_age(age), create).await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let asked = crate::sso_provider::asked(&crate::sso_provider::sent(&mut browser, "web", &id).await);
    assert_eq!((asked["acr_values"].as_str(), asked["max_age"].as_str()), ("gold silver", "300"));
    let now = world.provider.now();
    let good = json!({ "acr": "silver", "amr": ["pwd", "mfa"], "auth_time": now - 360 });
    for (claims, expected) in [
        (json!({ "acr": null }), "failed"),
        (json!({ "acr": "bronze" }), "failed"),
        (json!({ "amr": null }), "failed"),
        (json!({ "amr": ["pwd"] }), "failed"),
        (json!({ "auth_time": null }), "failed"),
        (json!({ "auth_time": now - 361 }), "failed"),
        (json!({}), "ok"),
    ] {
        let mut all = good.clone();
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        let found = tried(&world, &mut browser, &id, |provider| provider.claims = all).await;
        assert_eq!(found, expected, "{claims}");
    }
}

#[tokio::test]
async fn c084_a_required_claim_must_be_in_the_id_token() {
    let create = |connection: tollgate::sso::SsoConnection| {
        connection.create_account(crate::sso_provider::Accounts(&[("ada-there", "u-ada")]))
    };
    let world = SsoWorld::with(|oidc| oidc.require_claim("hd", "example.com").userinfo(), create).await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    // the userinfo endpoint does not count
    let userinfo = json!({ "sub": "ada-there", "hd": "example.com" });
    for (hd, expected) in [
        (json!(null), "failed"),
        (json!("other.example"), "failed"),
        (json!(["example.com"]), "failed"),
        (json!("example.com"), "ok"),
    ] {
        let found = tried(&world, &mut browser, &id, |provider| {
            (provider.claims["hd"], provider.userinfo) = (hd.clone(), userinfo.clone());
        });
        assert_eq!(found.await, expected, "{hd}");
    }
}

#[tokio::test]
async fn c083_userinfo_must_describe_the_same_user() {
    let create = |connection: tollgate::sso::SsoConnection| {
        connection.create_account(crate::sso_provider::Accounts(&[("ada-there", "u-ada")]))
    };
    let world = SsoWorld::with(tollgate::sso::OidcProvider::userinfo, create).await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    for (userinfo, expected) in [
        (json!({ "sub": "grace-there" }), "failed"),
        (json!({}), "failed"),
        (json!({ "sub": "ada-there", "email": "a@b.example" }), "ok"),
    ] {
        let found = tried(&world, &mut browser, &id, |provider| provider.userinfo = userinfo.clone()).await;
        assert_eq!(found, expected, "{userinfo}");
    }
    let (headers, _) = world.provider.calls("/userinfo").pop().unwrap();
    assert_eq!(headers["authorization"], "Bearer their-access-token");
}

#[tokio::test]
async fn c083_issuers_of_many_directories_are_accepted_by_explicit_choice_only() {
    use tollgate::sso::{OidcProvider, SsoConnection};
    // the placeholder is part of an https URL, so this checks the setting alone
    let template = "https://login.example/{tenantid}/v2.0";
    assert!(OidcProvider::new("https://login.example/common/v2.0", CLIENT).unwrap().issuer_template(template).is_ok());
    for bad in ["https://login.example/v2.0", "http://login.example/{tenantid}", "{tenantid}"] {
        assert!(OidcProvider::new("https://a.example", CLIENT).unwrap().issuer_template(bad).is_err(), "{bad}");
    }
    let directory = "https://login.example/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0";
    let create =
        |connection: SsoConnection| connection.create_account(crate::sso_provider::Accounts(&[("ada-there", "u-ada")]));
    let world = SsoWorld::with(|oidc| oidc.issuer_template(template).unwrap(), create).await;
    world.provider.set(|provider| {
        provider.metadata = json!({ "issuer": template, "authorization_response_iss_parameter_supported": null });
        provider.callback = json!({ "iss": null });
    });
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let tid = "9188040d-6c67-4c5b-b112-36a304b66dad";
    for (claims, iss, expected) in [
        (json!({ "iss": directory, "tid": tid }), Value::Null, "ok"),
        (json!({ "iss": directory, "tid": "another" }), Value::Null, "failed"),
        (json!({ "iss": directory }), Value::Null, "failed"),
        (json!({ "iss": template, "tid": "{tenantid}" }), Value::Null, "failed"),
        (json!({ "iss": "https://login.example/a/b/v2.0", "tid": "a/b" }), Value::Null, "failed"),
        (json!({ "iss": directory, "tid": tid }), json!(directory), "ok"),
        (json!({ "iss": directory, "tid": tid }), json!("https://login.example/other/v2.0"), "failed"),
        (json!({ "iss": directory, "tid": tid }), json!("https://evil.example/"), "failed"),
    ] {
        let id = if expected == "ok" { begun(&mut browser, "web").await } else { id.clone() };
        let found = tried(&world, &mut browser, &id, |provider| {
            (provider.claims, provider.callback) = (claims.clone(), json!({ "iss": iss }));
        });
        assert_eq!(found.await, expected, "{claims} {iss}");
    }
}
