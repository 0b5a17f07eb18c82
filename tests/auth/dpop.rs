//! Tokens that are bound to a key (DPoP, RFC 9449).

use http::Request;
use tollgate::{
    Client, ClientTable, Secret, Tokens,
    store::{AnyStore, Memory},
    testing::{DpopKey, ManualClock},
};

use crate::{
    issued_tokens::{IssuedTokens, claims, shown_at_layer},
    special_worlds::{client, world_with},
    token_requests::{Fields, Grant, redemption, refused, set},
    world::{ADA, Answer, Browser, ISSUER, World, encode, form_of, posted, query},
};

fn url(path: &str) -> String {
    format!("{ISSUER}{path}")
}

/// Posts a form with these proofs.
async fn post(browser: &mut Browser, proofs: &[&str], fields: &[(&str, &str)]) -> Answer {
    let mut request = posted("/token");
    for proof in proofs {
        request = request.header("dpop", *proof);
    }
    browser.send(request, form_of(fields)).await
}

fn refreshing(token: &str) -> Fields<'_> {
    vec![("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", "web")]
}

async fn info(browser: &mut Browser, scheme: &str, access: &str, proof: Option<&str>) -> Answer {
    let request = Request::get("/userinfo").header("authorization", format!("{scheme} {access}"));
    let request = match proof {
        Some(proof) => request.header("dpop", proof),
        None => request,
    };
    browser.send(request, "").await
}

#[tokio::test]
async fn c100_a_proof_binds_access_and_refresh_tokens_to_its_key() {
    let world = World::new().await;
    let mut browser = world.browser();
    let (key, other) = (DpopKey::generate(), DpopKey::generate());
    let proof = |key: &DpopKey| key.proof("POST", &url("/token")).issued_at(world.time()).sign();
    let code = browser.sign_in("web").await;
    let answer = post(&mut browser, &[&proof(&key)], &redemption("web", &code)).await;
    assert_eq!(answer.json()["token_type"], "DPoP");
    let issued = IssuedTokens::of(&answer);
    assert_eq!(claims(&issued.access)["cnf"], serde_json::json!({ "jkt": key.thumbprint() }));
    assert!(claims(issued.id())["cnf"].is_null(), "id_tokens are not bound to the key");
    for (token, token_type) in [(&*issued.access, "DPoP".into()), (issued.refresh(), serde_json::Value::Null)] {
        let known = browser.introspect("web", token).await;
        assert_eq!((&known["token_type"], &known["cnf"]["jkt"]), (&token_type, &key.thumbprint().into()));
    }

    // the access token does not work without its key
    let time = world.time();
    let of = |key: &DpopKey, token: &str| key.proof("GET", &url("/userinfo")).issued_at(time).token(token).sign();
    assert_eq!(info(&mut browser, "DPoP", &issued.access, Some(&of(&key, &issued.access))).await.status, 200);
    let for_post = key.proof("POST", &url("/userinfo")).issued_at(world.time()).token(&issued.access).sign();
    for (scheme, proof, error) in [
        ("Bearer", None, "invalid_token"),
        ("Bearer", Some(of(&key, &issued.access)), "invalid_token"),
        ("DPoP", None, "invalid_dpop_proof"),
        ("DPoP", Some(of(&other, &issued.access)), "invalid_token"),
        ("DPoP", Some(key.proof("GET", &url("/userinfo")).issued_at(time).sign()), "invalid_dpop_proof"),
        ("DPoP", Some(of(&key, "x")), "invalid_dpop_proof"),
        ("DPoP", Some(for_post), "invalid_dpop_proof"),
        (
            "DPoP",
            Some(key.proof("GET", &url("/token")).issued_at(world.time()).token(&issued.access).sign()),
            "invalid_dpop_proof",
        ),
        ("DPoP", Some("x".to_owned()), "invalid_dpop_proof"),
    ] {
        let answer = info(&mut browser, scheme, &issued.access, proof.as_deref()).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, error), "{scheme} {proof:?}");
        let at = |own| if own == scheme { format!(r#", error="{error}""#) } else { String::new() };
        let (bearer, dpop) = (at("Bearer"), at("DPoP"));
        let challenge = format!(
            r#"Bearer realm="userinfo"{bearer}, DPoP realm="userinfo"{dpop}, algs="ES256 EdDSA Ed25519 RS256""#
        );
        assert_eq!(answer.header("www-authenticate"), challenge);
    }

    // neither does the refresh token
    let refused = refused(400, "invalid_dpop_proof", "the refresh token is bound to another key");
    assert_eq!(post(&mut browser, &[], &refreshing(issued.refresh())).await.own(), refused);
    assert_eq!(post(&mut browser, &[&proof(&other)], &refreshing(issued.refresh())).await.own(), refused);
    let next = post(&mut browser, &[&proof(&key)], &refreshing(issued.refresh())).await;
    assert_eq!(next.json()["token_type"], "DPoP");
    assert_eq!(claims(&IssuedTokens::of(&next).access)["cnf"]["jkt"], key.thumbprint());
}

#[tokio::test]
async fn c100_a_proof_works_for_one_request_and_once() {
    let world = World::new().await;
    let mut browser = world.browser();
    let key = DpopKey::generate();
    let proof = || key.proof("POST", &url("/token")).issued_at(world.time());
    let code = browser.sign_in("web").await;
    let fields = redemption("web", &code);
    let good = proof().sign();
    let past = proof().issued_at(tollgate::clock::UnixTime::from_secs(world.time().as_secs() - 3600)).sign();
    let ahead = proof().issued_at(tollgate::clock::UnixTime::from_secs(world.time().as_secs() + 3600)).sign();
    let elsewhere = key.proof("POST", "https://auth.example.evil/token").issued_at(world.time()).sign();
    let other_path = key.proof("POST", &url("/revoke")).issued_at(world.time()).sign();
    let other_method = key.proof("GET", &url("/token")).issued_at(world.time()).sign();
    let unsigned = format!("{}.AAAA", good.rsplit_once('.').unwrap().0);
    for bad in [
        &[&*past][..],
        &[&ahead],
        &[&elsewhere],
        &[&other_path],
        &[&other_method],
        &[&unsigned],
        &["x"],
        &[""],
        &[&good, &good],
        &[&good, &proof().sign()],
    ] {
        let answer = post(&mut browser, bad, &fields).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_dpop_proof"), "{bad:?}");
    }
    // the code was not used up, and neither was the valid proof
    let issued = IssuedTokens::of(&post(&mut browser, &[&good], &fields).await);
    let again = post(&mut browser, &[&good], &refreshing(issued.refresh())).await;
    assert_eq!((again.status.as_u16(), &*again.error()), (400, "invalid_dpop_proof"));
    assert_eq!(post(&mut browser, &[&proof().sign()], &refreshing(issued.refresh())).await.status, 200);
}

#[tokio::test]
async fn c100_a_key_can_be_set_before_the_code_is_issued() {
    let world = World::new().await;
    let mut browser = world.browser();
    let (key, other) = (DpopKey::generate(), DpopKey::generate());
    let proof = |key: &DpopKey| key.proof("POST", &url("/token")).issued_at(world.time()).sign();
    let code = browser.sign_in_with("web", &[("dpop_jkt", key.thumbprint())]).await;
    let fields = redemption("web", &code);
    let expected = refused(400, "invalid_dpop_proof", "the authorization code is bound to another key");
    assert_eq!(post(&mut browser, &[], &fields).await.own(), expected);
    assert_eq!(post(&mut browser, &[&proof(&other)], &fields).await.own(), expected);
    // a caller without the code and the verifier does not learn that
    let wrong = set(&fields, "code_verifier", crate::world::VERIFIER);
    assert_eq!(post(&mut browser, &[], &wrong).await.error(), "invalid_grant");
    let answer = post(&mut browser, &[&proof(&key)], &fields).await;
    assert_eq!((answer.status.as_u16(), answer.json()["token_type"].as_str()), (200, Some("DPoP")));
}

#[tokio::test]
async fn c100_a_client_that_requires_dpop_gets_no_bearer_tokens() {
    let world = world_with(Client::require_dpop).await;
    let mut browser = world.browser();
    let key = DpopKey::generate();
    let proof = || key.proof("POST", &url("/token")).issued_at(world.time()).sign();
    let code = browser.sign_in("special").await;
    let fields = redemption("special", &code);
    let expected = refused(400, "invalid_dpop_proof", "this client must send a DPoP proof");
    assert_eq!(post(&mut browser, &[], &fields).await.own(), expected);
    let issued = IssuedTokens::of(&post(&mut browser, &[&proof()], &fields).await);
    let fields = set(&refreshing(issued.refresh()), "client_id", "special");
    assert_eq!(post(&mut browser, &[], &fields).await.own(), expected);
    assert_eq!(post(&mut browser, &[&proof()], &fields).await.status, 200);
}

#[tokio::test]
async fn c100_if_nonces_are_required_each_refusal_contains_one() {
    let nonces = Secret::generate();
    let world = World::with(Memory::new(), |service| service.dpop_nonces(&nonces)).await;
    let mut browser = world.browser();
    let key = DpopKey::generate();
    let proof = || key.proof("POST", &url("/token")).issued_at(world.time());
    let code = browser.sign_in("web").await;
    let fields = redemption("web", &code);
    for without in [proof().sign(), proof().nonce("x").sign(), proof().nonce(&"A".repeat(43)).sign()] {
        let answer = post(&mut browser, &[&without], &fields).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "use_dpop_nonce"));
        assert_eq!(answer.header("dpop-nonce").len(), 43);
    }
    let nonce = post(&mut browser, &[&proof().sign()], &fields).await.header("dpop-nonce").to_owned();
    let answer = post(&mut browser, &[&proof().nonce(&nonce).sign()], &fields).await;
    assert_eq!((answer.status.as_u16(), answer.header("dpop-nonce")), (200, &*nonce));
    let issued = IssuedTokens::of(&answer);

    let at = || key.proof("GET", &url("/userinfo")).issued_at(world.time()).token(&issued.access);
    let answer = info(&mut browser, "DPoP", &issued.access, Some(&at().sign())).await;
    let challenge =
        r#"Bearer realm="userinfo", DPoP realm="userinfo", error="use_dpop_nonce", algs="ES256 EdDSA Ed25519 RS256""#;
    assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, challenge));
    let proof = at().nonce(answer.header("dpop-nonce")).sign();
    let answer = info(&mut browser, "DPoP", &issued.access, Some(&proof)).await;
    assert_eq!((answer.status.as_u16(), answer.header("dpop-nonce")), (200, &*nonce));

    // the same applies to pushed requests
    let pushed = posted("/par").header("dpop", key.proof("POST", &url("/par")).issued_at(world.time()).sign());
    let answer = browser.send(pushed, query("web")).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "use_dpop_nonce"));
    assert_eq!(answer.header("dpop-nonce"), nonce);

    // after two periods, a nonce is too old
    world.advance(400);
    let answer = post(
        &mut browser,
        &[&key.proof("POST", &url("/token")).issued_at(world.time()).nonce(&nonce).sign()],
        &refreshing(issued.refresh()),
    )
    .await;
    assert_eq!((&*answer.error(), answer.header("dpop-nonce") == nonce), ("use_dpop_nonce", false));
    // bearer tokens need no nonce
    let code = browser.sign_in("web").await;
    assert_eq!(browser.redeem("web", &code).await.status, 200);
}

#[tokio::test]
async fn c100_a_bound_token_is_not_accepted_as_a_bearer_token() {
    let world = World::new().await;
    let mut browser = world.browser();
    let key = DpopKey::generate();
    let code = browser.sign_in("web").await;
    let proof = key.proof("POST", &url("/token")).issued_at(world.time()).sign();
    let issued = IssuedTokens::of(&post(&mut browser, &[&proof], &redemption("web", &code)).await);
    for scheme in ["Bearer", "DPoP"] {
        let shown = format!("{scheme} {}", issued.access);
        assert_eq!(shown_at_layer(&world.service.verifier(), &shown).await, 401, "{scheme}");
    }
}

#[tokio::test]
async fn c100_tokens_issued_before_the_client_required_dpop_stop_working() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let on = async |client: Client| {
        let tokens = Tokens::new();
        World::made(store.clone(), clock.clone(), ClientTable::new([client]).unwrap(), tokens, |service| service).await
    };
    let before = on(client("web")).await;
    let issued = before.browser().tokens("web", "openid").await;
    let world = on(client("web").require_dpop()).await;
    let proof = DpopKey::generate().proof("POST", &url("/token")).issued_at(world.time()).sign();
    let answer = post(&mut world.browser(), &[&proof], &refreshing(issued.refresh())).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_grant"));
    assert_eq!(before.browser().refresh("web", issued.refresh()).await.status, 200, "the token was not used up");
}

#[tokio::test]
async fn c100_a_proof_with_a_pushed_request_binds_its_code() {
    let world = World::new().await;
    let mut browser = world.browser();
    let (key, other) = (DpopKey::generate(), DpopKey::generate());
    let push = async |browser: &mut Browser, key: &DpopKey, more: &str| {
        let proof = key.proof("POST", &url("/par")).issued_at(world.time()).sign();
        let request = posted("/par");
        browser.send(request.header("dpop", proof), format!("{}{more}", query("web"))).await
    };
    let named = format!("&dpop_jkt={}", key.thumbprint());
    assert_eq!(push(&mut browser, &other, &named).await.error(), "invalid_dpop_proof");
    assert_eq!(push(&mut browser, &key, &named).await.status, 201);

    // an empty parameter counts as absent
    let pushed = push(&mut browser, &key, "&dpop_jkt=&x=%2B").await.json()["request_uri"].as_str().unwrap().to_owned();
    let login = browser.get(&format!("/authorize?client_id=web&request_uri={}", encode(&pushed))).await;
    assert!(login.header("location").starts_with("/authentication/start?"), "{login:?}");
    // a request that would be too long together with the key is refused at once
    for (more, status) in [("\"", 413), ("x", 201)] {
        assert_eq!(push(&mut browser, &key, &format!("&x={}", more.repeat(4000))).await.status, status, "{more}");
    }
    let many: String = (0..250).map(|n| format!("&x{n}=")).collect();
    assert_eq!(push(&mut browser, &key, &many).await.status, 413);

    let pushed = push(&mut browser, &key, "").await.json()["request_uri"].as_str().unwrap().to_owned();
    browser.log_in("web", ADA).await;
    let back = browser.get(&format!("/authorize?client_id=web&request_uri={}", encode(&pushed))).await;
    let code = Grant::from(back.redirected("code").unwrap());
    let proof = |key: &DpopKey| key.proof("POST", &url("/token")).issued_at(world.time()).sign();
    let fields = redemption("web", &code);
    for proofs in [&[][..], &[&*proof(&other)]] {
        assert_eq!(post(&mut browser, proofs, &fields).await.error(), "invalid_dpop_proof");
    }
    assert_eq!(post(&mut browser, &[&proof(&key)], &fields).await.status, 200);
}
