//! Sending users to another identity provider.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::Request;
use serde_json::json;
use tollgate::{
    pkce::{CodeChallenge, CodeVerifier},
    store::Memory,
};

use crate::{
    sso_provider::{CLIENT, SECRET, SsoWorld, Trouble, asked, begun, is_open, outcome, sent},
    world::{ADA, NOBODY, World, parameters, query, with},
};

#[tokio::test]
async fn c081_unknown_providers_are_refused_and_the_login_goes_on() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    for (provider, detail) in
        [("other", "provider is unknown"), ("", "provider is missing"), ("IDP", "provider is unknown")]
    {
        let answer = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", provider)]).await;
        assert_eq!((answer.status.as_u16(), answer.error().as_str()), (400, "invalid_request"), "{provider}");
        assert_eq!(answer.json()["error_description"], detail);
    }
    assert!(is_open(&mut browser, &id).await);
    assert_eq!(world.provider.calls("/keys").len(), 0, "nothing is fetched before a user comes");
    // without any provider, nothing changes
    let plain = World::new().await;
    let mut browser = plain.browser();
    let id = browser.start("web", ADA).await;
    let answer = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", "idp")]).await;
    assert_eq!((answer.status.as_u16(), answer.error().as_str()), (400, "unsupported_method"));
    assert_eq!(browser.get("/authentication/sso/idp/callback?state=x").await.status, 404);
}

#[tokio::test]
async fn c081_the_url_of_the_provider_has_a_state_a_nonce_a_challenge_and_the_redirect_uri() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let url = sent(&mut browser, "web", &id).await;
    assert!(url.starts_with(&format!("{}/authorize?audience=x&response_type=code&", world.provider.issuer())), "{url}");
    let first = asked(&url);
    assert_eq!(first["client_id"], CLIENT);
    assert_eq!(first["redirect_uri"], "https://auth.example/authentication/sso/idp/callback");
    assert_eq!((first["scope"].as_str(), first["code_challenge_method"].as_str()), ("openid email profile", "S256"));
    let (login, secret) = first["state"].split_once('.').unwrap();
    assert_eq!((login, BASE64URL.decode(secret).unwrap().len()), (id.as_str(), 32));
    assert_eq!(BASE64URL.decode(&first["nonce"]).unwrap().len(), 32);
    // each request has its own
    let second = asked(&sent(&mut browser, "web", &id).await);
    for name in ["state", "nonce", "code_challenge"] {
        assert_ne!(first[name], second[name], "{name}");
    }
    assert!(is_open(&mut browser, &id).await);
}

#[tokio::test]
async fn c081_the_answer_is_the_same_for_every_user() {
    let world = SsoWorld::new().await;
    let mut shapes = Vec::new();
    for identifier in [ADA, NOBODY] {
        let mut browser = world.world.browser();
        let id = browser.start("web", identifier).await;
        let answer = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", "idp")]).await;
        let mut body = answer.json();
        let url = body["redirect_url"].take();
        body["session_id"].take();
        shapes.push((answer.status, body, asked(url.as_str().unwrap()).keys().cloned().collect::<Vec<_>>()));
    }
    assert_eq!(shapes[0], shapes[1]);
}

#[tokio::test]
async fn providers_are_offered_at_the_start_and_to_the_login_page() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let offered = json!([{ "name": "idp", "label": "Example ID" }]);
    let started = browser.post("/authentication/start", &parameters("web")).await.json();
    assert_eq!(started["providers"], offered);
    assert!(started["available_methods"].as_array().unwrap().contains(&json!("sso")));
    let request = Request::get(format!("/authentication/start?{}", query("web"))).header("accept", "application/json");
    assert_eq!(browser.send(request, "").await.json()["providers"], offered);
    // another tenant has no provider
    let acme = "acme".parse().unwrap();
    let world = SsoWorld::on(Memory::new().into(), |oidc| oidc, |connection| connection.only_tenant(&acme)).await;
    let mut browser = world.world.browser();
    let started = browser.post("/authentication/start", &parameters("other")).await.json();
    assert_eq!(started["providers"], json!(null));
    assert!(!started["available_methods"].as_array().unwrap().contains(&json!("sso")));
    let id = started["session_id"].as_str().unwrap();
    let answer = browser.call("authenticate", "other", id, &[("method", "sso"), ("provider", "idp")]).await;
    assert_eq!(answer.error(), "unsupported_method");
}

#[tokio::test]
async fn the_user_returns_to_the_query_of_their_login_page() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let full = format!("{}&state=of%20the+client&acr_values=x&ui_locales=de", query("web"));
    let begin = [("method", "sso"), ("provider", "idp")];
    for (sent, returned) in [(None, query("web")), (Some(full.as_str()), full.clone())] {
        let mut fields = begin.to_vec();
        fields.extend(sent.map(|query| ("query", query)));
        let answer = browser.call("authenticate", "web", &id, &fields).await.json();
        world.provider.set(|provider| provider.callback = json!({ "code": null, "error": "access_denied" }));
        let answer = browser.get(&world.provider.signs_in(answer["redirect_url"].as_str().unwrap())).await;
        assert_eq!(outcome(&answer), "denied");
        let page = answer.header("location").strip_prefix("/authentication/start?").unwrap();
        let pairs = |text: &str| crate::sso_provider::pairs(text.split('#').next().unwrap());
        assert_eq!(pairs(page), pairs(&returned));
        if sent.is_some() {
            assert_eq!(page, format!("{full}#sso=denied"));
        }
    }
    let begun = format!("{}&state=", query("web"));
    let longest = format!("{begun}{}", "x".repeat(2048 - begun.len()));
    let answer = browser.call("authenticate", "web", &id, &[begin[0], begin[1], ("query", &longest)]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let long = longest + "x";
    for bad in ["client_id=mfa", "x", "client_id=web&client_id=web", "client_id=web#x", "client_id=web&x= y", &long] {
        let fields = [begin[0], begin[1], ("query", bad)];
        let answer = browser.call("authenticate", "web", &id, &fields).await;
        assert_eq!((answer.status.as_u16(), answer.error().as_str()), (400, "invalid_request"), "{bad}");
    }
}

#[tokio::test]
async fn a_provider_that_is_down_is_a_clear_answer_and_others_are_not_affected() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let metadata = "/.well-known/openid-configuration";
    let elsewhere = format!("{}/keys", world.provider.issuer());
    let id = begun(&mut browser, "web").await;
    for (path, trouble) in [
        (metadata, Trouble::Status(500)),
        (metadata, Trouble::Floods),
        (metadata, Trouble::Redirects(elsewhere.clone())),
        (
            metadata,
            Trouble::Says(r#"{"issuer":"https://other.example","jwks_uri":"https://other.example"}"#.to_owned()),
        ),
        (metadata, Trouble::Says("{".to_owned())),
        ("/keys", Trouble::Floods),
        ("/keys", Trouble::Redirects(elsewhere)),
        ("/keys", Trouble::Says("[]".to_owned())),
    ] {
        world.provider.set(|provider| provider.trouble = [(path, trouble.clone())].into());
        let answer = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", "idp")]).await;
        assert_eq!((answer.status.as_u16(), answer.error().as_str()), (502, "provider_unavailable"), "{trouble:?}");
        assert_eq!(answer.json()["status"], "pending");
        // the next attempt is made after a pause
        world.world.advance(31);
    }
    world.provider.set(|provider| provider.trouble.clear());
    sent(&mut browser, "web", &id).await;
    // the endpoints of the metadata must be there, and must be safe
    for wrong in [json!(null), json!("file:///authorize"), json!(5)] {
        let world = SsoWorld::new().await;
        world.provider.set(|provider| provider.metadata = json!({ "authorization_endpoint": wrong }));
        let mut browser = world.world.browser();
        let id = begun(&mut browser, "web").await;
        let answer = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", "idp")]).await;
        assert_eq!(answer.error(), "provider_unavailable", "{wrong}");
    }
}

#[tokio::test]
async fn a_provider_that_never_answers_delays_only_its_own_sign_ins() {
    // much longer than a login takes on a busy machine
    let limit = std::time::Duration::from_secs(5);
    let world = SsoWorld::with(|oidc| oidc.timeout(limit).unwrap(), |connection| connection).await;
    let metadata = "/.well-known/openid-configuration";
    world.provider.set(|provider| provider.trouble = [(metadata, Trouble::Hangs)].into());
    let (mut waiting, mut other) = (world.world.browser(), world.world.browser());
    let id = begun(&mut waiting, "web").await;
    let fields = [("method", "sso"), ("provider", "idp")];
    let order = std::sync::Mutex::new(Vec::new());
    let slow = async {
        let answer = waiting.call("authenticate", "web", &id, &fields).await;
        order.lock().unwrap().push("slow");
        answer
    };
    let quick = async {
        let answer = other.log_in("web", ADA).await;
        order.lock().unwrap().push("quick");
        answer
    };
    let (slow, _) = tokio::join!(slow, quick);
    assert_eq!(slow.error(), "provider_unavailable");
    assert_eq!(*order.lock().unwrap(), ["quick", "slow"]);
}

#[tokio::test]
async fn the_audience_of_assertions_is_set_before_or_after_the_key() {
    let before = SsoWorld::with(
        |oidc| oidc.assertion_audience("https://idp.example/token").private_key(private_key(), None).unwrap(),
        |connection| connection,
    );
    let after = SsoWorld::with(
        |oidc| oidc.private_key(private_key(), None).unwrap().assertion_audience("https://idp.example/token"),
        |connection| connection,
    );
    for world in [before.await, after.await] {
        let mut browser = world.world.browser();
        let id = begun(&mut browser, "web").await;
        world.dance(&mut browser, "web", &id).await;
        let (_, form) = &world.provider.calls("/token")[0];
        let claims = BASE64URL.decode(form["client_assertion"].split('.').nth(1).unwrap()).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["aud"], "https://idp.example/token");
    }
}

#[tokio::test]
async fn the_client_authenticates_as_configured() {
    let basic = SsoWorld::new().await;
    let post =
        SsoWorld::with(|oidc| oidc.secret_in_body(tollgate::sso::ClientSecret::new(SECRET)), |connection| connection)
            .await;
    let key = private_key();
    let signed = SsoWorld::with(|oidc| oidc.private_key(key, Some("k-1")).unwrap(), |connection| connection).await;
    for (world, kind) in [(&basic, "basic"), (&post, "post"), (&signed, "key")] {
        let mut browser = world.world.browser();
        let id = begun(&mut browser, "web").await;
        world.dance(&mut browser, "web", &id).await;
        let calls = world.provider.calls("/token");
        let (headers, form) = &calls[0];
        let header = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(form["grant_type"], "authorization_code");
        let verifier = CodeVerifier::parse(&form["code_verifier"]).unwrap();
        assert_eq!(CodeChallenge::from_verifier(&verifier).as_str().len(), 43);
        match kind {
            "basic" => {
                // our-client, and the secret as a form encodes it
                let pair = "our-client:a%20secret%2Fwith%3A%20signs";
                let expected = base64::engine::general_purpose::STANDARD.encode(pair);
                assert_eq!(header, Some(format!("Basic {expected}")));
                assert!(!form.contains_key("client_secret") && !form.contains_key("client_id"));
            }
            "post" => {
                assert_eq!(
                    (header, form["client_secret"].as_str(), form["client_id"].as_str()),
                    (None, SECRET, CLIENT)
                );
            }
            _ => {
                assert_eq!(header, None);
                assert_eq!(form["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
                let parts: Vec<&str> = form["client_assertion"].split('.').collect();
                let read = |part: &str| -> serde_json::Value {
                    serde_json::from_slice(&BASE64URL.decode(part).unwrap()).unwrap()
                };
                let (head, claims) = (read(parts[0]), read(parts[1]));
                assert_eq!((&head["alg"], &head["kid"]), (&json!("ES256"), &json!("k-1")));
                assert_eq!(claims["iss"], CLIENT);
                assert_eq!((&claims["sub"], &claims["aud"]), (&json!(CLIENT), &json!(world.provider.issuer())));
                assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
                assert_eq!(claims["jti"].as_str().unwrap().len(), 22);
            }
        }
    }
}

/// Returns a new private key as PEM.
fn private_key() -> String {
    use aws_lc_rs::{rand::SystemRandom, signature::ECDSA_P256_SHA256_FIXED_SIGNING, signature::EcdsaKeyPair};
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    let text = base64::engine::general_purpose::STANDARD.encode(pkcs8.as_ref());
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
}

#[tokio::test]
async fn a_login_that_is_signed_in_elsewhere_needs_the_same_parameters_as_ever() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let body =
        with(parameters("web"), &[("session_id", &id), ("method", "sso"), ("provider", "idp"), ("scope", "email")]);
    assert_eq!(browser.post("/authentication/authenticate", &body).await.error(), "invalid_request");
}
