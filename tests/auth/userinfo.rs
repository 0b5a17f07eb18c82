//! `/userinfo` (OpenID Connect Core §5.3).

use http::{Method, Request};
use serde_json::json;

use crate::{
    issued_tokens::{IssuedTokens, claims},
    world::{ADA, ADA_PHONE, Answer, World, posted},
};

fn refused(status: u16, challenge: &str, error: &str, detail: &str) -> String {
    format!(
        "{status}\ncontent-type: application/json\nwww-authenticate: {challenge}\n\n\
        {{\"error\":\"{error}\",\"error_description\":\"{detail}\"}}\n"
    )
}

fn invalid() -> String {
    let challenge =
        r#"Bearer realm="userinfo", error="invalid_token", DPoP realm="userinfo", algs="ES256 EdDSA Ed25519 RS256""#;
    refused(401, challenge, "invalid_token", "the access token is not valid")
}

#[tokio::test]
async fn c099_userinfo_describes_the_user_of_the_access_token() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let get = browser.with_token("/userinfo", &issued.access).await;
    assert_eq!(get.own(), "200\ncontent-type: application/json\n\n{\"sub\":\"u-ada\",\"tenant\":\"acme\"}\n");
    assert_eq!(get.json()["sub"], claims(issued.id())["sub"]);
    for (scheme, method) in [("Bearer", Method::POST), ("bearer", Method::GET), ("BEARER", Method::POST)] {
        let request = Request::builder().method(method).uri("/userinfo");
        let request = request.header("authorization", format!("{scheme} {}", issued.access));
        assert_eq!(browser.send(request, "").await.own(), get.own());
    }
    let issued = browser.tokens("web", "openid email profile").await;
    let info = browser.with_token("/userinfo", &issued.access).await;
    assert_eq!(
        info.json(),
        json!({ "sub": "u-ada", "tenant": "acme", "preferred_username": "ada", "email": ADA, "email_verified": true })
    );
    // not even with a scope that the client may not request
    assert!(!info.text.contains(ADA_PHONE));
}

#[tokio::test]
async fn c099_without_a_valid_token_the_response_names_the_scheme_and_the_error() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let none = refused(
        401,
        r#"Bearer realm="userinfo", DPoP realm="userinfo", algs="ES256 EdDSA Ed25519 RS256""#,
        "invalid_token",
        "an access token is required",
    );
    let malformed = refused(
        400,
        r#"Bearer realm="userinfo", error="invalid_request", DPoP realm="userinfo", algs="ES256 EdDSA Ed25519 RS256""#,
        "invalid_request",
        "the authorization header is malformed",
    );
    assert_eq!(browser.get("/userinfo").await.own(), none);
    assert_eq!(browser.get(&format!("/userinfo?access_token={}", issued.access)).await.own(), none);
    let form = posted("/userinfo");
    assert_eq!(browser.send(form, format!("access_token={}", issued.access)).await.own(), none);
    let mut with = async |shown: &str| -> Answer {
        browser.send(Request::get("/userinfo").header("authorization", shown), "").await
    };
    assert_eq!(with("Basic d2ViOng=").await.own(), none);
    for bad in ["Bearer", "Bearer ", "Bearer a b", "Bearer ä", &format!("Bearer {}", "x".repeat(9000))] {
        assert_eq!(with(bad).await.own(), malformed, "{bad}");
    }
    let challenge =
        r#"Bearer realm="userinfo", DPoP realm="userinfo", error="invalid_token", algs="ES256 EdDSA Ed25519 RS256""#;
    let unproved = refused(401, challenge, "invalid_token", "the access token is not valid");
    let unsigned = format!("{}.AAAA", issued.access.rsplit_once('.').unwrap().0);
    for bad in ["x", "a.b.c", issued.id(), issued.refresh(), &unsigned] {
        assert_eq!(with(&format!("Bearer {bad}")).await.own(), invalid(), "{bad}");
        assert_eq!(with(&format!("DPoP {bad}")).await.own(), unproved, "{bad}");
    }
    // a token that is not bound to a key needs no proof
    assert_eq!(with(&format!("DPoP {}", issued.access)).await.own(), unproved);
    let twice = Request::get("/userinfo")
        .header("authorization", format!("Bearer {}", issued.access))
        .header("authorization", format!("Bearer {}", issued.access));
    assert_eq!(browser.send(twice, "").await.own(), malformed);
    world.advance(600);
    assert_eq!(browser.with_token("/userinfo", &issued.access).await.own(), invalid());
}

#[tokio::test]
async fn c099_a_token_without_the_scope_openid_is_refused() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "email").await;
    let challenge = r#"Bearer realm="userinfo", error="insufficient_scope", scope="openid", DPoP realm="userinfo", algs="ES256 EdDSA Ed25519 RS256""#;
    let expected = refused(403, challenge, "insufficient_scope", "the access token lacks the scope openid");
    assert_eq!(browser.with_token("/userinfo", &issued.access).await.own(), expected);
    // the scope of the access token counts, not that of its family
    let issued = browser.tokens("web", "openid email").await;
    for (scope, expected) in [("email", None), ("openid", Some(json!({ "sub": "u-ada", "tenant": "acme" })))] {
        world.advance(60);
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", issued.refresh()),
            ("client_id", "web"),
            ("scope", scope),
        ];
        let next = match &expected {
            None => IssuedTokens::of(&browser.form("/token", &fields).await),
            Some(_) => {
                let issued = browser.tokens("web", "openid email").await;
                let fields = [fields[0], ("refresh_token", issued.refresh()), fields[2], fields[3]];
                IssuedTokens::of(&browser.form("/token", &fields).await)
            }
        };
        let info = browser.with_token("/userinfo", &next.access).await;
        match expected {
            None => assert_eq!(info.error(), "insufficient_scope"),
            Some(expected) => assert_eq!(info.json(), expected),
        }
    }
}
