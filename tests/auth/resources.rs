//! Resource indicators (RFC 8707): the APIs that tokens are for.

use http::{Request, Response};
use serde_json::{Value, json};
use tollgate::{
    BearerLayer, Client, ClientTable, Tokens, Verifier,
    body::Body,
    store::{AnyStore, Memory},
    testing::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    issued_tokens::{IssuedTokens, api, claims},
    pushed::authorize,
    special_worlds::{client, put_keys, world_with},
    token_requests::{Grant, is_no_grant, redemption, refused},
    world::{Answer, Browser, ISSUER, NOTES, World, clients, encode, form_of, posted, query_of},
};

const MAIL: &str = "https://mail.example";
/// Allowed for no client.
const OTHER: &str = "https://other.example";

/// Allows all these resources.
fn allowed(client: Client) -> Client {
    client.resource(NOTES).unwrap().resource("https://mail.example/").unwrap()
}

async fn world() -> World {
    world_with(allowed).await
}

fn named(resources: &[&str]) -> String {
    resources.iter().map(|uri| format!("&resource={}", encode(uri))).collect()
}

/// Logs ada in, and returns the answer to the authorization request, with the verifier.
async fn asked(browser: &mut Browser, resources: &[&str]) -> (Answer, String) {
    let (own, verifier) = browser.log_in_with("special", &[("scope", "openid email")]).await;
    (browser.get(&format!("/authorize?{}&state=xyz{}", query_of(&own), named(resources))).await, verifier)
}

async fn code(browser: &mut Browser, resources: &[&str]) -> Grant {
    let (answer, verifier) = asked(browser, resources).await;
    Grant { code: answer.redirected("code").unwrap_or_else(|| panic!("{answer:?}")), verifier }
}

async fn redeem(browser: &mut Browser, code: &Grant, resources: &[&str]) -> Answer {
    browser.send(posted("/token"), form_of(&redemption("special", code)) + &named(resources)).await
}

async fn refresh(browser: &mut Browser, token: &str, resources: &[&str]) -> Answer {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", "special")];
    browser.send(posted("/token"), form_of(&fields) + &named(resources)).await
}

fn audience(answer: &Answer) -> Value {
    claims(&IssuedTokens::of(answer).access)["aud"].clone()
}

/// The answer of `/token` to a resource that may not be named there.
fn no_target() -> String {
    refused(400, "invalid_target", "resource is not allowed for this request")
}

#[tokio::test]
async fn c135_the_audience_of_tokens_is_what_was_granted_or_less_and_never_more() {
    let world = world().await;
    let mut browser = world.browser();
    let code = code(&mut browser, &[NOTES, MAIL, "https://mail.example/", ""]).await;
    // nothing is used up by a request for more
    for more in [&[OTHER][..], &[NOTES, OTHER], &[ISSUER]] {
        assert_eq!(redeem(&mut browser, &code, more).await.own(), no_target());
    }
    let first = redeem(&mut browser, &code, &["https://mail.example/"]).await;
    assert_eq!(audience(&first), MAIL);
    let issued = IssuedTokens::of(&first);
    assert_eq!(claims(issued.id())["aud"], "special");
    for more in [&[OTHER][..], &[ISSUER, NOTES]] {
        assert_eq!(refresh(&mut browser, issued.refresh(), more).await.own(), no_target());
    }
    // the grant is still for both
    let both = refresh(&mut browser, issued.refresh(), &[]).await;
    assert_eq!(audience(&both), json!([MAIL, NOTES]));
    let next = IssuedTokens::of(&both);
    let narrow = refresh(&mut browser, next.refresh(), &[NOTES]).await;
    assert_eq!(audience(&narrow), NOTES);
    assert_eq!(browser.introspect("special", &IssuedTokens::of(&narrow).access).await["aud"], NOTES);
    // repeated requests get the same refresh token, and other ids with other contents
    let again =
        async |resources: &[&str]| IssuedTokens::of(&refresh(&mut browser.clone(), next.refresh(), resources).await);
    let (same, other, all) = (again(&[NOTES]).await, again(&[MAIL]).await, again(&[]).await);
    assert_eq!(same.jti(), IssuedTokens::of(&narrow).jti());
    assert!(other.jti() != same.jti() && all.jti() != same.jti() && all.jti() != other.jti());
    assert_eq!((same.refresh(), other.refresh()), (all.refresh(), all.refresh()));
}

#[tokio::test]
async fn c135_without_a_resource_tokens_are_for_the_default_audience_alone() {
    let world = world().await;
    let mut browser = world.browser();
    for named in [&[][..], &[ISSUER]] {
        let code = code(&mut browser, &[]).await;
        // allowed for the client, but not granted
        assert_eq!(redeem(&mut browser, &code, &[NOTES]).await.own(), no_target());
        let first = redeem(&mut browser, &code, named).await;
        assert_eq!(audience(&first), ISSUER);
        assert_eq!(refresh(&mut browser, IssuedTokens::of(&first).refresh(), &[NOTES]).await.own(), no_target());
    }
    let api = world_with(|client| allowed(client.audience("https://api.example").unwrap())).await;
    let mut browser = api.browser();
    let (one, both) =
        (code(&mut browser, &["https://api.example"]).await, code(&mut browser, &["https://api.example", NOTES]).await);
    assert_eq!(audience(&redeem(&mut browser, &one, &[]).await), "https://api.example");
    assert_eq!(audience(&redeem(&mut browser, &both, &[]).await), json!(["https://api.example", NOTES]));
    let (answer, _) = asked(&mut browser, &[ISSUER]).await;
    assert_eq!(answer.redirected("error").as_deref(), Some("invalid_target"));
}

#[tokio::test]
async fn c135_other_resources_are_refused_wherever_a_request_begins() {
    let eight: Vec<String> = (0..9).map(|n| format!("https://{n}.example")).collect();
    let nine: Vec<&str> = eight.iter().map(String::as_str).collect();
    let world =
        world_with(|client| nine.iter().fold(allowed(client), |client, uri| client.resource(uri).unwrap())).await;
    let mut browser = world.browser();
    let not_allowed = "resource is not allowed for this request";
    let malformed = "resource must be an absolute URI without a fragment";
    for (resources, detail) in [
        (&[OTHER][..], not_allowed),
        (&[NOTES, OTHER], not_allowed),
        (&["https://notes.example/mcp/"], not_allowed),
        (&["https://notes.example"], not_allowed),
        (&["HTTPS://notes.example/mcp"], not_allowed),
        (&["https://notes.example/mcp#"], malformed),
        (&["/mcp"], malformed),
        (&["notes"], malformed),
        (&[" "], malformed),
        (&nine, "at most 8 resources can be requested"),
    ] {
        let (answer, _) = asked(&mut browser, resources).await;
        let redirected = ["error", "error_description", "state", "iss", "code"].map(|name| answer.redirected(name));
        let expected = [Some("invalid_target"), Some(detail), Some("xyz"), Some(ISSUER), None];
        assert_eq!(redirected.each_ref().map(Option::as_deref), expected, "{resources:?}");
        let pushed = browser.send(posted("/par"), crate::world::query("special") + &named(resources)).await;
        let text = format!(
            "400\ncontent-type: application/json\n\n{{\"error\":\"invalid_target\",\"error_description\":\"{detail}\"}}\n"
        );
        assert_eq!(pushed.own(), text, "{resources:?}");
    }
    let code = code(&mut browser, &nine[..8]).await;
    assert_eq!(audience(&redeem(&mut browser, &code, &[]).await), json!(nine[..8]));
    // no other parameter may be repeated
    for path in ["/authorize?scope=openid&scope=openid", "/authorize?nonce=a&nonce=b&resource=x"] {
        let answer = browser.get(&format!("{path}&{}", crate::world::query("special"))).await;
        assert_eq!(answer.redirected("error").as_deref(), Some("invalid_request"), "{answer:?}");
    }
}

#[tokio::test]
async fn c135_a_pushed_request_and_a_posted_one_keep_their_resources() {
    let world = world().await;
    let mut browser = world.browser();
    let (own, verifier) = browser.log_in_with("special", &[]).await;
    let body = query_of(&own) + &named(&[NOTES, MAIL]);
    let pushed = browser.send(posted("/par"), &*body).await;
    let uri = encode(pushed.json()["request_uri"].as_str().unwrap());
    let answer =
        authorize(&mut browser, &format!("client_id=special&request_uri={uri}&resource={}", encode(OTHER))).await;
    let code = Grant { code: answer.redirected("code").unwrap(), verifier };
    assert_eq!(audience(&redeem(&mut browser, &code, &[]).await), json!([MAIL, NOTES]));

    let (own, verifier) = browser.log_in_with("special", &[]).await;
    let body = query_of(&own) + &named(&[NOTES, MAIL]);
    let forwarded = browser.send(posted("/authorize"), &*body).await.header("location").to_owned();
    let answer = browser.get(&forwarded).await;
    let code = Grant { code: answer.redirected("code").unwrap(), verifier };
    assert_eq!(audience(&redeem(&mut browser, &code, &[]).await), json!([MAIL, NOTES]));
}

#[tokio::test]
async fn c135_a_silent_code_has_the_resources_of_its_own_request() {
    let world = world_with(|client| allowed(client).single_sign_on()).await;
    let mut browser = world.browser();
    code(&mut browser, &[MAIL]).await;
    let silent = async |browser: &mut Browser, resources: &[&str]| {
        let query = crate::world::query("special");
        browser.get(&format!("/authorize?{query}&prompt=none{}", named(resources))).await
    };
    let answer = silent(&mut browser, &[NOTES]).await;
    let code = Grant::from(answer.redirected("code").unwrap_or_else(|| panic!("{answer:?}")));
    assert_eq!(audience(&redeem(&mut browser, &code, &[]).await), NOTES);
    let answer = silent(&mut browser, &[OTHER]).await;
    assert_eq!(answer.redirected("error").as_deref(), Some("invalid_target"));
}

#[tokio::test]
async fn c135_userinfo_takes_a_token_for_a_resource_only_if_the_issuer_is_one_of_them() {
    let world = world_with(|client| allowed(client).resource("https://auth.example/").unwrap()).await;
    let mut browser = world.browser();
    for (resources, is_served) in
        [(&[][..], true), (&[ISSUER], true), (&[NOTES, ISSUER], true), (&[NOTES], false), (&[NOTES, MAIL], false)]
    {
        let code = code(&mut browser, resources).await;
        let issued = IssuedTokens::of(&redeem(&mut browser, &code, &[]).await);
        let info = browser.with_token("/userinfo", &issued.access).await;
        if is_served {
            assert_eq!(info.json()["email"], "ada@example.com", "{resources:?}");
        } else {
            let challenge = r#"Bearer realm="userinfo", error="invalid_token", DPoP realm="userinfo", algs="ES256 EdDSA Ed25519 RS256""#;
            let body = r#"{"error":"invalid_token","error_description":"the access token is not valid"}"#;
            let text = format!("401\ncontent-type: application/json\nwww-authenticate: {challenge}\n\n{body}\n");
            assert_eq!(info.own(), text, "{resources:?}");
        }
        // a narrower token of the same grant
        if resources.len() == 2 {
            let narrow = IssuedTokens::of(&refresh(&mut browser, issued.refresh(), &[NOTES]).await);
            assert_eq!(browser.with_token("/userinfo", &narrow.access).await.status, 401);
        }
    }
}

#[tokio::test]
async fn c135_an_api_takes_tokens_for_its_own_resource_and_no_others() {
    let world = world().await;
    let mut browser = world.browser();
    let layer = BearerLayer::new(world.service.verifier()).resource(NOTES).unwrap();
    let served = async |token: &str| {
        let inner =
            service_fn(async |_: Request<Body>| Ok::<_, std::convert::Infallible>(Response::new(Body::empty())));
        let request = Request::post("/mcp").header("authorization", format!("Bearer {token}")).body(Body::empty());
        layer.clone().layer(inner).oneshot(request.unwrap()).await.unwrap().status().as_u16()
    };
    for (resources, is_own) in [(&[NOTES][..], true), (&[MAIL, NOTES], true), (&[MAIL], false), (&[], false)] {
        let code = code(&mut browser, resources).await;
        let issued = IssuedTokens::of(&redeem(&mut browser, &code, &[]).await);
        assert_eq!(served(&issued.access).await, if is_own { 200 } else { 401 }, "{resources:?}");
        // an API of the issuer's own name takes only the others
        assert_eq!(api(&world, &issued.access).await, if resources.is_empty() { 200 } else { 401 });
    }
}

#[tokio::test]
async fn c135_a_resource_that_the_operator_takes_away_ends_the_refresh_tokens_for_it() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    put_keys(&store).await;
    let world = async |special: Client| {
        let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
        let clients = ClientTable::new(all.into_iter().chain([special])).unwrap();
        World::made(store.clone(), clock.clone(), clients, Tokens::new(), |service| service).await
    };
    let (before, after) =
        (world(allowed(client("special"))).await, world(client("special").resource(MAIL).unwrap()).await);
    let mut browser = before.browser();
    let (notes, mail) = (code(&mut browser, &[NOTES]).await, code(&mut browser, &[MAIL]).await);
    let late = code(&mut browser, &[NOTES]).await;
    let notes = IssuedTokens::of(&redeem(&mut browser, &notes, &[]).await);
    let mail = IssuedTokens::of(&redeem(&mut browser, &mail, &[]).await);
    let mut browser = after.browser();
    assert!(is_no_grant(&redeem(&mut browser, &late, &[]).await));
    assert!(is_no_grant(&refresh(&mut browser, notes.refresh(), &[]).await));
    assert_eq!(audience(&refresh(&mut browser, mail.refresh(), &[]).await), MAIL);
    // the family is not revoked, because the operator may allow it again
    assert_eq!(audience(&refresh(&mut before.browser(), notes.refresh(), &[]).await), NOTES);
}

#[test]
fn c135_a_client_has_at_most_64_resources_and_each_once() {
    let special = || client("special");
    for bad in ["", "notes", "https://notes.example/#a", "https://notes example"] {
        let error = special().resource(bad).unwrap_err();
        assert_eq!(
            (error.setting(), error.to_string().contains("must be an absolute URI")),
            ("resource", true),
            "{error}"
        );
    }
    let twice = special().resource("https://a.example/").unwrap().resource("https://a.example").unwrap_err();
    assert!(twice.to_string().contains("is allowed twice"), "{twice}");
    let full = (0..64).fold(special(), |client, n| client.resource(&format!("urn:{n}")).unwrap());
    assert!(full.resources().count() == 64 && full.resource("urn:64").is_err());
    let verifier: Verifier = tollgate::testing::TestIssuer::new(ISSUER, NOTES).verifier();
    for bad in [
        "",
        "notes",
        "http://notes.example",
        "https://notes.example/",
        "https://notes.example?a",
        "https://notes.example#a",
    ] {
        assert_eq!(BearerLayer::new(verifier.clone()).resource(bad).unwrap_err().setting(), "resource", "{bad}");
    }
}
