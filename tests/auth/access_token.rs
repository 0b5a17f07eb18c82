//! The contents of access tokens (RFC 9068), as another implementation reads them.

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, jwk::JwkSet};
use serde_json::{Value, json};
use tollgate::{
    Tokens,
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::{
    issued_tokens::{IssuedTokens, api, claims, header},
    special_worlds::{client, world_with},
    world::{Browser, ISSUER, World},
};

/// Returns the claims that an independent implementation reads with the published keys.
pub(crate) async fn verified(browser: &mut Browser, token: &str, audience: &str) -> Value {
    let keys: JwkSet = serde_json::from_str(&browser.get("/jwks").await.text).unwrap();
    let kid = jsonwebtoken::decode_header(token).unwrap().kid.unwrap();
    let key = keys.find(&kid).unwrap_or_else(|| panic!("{kid} is not published"));
    let header = jsonwebtoken::decode_header(token).unwrap();
    assert_eq!(key.common.key_algorithm.unwrap().to_string(), format!("{:?}", header.alg));
    let mut validation = Validation::new(header.alg);
    // time comes from the manual clock of the test
    validation.validate_exp = false;
    validation.set_audience(&[audience]);
    validation.set_issuer(&[ISSUER]);
    decode::<Value>(token, &DecodingKey::from_jwk(key).unwrap(), &validation).unwrap().claims
}

#[tokio::test]
async fn c097_access_tokens_have_the_format_of_rfc_9068() {
    let world = World::new().await;
    let mut browser = world.browser();
    world.advance(5);
    let code = browser.sign_in_with("web", &[("scope", "openid email")]).await;
    world.advance(20);
    let issued = IssuedTokens::of(&browser.redeem("web", &code).await);
    let head = header(&issued.access);
    assert_eq!((&head["typ"], &head["alg"]), (&json!("at+jwt"), &json!("ES256")));
    let inside = verified(&mut browser, &issued.access, ISSUER).await;
    assert_eq!(inside, claims(&issued.access));
    let (jti, sid) = (inside["jti"].as_str().unwrap(), inside["sid"].as_str().unwrap());
    let expected = json!({
        "iss": ISSUER, "sub": "u-ada", "aud": ISSUER, "client_id": "web", "tenant": "acme", "scope": issued.scope,
        "iat": 1_000_000_025, "exp": 1_000_000_625, "jti": jti, "auth_time": 1_000_000_005, "amr": ["pwd"], "sid": sid,
    });
    assert_eq!(inside, expected);
    // 128 bits identify the family, 128 the token
    assert_eq!((jti.len(), sid.len()), (45, 22));
    let next = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    let later = verified(&mut browser, &next.access, ISSUER).await;
    assert_eq!(later["jti"].as_str().unwrap().split('.').next(), jti.split('.').next());
    assert_ne!(later["jti"], inside["jti"]);
    assert_eq!((&later["auth_time"], &later["sid"]), (&inside["auth_time"], &inside["sid"]));
}

#[tokio::test]
async fn c097_an_access_token_works_at_one_api_for_ten_minutes() {
    let world = world_with(|client| client.audience("https://orders.example").unwrap()).await;
    let mut browser = world.browser();
    let issued = browser.tokens("special", "openid").await;
    assert_eq!(verified(&mut browser, &issued.access, "https://orders.example").await["aud"], "https://orders.example");
    assert_eq!(api(&world, &issued.access).await, 401, "the token is for another API");
    let issued = browser.tokens("web", "openid").await;
    assert_eq!(api(&world, &issued.access).await, 200);
    assert_eq!(api(&world, issued.id()).await, 401, "an id_token is not an access token");
    world.advance(599);
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3]);
    world.advance(1);
    assert_eq!(browser.opens(&world, "web", &issued.access).await[..2], [false; 2]);
    // clocks of APIs may differ by seconds
    world.advance(5);
    assert_eq!(api(&world, &issued.access).await, 401);
}

#[tokio::test]
async fn c097_another_implementation_reads_tokens_of_every_algorithm() {
    for (algorithm, theirs) in [
        (tollgate::bearer::Algorithm::Es256, Algorithm::ES256),
        (tollgate::bearer::Algorithm::EdDsa, Algorithm::EdDSA),
        (tollgate::bearer::Algorithm::Rs256, Algorithm::RS256),
    ] {
        let store = AnyStore::from(Memory::new());
        let tokens = Tokens::new().algorithm(algorithm);
        let tokens = tokens.access_lifetime(std::time::Duration::from_secs(60));
        let clients = tollgate::ClientTable::new([client("web")]).unwrap();
        let world = World::made(store, ManualClock::new(), clients, tokens, |service| service).await;
        let mut browser = world.browser();
        let issued = browser.tokens("web", "openid").await;
        for (token, audience) in [(&*issued.access, ISSUER), (issued.id(), "web")] {
            assert_eq!(jsonwebtoken::decode_header(token).unwrap().alg, theirs);
            let inside = verified(&mut browser, token, audience).await;
            assert_eq!((inside["sub"].as_str(), inside["exp"].as_u64()), (Some("u-ada"), Some(1_000_000_060)));
        }
        assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3]);
    }
}
