//! `POST /token`: requests that get tokens, and requests that are refused.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Method, Request};
use tollgate::{
    pkce::{CodeChallenge, CodeVerifier},
    store::Key,
};

use crate::{
    controlled_store::ControlledStore,
    issued_tokens::IssuedTokens,
    special_worlds::world_with,
    token_requests::{Fields, Grant, redemption, refused, set, without},
    world::{CALLBACK, VERIFIER, World, challenge, form_of, join, posted},
};

const SPENT_OR_WRONG: &str = "400\ncontent-type: application/json\npragma: no-cache\n\n\
    {\"error\":\"invalid_grant\",\"error_description\":\"the authorization code is invalid, expired or was issued for another request\"}\n";

#[tokio::test]
async fn c089_the_response_must_not_be_cached() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let answer = browser.redeem("web", &code).await;
    let IssuedTokens { access, refresh, id, scope } = IssuedTokens::of(&answer);
    let (refresh, id) = (refresh.unwrap(), id.unwrap());
    let body = format!(
        r#"{{"access_token":"{access}","token_type":"Bearer","expires_in":600,"refresh_token":"{refresh}","id_token":"{id}","scope":"{scope}"}}"#
    );
    // `own` checks `cache-control: no-store`
    assert_eq!(answer.own(), format!("200\ncontent-type: application/json\npragma: no-cache\n\n{body}\n"));
    assert_eq!(browser.redeem("web", &code).await.own(), SPENT_OR_WRONG);
    let next = browser.refresh("web", &refresh).await;
    assert_eq!((next.header("cache-control"), next.header("pragma")), ("no-store", "no-cache"));
}

#[tokio::test]
async fn c022_a_code_has_256_bits_and_is_stored_under_its_digest() {
    let world = World::new().await;
    let code = world.browser().sign_in("web").await;
    assert_eq!(code.code.len(), 43);
    // the challenge of a verifier is its SHA-256 digest
    let digest = CodeChallenge::from_verifier(&CodeVerifier::parse(&code.code).unwrap());
    let digest = URL_SAFE_NO_PAD.decode(digest.to_string()).unwrap();
    let key = |id: &[u8]| Key::new("codes", None, id).unwrap();
    assert!(world.store.get(&key(&digest)).wait().await.unwrap().is_some());
    assert!(world.store.get(&key(code.code.as_bytes())).wait().await.unwrap().is_none());
}

#[tokio::test]
async fn c022_a_code_works_once_and_for_sixty_seconds() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    world.clock.advance(std::time::Duration::from_nanos(59_999_999_999));
    assert_eq!(browser.redeem("web", &code).await.status, 200);
    assert_eq!(browser.redeem("web", &code).await.own(), SPENT_OR_WRONG);
    let code = browser.sign_in("web").await;
    world.advance(60);
    assert_eq!(browser.redeem("web", &code).await.own(), SPENT_OR_WRONG);
}

#[tokio::test]
async fn c088_only_a_posted_form_is_accepted() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let fields = redemption("web", &code);
    let form = form_of(&fields);
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::PATCH] {
        let request = Request::builder().method(&method).uri(format!("/token?{form}"));
        let answer = browser.send(request, "").await;
        assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, "POST, OPTIONS"), "{method}");
    }
    let json = serde_json::json!(fields.iter().copied().collect::<std::collections::BTreeMap<_, _>>());
    for (content_type, body) in [
        ("application/json", json.to_string()),
        ("text/plain", form.clone()),
        ("multipart/form-data; boundary=x", form.clone()),
        ("application/x-www-form-urlencoded-2", form.clone()),
        ("", form.clone()),
    ] {
        let answer = browser.send(Request::post("/token").header("content-type", content_type), body).await;
        let detail = "the body must be uncompressed application/x-www-form-urlencoded";
        assert_eq!(answer.own(), refused(415, "unsupported_media_type", detail), "{content_type}");
    }
    let post =
        |target: &str| Request::post(target).header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    for (target, body) in [
        ("/token", format!("{form}&code={}", code.code)),
        ("/token", format!("{form}&client_id=web")),
        ("/token", format!("{form}&x=1&x=2")),
    ] {
        let answer = browser.send(post(target), body).await;
        assert_eq!(answer.own(), refused(400, "invalid_request", "a parameter appears more than once"));
    }
    for (target, body) in [
        (format!("/token?{form}"), String::new()),
        (format!("/token?{form}"), form.clone()),
        (format!("/token?code={}", code.code), form.clone()),
        ("/token?x".to_owned(), form.clone()),
    ] {
        let answer = browser.send(post(&target), body).await;
        assert_eq!(
            answer.own(),
            refused(400, "invalid_request", "parameters must be sent in the request body"),
            "{target}"
        );
    }
    let long = browser.send(post("/token"), format!("{form}&x={}", "x".repeat(64 * 1024))).await;
    // the rest of it is not read
    let too_large = refused(413, "content_too_large", "the body is longer than 64 KiB");
    assert_eq!(long.own(), too_large.replacen('\n', "\nconnection: close\n", 1));
    // none of these used up the code; unknown parameters are ignored, and empty ones count as absent
    let more = set(&set(&fields, "redirect_uri", ""), "scope", "");
    assert_eq!(browser.form("/token", &[&more[..], &[("colour", "x")]].concat()).await.status, 200);
}

#[tokio::test]
async fn c088_missing_parameters_are_named_and_empty_ones_count_as_missing() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let fields = redemption("web", &code);
    for name in ["grant_type", "client_id", "code", "code_verifier"] {
        let expected = refused(400, "invalid_request", &format!("{name} is missing"));
        assert_eq!(browser.form("/token", &without(&fields, name)).await.own(), expected);
        assert_eq!(browser.form("/token", &set(&fields, name, "")).await.own(), expected);
    }
    let fields = [("grant_type", "refresh_token"), ("client_id", "web")];
    let expected = refused(400, "invalid_request", "refresh_token is missing");
    assert_eq!(browser.form("/token", &fields).await.own(), expected);
}

#[tokio::test]
async fn c090_every_mismatch_gets_the_same_error_and_uses_up_nothing() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let fields = redemption("web", &code);
    let other = "A".repeat(43);
    let mut answers = Vec::new();
    for (name, value) in [
        ("client_id", "mfa"),
        ("client_id", "other"),
        ("redirect_uri", crate::world::WITH_QUERY),
        ("redirect_uri", "https://app.example/callback/"),
        ("redirect_uri", "https://evil.example/"),
        ("code_verifier", &other),
        ("code_verifier", VERIFIER),
        ("code_verifier", &code.verifier.to_uppercase()),
        ("code", &other),
        ("code", "x"),
        ("code", &code.code.to_uppercase()),
        ("code", &format!("{}A", code.code)),
    ] {
        answers.push((name, browser.form("/token", &set(&fields, name, value)).await));
    }
    assert_eq!(browser.form("/token", &fields).await.status, 200, "the code still works");
    answers.push(("spent", browser.form("/token", &fields).await));
    let code = browser.sign_in("web").await;
    world.advance(60);
    answers.push(("expired", browser.redeem("web", &code).await));
    for (name, answer) in answers {
        assert_eq!(answer.own(), SPENT_OR_WRONG, "{name}");
    }
    // the redirect URI may be omitted, because PKCE binds the code
    let code = browser.sign_in("web").await;
    let answer = browser.form("/token", &without(&redemption("web", &code), "redirect_uri")).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn c090_a_loopback_redirect_uri_is_compared_with_its_port() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("native").await;
    let fields = redemption("native", &code);
    for other in ["http://127.0.0.1/callback", "http://127.0.0.1:51005/callback", CALLBACK] {
        assert_eq!(browser.form("/token", &set(&fields, "redirect_uri", other)).await.own(), SPENT_OR_WRONG);
    }
    assert_eq!(browser.form("/token", &fields).await.status, 200);
}

#[tokio::test]
async fn c091_verifiers_are_checked_as_in_rfc_7636() {
    // the test vector of appendix B
    assert_eq!(challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    let world = World::new().await;
    let mut browser = world.browser();
    let code = Grant::from(browser.sign_in_with("web", &[("code_challenge", &challenge())]).await.code);
    let fields = redemption("web", &code);
    let malformed = refused(400, "invalid_request", "code_verifier is malformed");
    for bad in [
        &VERIFIER[..42],
        &"a".repeat(129),
        &format!("{}+", &VERIFIER[..42]),
        &format!("{}/", &VERIFIER[..42]),
        &format!("{VERIFIER}="),
        &format!("{VERIFIER} "),
        &format!("{}ä", &VERIFIER[..42]),
        &format!("{}\0", &VERIFIER[..42]),
        "x",
    ] {
        assert_eq!(browser.form("/token", &set(&fields, "code_verifier", bad)).await.own(), malformed, "{bad}");
    }
    // the challenge itself has the form of a verifier
    for wrong in [&challenge(), &"~".repeat(43), &"-".repeat(128), &format!("{VERIFIER}A")] {
        assert_eq!(browser.form("/token", &set(&fields, "code_verifier", wrong)).await.own(), SPENT_OR_WRONG);
    }
    assert_eq!(browser.form("/token", &fields).await.status, 200);
    for right in ["~".repeat(43), "._~-".repeat(32)] {
        let challenge = CodeChallenge::from_verifier(&CodeVerifier::parse(&right).unwrap()).to_string();
        let code = browser.sign_in_with("web", &[("code_challenge", &challenge)]).await;
        assert_eq!(browser.redeem("web", &code).await.own(), SPENT_OR_WRONG);
        assert_eq!(browser.form("/token", &set(&redemption("web", &code), "code_verifier", &right)).await.status, 200);
    }
}

#[tokio::test]
async fn c093_of_concurrent_redemptions_one_gets_tokens() {
    let store = ControlledStore::default();
    let world = World::with(store.clone(), |service| service).await;
    let mut browser = world.browser();
    browser.tokens("web", "openid").await;
    store.yields();
    for _ in 0..5 {
        let code = browser.sign_in("web").await;
        let mut tries: Vec<_> = (0..4).map(|_| browser.clone()).collect();
        let answers = join(tries.iter_mut().map(|browser| browser.redeem("web", &code))).await;
        let issued: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
        assert_eq!(issued.len(), 1, "{answers:?}");
        for answer in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!(answer.own(), SPENT_OR_WRONG);
        }
        // and the others did not revoke them
        let access = IssuedTokens::of(issued[0]).access;
        assert_eq!(browser.opens(&world, "web", &access).await, [true; 3]);
    }
}

#[tokio::test]
async fn c094_other_grant_types_are_not_supported() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let fields = redemption("web", &code);
    let expected = refused(400, "unsupported_grant_type", "this grant_type is not supported");
    for other in ["password", "implicit", "Authorization_Code", "authorization_code ", "x"] {
        assert_eq!(browser.form("/token", &set(&fields, "grant_type", other)).await.own(), expected, "{other}");
    }
    let unknown = refused(400, "invalid_client", "client_id is unknown");
    for client in ["nobody", "WEB", &"x".repeat(10_000)] {
        assert_eq!(browser.form("/token", &set(&fields, "client_id", client)).await.own(), unknown);
    }
}

#[tokio::test]
async fn c094_credentials_of_public_clients_are_refused() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let fields = redemption("web", &code);
    let expected = "401\ncontent-type: application/json\npragma: no-cache\nwww-authenticate: Basic realm=\"token\"\n\n\
        {\"error\":\"invalid_client\",\"error_description\":\"public clients do not authenticate\"}\n";
    let jwt = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    for more in [("client_secret", "x"), ("client_assertion", "x"), ("client_assertion_type", jwt)] {
        assert_eq!(browser.form("/token", &[&fields[..], &[more]].concat()).await.own(), expected);
    }
    for shown in ["Basic d2ViOg==", "Basic d2ViOnNlY3JldA==", "Bearer x", "x"] {
        let form: Fields<'_> = without(&fields, "client_id");
        // the header names the client, too
        let unknown = expected.replace("public clients do not authenticate", "the client is unknown");
        let unnamed = if shown.starts_with("Basic") { expected.to_owned() } else { unknown };
        for (fields, expected) in [(&fields, expected), (&form, &unnamed)] {
            let request = posted("/token").header("authorization", shown);
            assert_eq!(browser.send(request, form_of(fields)).await.own(), expected, "{shown}");
        }
    }
    assert_eq!(browser.form("/token", &set(&fields, "client_secret", "")).await.status, 200, "empty is omitted");
}

#[tokio::test]
async fn c094_a_client_without_refresh_tokens_cannot_use_any() {
    let world = world_with(tollgate::Client::without_refresh_tokens).await;
    let mut browser = world.browser();
    let issued = browser.tokens("special", "openid").await;
    assert_eq!(issued.refresh, None);
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [true; 3]);
    let answer = browser.refresh("special", "x").await;
    assert_eq!(answer.own(), refused(400, "unauthorized_client", "this client may not use refresh tokens"));
}

#[tokio::test]
async fn without_the_scope_openid_there_is_no_id_token() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "profile").await;
    assert_eq!((issued.id, &*issued.scope), (None, "profile"));
}
