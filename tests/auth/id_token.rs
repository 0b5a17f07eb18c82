//! The id_token: who logged in, how and when (OpenID Connect Core §2).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde_json::json;
use tollgate::{
    ClientTable, Tokens,
    bearer::Algorithm,
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::{
    access_token::verified,
    issued_tokens::{IssuedTokens, claims, header},
    special_worlds::client,
    world::{ADA, ADA_PASSWORD, ADA_PHONE, ISSUER, World, parameters, query, with},
};

#[tokio::test]
async fn c098_an_id_token_shows_who_logged_in_how_and_when() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.advance(5);
    let code = browser.sign_in("web").await;
    world.advance(20);
    let issued = IssuedTokens::of(&browser.redeem("web", &code).await);
    assert_eq!(header(issued.id())["typ"], "JWT");
    let inside = verified(&mut browser, issued.id(), "web").await;
    let access = claims(&issued.access);
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
async fn c098_a_nonce_appears_in_one_id_token_only() {
    let world = World::new().await;
    let mut browser = world.browser();
    for nonce in ["n-0S6_WzA2Mj", "a \"nonce\" & more", &"x".repeat(512)] {
        let code = browser.sign_in_with("web", &[("nonce", nonce)]).await;
        let issued = IssuedTokens::of(&browser.redeem("web", &code).await);
        assert_eq!(verified(&mut browser, issued.id(), "web").await["nonce"], *nonce);
        let next = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
        assert!(claims(next.id())["nonce"].is_null());
    }
}

#[tokio::test]
async fn c098_claims_requested_by_name_appear_where_they_were_requested() {
    let world = World::new().await;
    let mut browser = world.browser();
    let wanted = r#"{"id_token":{"email":null,"phone_number":{"essential":true}},"userinfo":{"preferred_username":null,"phone_number":null}}"#;
    let code = browser.sign_in_with("web", &[("claims", wanted)]).await;
    let issued = IssuedTokens::of(&browser.redeem("web", &code).await);
    for issued in [IssuedTokens::of(&browser.refresh("web", issued.refresh()).await), issued] {
        let inside = claims(issued.id());
        // the client may ask for the e-mail address because it has the scope, but not for the phone number
        assert_eq!((&inside["email"], &inside["phone_number"]), (&ADA.into(), &serde_json::Value::Null));
        assert!(inside["preferred_username"].is_null());
        let info = browser.with_token("/userinfo", &issued.access).await;
        assert_eq!(info.json(), json!({ "sub": "u-ada", "tenant": "acme", "preferred_username": "ada" }));
    }
}

#[tokio::test]
async fn c098_parameters_of_the_start_apply_unless_the_url_contains_them() {
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
    let issued = IssuedTokens::of(&redeemed);
    let inside = claims(issued.id());
    assert_eq!((&inside["nonce"], &inside["email"]), (&json!("n-start"), &json!(ADA)));
    let info = browser.with_token("/userinfo", &issued.access).await;
    assert_eq!(info.json(), json!({ "sub": "u-ada", "tenant": "acme", "preferred_username": "ada" }));
    // for each parameter, the URL takes precedence
    let (_, redeemed) = whole(&at_start, "&nonce=n-url").await;
    let inside = claims(IssuedTokens::of(&redeemed).id());
    assert_eq!((&inside["nonce"], &inside["email"]), (&json!("n-url"), &json!(ADA)));
    // a key named at the start must be proved
    let thumbprint = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";
    let (_, redeemed) = whole(&[("identifier", ADA), ("dpop_jkt", thumbprint)], "").await;
    assert_eq!(redeemed.error(), "invalid_dpop_proof");
}

#[tokio::test]
async fn c098_methods_have_the_names_of_rfc_8176() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    browser.password("mfa", &id, ADA, ADA_PASSWORD).await;
    browser.ask("mfa", &id, "sms", ADA_PHONE).await;
    let otp = world.code(ADA_PHONE).await;
    browser.verify("mfa", &id, &otp).await;
    browser.complete("mfa", &id).await;
    let code = browser.authorize("mfa").await.redirected("code").unwrap();
    let issued = IssuedTokens::of(&browser.redeem("mfa", &code.into()).await);
    for token in [issued.id(), &issued.access] {
        let mut amr: Vec<_> =
            claims(token)["amr"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        amr.sort_unstable();
        assert_eq!(amr, ["mfa", "otp", "pwd", "sms"]);
    }
}

#[tokio::test]
async fn c098_an_id_token_contains_the_hash_of_its_access_token() {
    use sha2::{Digest, Sha256, Sha512};
    for algorithm in [Algorithm::Es256, Algorithm::EdDsa, Algorithm::Rs256] {
        let store = AnyStore::from(Memory::new());
        let tokens = Tokens::new().algorithm(algorithm);
        let old = client("old").id_token_algorithm(Algorithm::Rs256);
        let clients = ClientTable::new([client("web"), old]).unwrap();
        let world = World::made(store, ManualClock::new(), clients, tokens, |service| service).await;
        let mut browser = world.browser();
        for (client, signs) in [("web", algorithm), ("old", Algorithm::Rs256)] {
            let mut issued = browser.tokens(client, "openid").await;
            for _ in 0..2 {
                assert_eq!(header(issued.id())["alg"], signs.as_str());
                assert_eq!(header(&issued.access)["alg"], algorithm.as_str());
                // Ed25519 hashes with SHA-512
                let whole = match signs {
                    Algorithm::EdDsa => Sha512::digest(&issued.access).to_vec(),
                    _ => Sha256::digest(&issued.access).to_vec(),
                };
                let inside = verified(&mut browser, issued.id(), client).await;
                assert_eq!(BASE64URL.decode(inside["at_hash"].as_str().unwrap()).unwrap(), whole[..whole.len() / 2]);
                issued = IssuedTokens::of(&browser.refresh(client, issued.refresh()).await);
            }
        }
    }
}

#[tokio::test]
async fn c098_a_refreshed_id_token_describes_the_same_login() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    world.advance(3600);
    let next = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    let (first, later) = (claims(issued.id()), claims(next.id()));
    for name in ["iss", "sub", "aud", "auth_time", "amr", "sid"] {
        assert_eq!(first[name], later[name], "{name}");
        assert!(!first[name].is_null());
    }
    assert_eq!((later["iat"].as_u64(), later["exp"].as_u64()), (Some(1_000_003_600), Some(1_000_004_200)));
    assert!(later["nonce"].is_null());
}
