//! The id_token: who logged in, how and when (OpenID Connect Core §2).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde_json::json;
use tollgate::{
    Algorithm, ClientTable, Tokens,
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::{
    access_token::verified,
    given::{Given, claims, header},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, ISSUER, World, parameters, query, with},
    worlds::client,
};

#[tokio::test]
async fn c098_it_says_who_logged_in_how_and_when() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.advance(5);
    let code = browser.sign_in("web").await;
    world.advance(20);
    let given = Given::of(&browser.redeem("web", &code).await);
    assert_eq!(header(given.id())["typ"], "JWT");
    let inside = verified(&mut browser, given.id(), "web").await;
    let access = claims(&given.access);
    assert_eq!(
        inside,
        json!({
            "iss": ISSUER, "sub": "u-ada", "aud": "web", "iat": 1_000_000_025, "exp": 1_000_000_625,
            "auth_time": 1_000_000_005, "amr": ["pwd"], "at_hash": inside["at_hash"], "sid": access["sid"],
            "tenant": "acme",
        })
    );
    assert!(inside["sub"].as_str().unwrap().len() <= 255);
}

#[tokio::test]
async fn c098_a_nonce_comes_back_once() {
    let world = World::new().await;
    let mut browser = world.browser();
    for nonce in ["n-0S6_WzA2Mj", "a \"nonce\" & more", &"x".repeat(512)] {
        let code = browser.sign_in_with("web", &[("nonce", nonce)]).await;
        let given = Given::of(&browser.redeem("web", &code).await);
        assert_eq!(verified(&mut browser, given.id(), "web").await["nonce"], *nonce);
        let next = Given::of(&browser.refresh("web", given.refresh()).await);
        assert!(claims(next.id())["nonce"].is_null());
    }
}

#[tokio::test]
async fn c098_claims_come_where_they_were_asked_for_by_name() {
    let world = World::new().await;
    let mut browser = world.browser();
    let wanted = r#"{"id_token":{"email":null,"phone_number":{"essential":true}},"userinfo":{"preferred_username":null,"phone_number":null}}"#;
    let code = browser.sign_in_with("web", &[("claims", wanted)]).await;
    let given = Given::of(&browser.redeem("web", &code).await);
    for given in [Given::of(&browser.refresh("web", given.refresh()).await), given] {
        let inside = claims(given.id());
        // the client could ask for an address by a scope, and not for a number
        assert_eq!((&inside["email"], &inside["phone_number"]), (&ADA.into(), &serde_json::Value::Null));
        assert!(inside["preferred_username"].is_null());
        let info = browser.with_token("/userinfo", &given.access).await;
        assert_eq!(info.json(), json!({ "sub": "u-ada", "tenant": "acme", "preferred_username": "ada" }));
    }
}

#[tokio::test]
async fn c098_what_was_wanted_at_the_start_alone_comes_too_unless_the_url_says_otherwise() {
    let at_start = [
        ("identifier", ADA),
        ("nonce", "n-start"),
        ("claims", r#"{"id_token":{"email":null},"userinfo":{"preferred_username":null}}"#),
    ];
    let whole = async |more: &[(&str, &str)], query_more: &str| {
        let world = World::new().await;
        let mut browser = world.browser();
        let started = browser.post("/authentication/start", &with(parameters("web"), more)).await;
        let id = started.json()["session_id"].as_str().unwrap().to_owned();
        browser.password("web", &id, ADA, ADA_PASSWORD).await;
        browser.complete("web", &id).await;
        let code = browser.get(&format!("/authorize?{}{query_more}", query("web"))).await.redirected("code").unwrap();
        let redeemed = browser.redeem("web", &code.into()).await;
        (browser, redeemed)
    };
    let (mut browser, redeemed) = whole(&at_start, "").await;
    let given = Given::of(&redeemed);
    let inside = claims(given.id());
    assert_eq!((&inside["nonce"], &inside["email"]), (&json!("n-start"), &json!(ADA)));
    let info = browser.with_token("/userinfo", &given.access).await;
    assert_eq!(info.json(), json!({ "sub": "u-ada", "tenant": "acme", "preferred_username": "ada" }));
    // field by field, the url counts
    let (_, redeemed) = whole(&at_start, "&nonce=n-url").await;
    let inside = claims(Given::of(&redeemed).id());
    assert_eq!((&inside["nonce"], &inside["email"]), (&json!("n-url"), &json!(ADA)));
    // a key that was named at the start must be proved
    let thumbprint = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";
    let (_, redeemed) = whole(&[("identifier", ADA), ("dpop_jkt", thumbprint)], "").await;
    assert_eq!(redeemed.error(), "invalid_dpop_proof");
}

#[tokio::test]
async fn c098_methods_are_those_of_rfc_8176() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    browser.password("mfa", &id, ADA, ADA_PASSWORD).await;
    browser.ask("mfa", &id, "sms", ADA_PHONE).await;
    let otp = world.code(ADA_PHONE).await;
    browser.verify("mfa", &id, &otp).await;
    browser.complete("mfa", &id).await;
    let code = browser.authorize("mfa").await.redirected("code").unwrap();
    let given = Given::of(&browser.redeem("mfa", &code.into()).await);
    for token in [given.id(), &given.access] {
        let mut amr: Vec<_> =
            claims(token)["amr"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        amr.sort_unstable();
        assert_eq!(amr, ["mfa", "otp", "pwd", "sms"]);
    }
}

#[tokio::test]
async fn c098_it_names_the_access_token_that_it_came_with() {
    use sha2::{Digest, Sha256, Sha512};
    for algorithm in [Algorithm::Es256, Algorithm::EdDsa, Algorithm::Rs256] {
        let store = AnyStore::from(Memory::new());
        let tokens = Tokens::new().algorithm(algorithm);
        let old = client("old").id_token_algorithm(Algorithm::Rs256);
        let clients = ClientTable::new([client("web"), old]).unwrap();
        let world = World::made(store, ManualClock::new(), clients, tokens, |service| service).await;
        let mut browser = world.browser();
        for (client, signs) in [("web", algorithm), ("old", Algorithm::Rs256)] {
            let mut given = browser.tokens(client, "openid").await;
            for _ in 0..2 {
                assert_eq!(header(given.id())["alg"], signs.as_str());
                assert_eq!(header(&given.access)["alg"], algorithm.as_str());
                // Ed25519 hashes with SHA-512
                let whole = match signs {
                    Algorithm::EdDsa => Sha512::digest(&given.access).to_vec(),
                    _ => Sha256::digest(&given.access).to_vec(),
                };
                let inside = verified(&mut browser, given.id(), client).await;
                assert_eq!(BASE64URL.decode(inside["at_hash"].as_str().unwrap()).unwrap(), whole[..whole.len() / 2]);
                given = Given::of(&browser.refresh(client, given.refresh()).await);
            }
        }
    }
}

#[tokio::test]
async fn c098_a_refreshed_one_is_of_the_same_login() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    world.advance(3600);
    let next = Given::of(&browser.refresh("web", given.refresh()).await);
    let (first, later) = (claims(given.id()), claims(next.id()));
    for name in ["iss", "sub", "aud", "auth_time", "amr", "sid"] {
        assert_eq!(first[name], later[name], "{name}");
        assert!(!first[name].is_null());
    }
    assert_eq!((later["iat"].as_u64(), later["exp"].as_u64()), (Some(1_000_003_600), Some(1_000_004_200)));
    assert!(later["nonce"].is_null());
}
