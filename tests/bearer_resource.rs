//! Layers that describe their API, and that require a stronger or a newer authentication.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may panic")]

use std::{convert::Infallible, future::Ready, time::Duration};

use axum::{Router, routing::get};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tollgate::{
    AccessToken, BearerLayer, ProblemJson, Verifier,
    clock::Clock,
    testing::{DpopKey, ManualClock, TestIssuer},
};
use tower::{Layer, Service, ServiceExt, service_fn};

const NOTES: &str = "https://notes.example/mcp";
const DOCUMENT: &str = "/.well-known/oauth-protected-resource/mcp";
const METADATA: &str = r#"resource_metadata="https://notes.example/.well-known/oauth-protected-resource/mcp""#;

fn issuer() -> (TestIssuer, ManualClock) {
    let clock = ManualClock::new();
    (TestIssuer::new("https://auth.example", NOTES).clock(clock.clone()), clock)
}

type Inner = tower::util::ServiceFn<fn(Request<()>) -> Ready<Result<Response<Full<Bytes>>, Infallible>>>;

/// Answers with the path of the request and the subject of its token.
fn inner() -> Inner {
    service_fn(|request| {
        let subject = AccessToken::from_extensions(request.extensions()).map_or("nobody", AccessToken::subject);
        let text = format!("{subject} at {}", request.uri().path());
        std::future::ready(Ok(Response::new(Full::from(text))))
    })
}

async fn send<L, S>(layer: &L, request: Request<()>) -> (StatusCode, String, String)
where
    L: Layer<Inner, Service = S>,
    S: Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible>,
{
    let response = layer.layer(inner()).oneshot(request).await.unwrap();
    let challenge = response.headers().get("www-authenticate").map_or("", |value| value.to_str().unwrap()).to_owned();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, challenge, String::from_utf8(body.to_vec()).unwrap())
}

fn post(authorization: &str) -> Request<()> {
    let request = Request::post("/mcp");
    let request = if authorization.is_empty() { request } else { request.header("authorization", authorization) };
    request.body(()).unwrap()
}

async fn challenge<L, S>(layer: &L, authorization: &str) -> (u16, String)
where
    L: Layer<Inner, Service = S>,
    S: Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible>,
{
    let (status, challenge, _) = send(layer, post(authorization)).await;
    (status.as_u16(), challenge)
}

#[tokio::test]
async fn c135_the_layer_serves_the_document_of_its_resource_to_everybody() {
    let (issuer, _) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).require_scope("notes:read").unwrap().resource(NOTES).unwrap();
    assert_eq!(layer.document_path(), DOCUMENT);
    let get = || Request::get(DOCUMENT).body(()).unwrap();
    let response = layer.layer(inner()).oneshot(get()).await.unwrap();
    let mut headers: Vec<_> =
        response.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    let expected =
        ["access-control-allow-origin: *", "cache-control: public, max-age=300", "content-type: application/json"];
    assert_eq!(
        (response.status(), headers.iter().map(String::as_str).collect::<Vec<_>>()),
        (StatusCode::OK, expected.to_vec())
    );
    let document = async |request| -> Value { serde_json::from_str(&send(&layer, request).await.2).unwrap() };
    let expected = json!({
        "resource": NOTES,
        "authorization_servers": ["https://auth.example"],
        "scopes_supported": ["notes:read"],
        "bearer_methods_supported": ["header"],
    });
    assert_eq!(document(get()).await, expected);
    // with a token that is of no use, and without a body
    let with_token = Request::get(DOCUMENT).header("authorization", "Bearer x").body(()).unwrap();
    assert_eq!(document(with_token).await, expected);
    assert_eq!(send(&layer, Request::head(DOCUMENT).body(()).unwrap()).await.0, 200);
    // everything else needs a token
    let other_paths = ["/mcp", "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp/"];
    for path in other_paths {
        assert_eq!(send(&layer, Request::get(path).body(()).unwrap()).await.0, 401, "{path}");
    }
    for method in [Method::POST, Method::OPTIONS, Method::DELETE] {
        assert_eq!(send(&layer, Request::builder().method(method).uri(DOCUMENT).body(()).unwrap()).await.0, 401);
    }
    let grpc = Request::get(DOCUMENT).header("content-type", "application/grpc").body(()).unwrap();
    assert_eq!(layer.layer(inner()).oneshot(grpc).await.unwrap().headers()["grpc-status"], "16");

    let more = layer.resource_name("Notes \"of\" ada").unwrap().resource_scope("notes:read").unwrap();
    let more = more.resource_scope("notes:write").unwrap().respond_with(ProblemJson);
    let (_, _, text) = send(&more, get()).await;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["resource_name"], "Notes \"of\" ada");
    assert_eq!(document["scopes_supported"], json!(["notes:read", "notes:write"]));
    let (status, _, problem) = send(&more, post("")).await;
    assert_eq!((status.as_u16(), problem.contains("about:blank")), (401, true), "{problem}");
    for bad in ["", " ", "a\n", "a\u{200b}"] {
        assert!(more.clone().resource_name(bad).is_err(), "{bad:?}");
    }
    assert!(more.resource_scope("a b").is_err());
}

#[tokio::test]
async fn c135_the_document_of_an_api_at_the_root_has_no_path() {
    let (issuer, _) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).resource("http://localhost:8000").unwrap();
    let document = Request::get("/.well-known/oauth-protected-resource").body(()).unwrap();
    assert_eq!(
        send(&layer, document).await.2,
        r#"{"resource":"http://localhost:8000","authorization_servers":["https://auth.example"],"bearer_methods_supported":["header"]}"#
    );
    assert_eq!(layer.document_path(), "/.well-known/oauth-protected-resource");
    let (status, challenge) = challenge(&layer, "").await;
    let url = "http://localhost:8000/.well-known/oauth-protected-resource";
    assert_eq!((status, challenge), (401, format!(r#"Bearer realm="api", resource_metadata="{url}""#)));
}

#[tokio::test]
async fn c135_each_401_and_403_names_the_document_and_the_scopes() {
    let (issuer, _) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).resource(NOTES).unwrap().require_scope("notes:read").unwrap();
    let layer = layer.require_scope("notes:write").unwrap().realm("notes").unwrap();
    let scope = r#"scope="notes:read notes:write""#;
    let expected = |error: &str| format!(r#"Bearer realm="notes"{error}, {scope}, {METADATA}"#);
    let token = |scope: &str| format!("Bearer {}", issuer.token(|claims| claims.subject("ada").scope(scope)));
    assert_eq!(challenge(&layer, "").await, (401, expected("")));
    assert_eq!(challenge(&layer, "Basic YTpi").await, (401, expected("")));
    assert_eq!(challenge(&layer, "Bearer x").await, (401, expected(r#", error="invalid_token""#)));
    assert_eq!(challenge(&layer, "Bearer x y").await, (400, expected(r#", error="invalid_request""#)));
    let narrow = challenge(&layer, &token("notes:read")).await;
    assert_eq!(narrow, (403, expected(r#", error="insufficient_scope""#)));
    assert_eq!(challenge(&layer, &token("notes:read notes:write")).await, (200, String::new()));

    // both schemes, if the layer knows both
    let verifier = issuer.verifier().to_builder().dpop("https://notes.example").unwrap().build();
    let layer = BearerLayer::new(verifier).resource(NOTES).unwrap().require_scope("a").unwrap();
    let algorithms = "ES256 EdDSA Ed25519 RS256";
    let more = format!(r#", scope="a", {METADATA}"#);
    let expected = format!(r#"Bearer realm="api"{more}, DPoP realm="api", algs="{algorithms}"{more}"#);
    assert_eq!(challenge(&layer, "").await, (401, expected));
    let document = send(&layer, Request::get(DOCUMENT).body(()).unwrap()).await.2;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["dpop_signing_alg_values_supported"], json!(["ES256", "EdDSA", "Ed25519", "RS256"]));
}

#[tokio::test]
async fn c135_tokens_for_other_audiences_are_refused_even_if_the_verifier_takes_them() {
    let (issuer, _) = issuer();
    let verifier: Verifier = issuer.verifier().to_builder().audience("https://other.example").unwrap().build();
    let (plain, layer) = (BearerLayer::new(verifier.clone()), BearerLayer::new(verifier).resource(NOTES).unwrap());
    let token = |audience: &str| format!("Bearer {}", issuer.token(|claims| claims.subject("ada").audience(audience)));
    assert_eq!(challenge(&plain, &token("https://other.example")).await.0, 200);
    assert_eq!(challenge(&layer, &token("https://other.example")).await.0, 401);
    for near in
        ["https://notes.example", "https://notes.example/mcp/", "https://notes.example/mc", "HTTPS://notes.example/mcp"]
    {
        assert_eq!(challenge(&layer, &token(near)).await.0, 401, "{near}");
    }
    assert_eq!(challenge(&layer, &token(NOTES)).await.0, 200);
}

#[tokio::test]
async fn c135_routes_of_axum_can_require_more_than_the_layer_around_them() {
    let (issuer, _) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).resource(NOTES).unwrap();
    let write = layer.clone().require_scope("notes:write").unwrap();
    let app = Router::new()
        .route("/mcp", get(async || "read"))
        .route("/mcp/write", get(async || "written").layer(write))
        .layer(layer);
    let ask = async |path: &str, token: Option<&str>| {
        let request = Request::get(path);
        let request = token.iter().fold(request, |it, token| it.header("authorization", format!("Bearer {token}")));
        let response = app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
        let text = response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), text.unwrap_or_default())
    };
    let token = issuer.token(|claims| claims.subject("ada"));
    // the router has no such route
    assert_eq!(ask(DOCUMENT, None).await.0, 200);
    assert_eq!(ask("/mcp", None).await, (401, format!(r#"Bearer realm="api", {METADATA}"#)));
    assert_eq!(ask("/mcp", Some(&token)).await.0, 200);
    let narrow = format!(r#"Bearer realm="api", error="insufficient_scope", scope="notes:write", {METADATA}"#);
    assert_eq!(ask("/mcp/write", Some(&token)).await, (403, narrow));
    let token = issuer.token(|claims| claims.subject("ada").scope("notes:write"));
    assert_eq!(ask("/mcp/write", Some(&token)).await.0, 200);
}

#[tokio::test]
async fn c135_a_weaker_or_older_authentication_is_challenged() {
    let (issuer, clock) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).require_acr("phishing-resistant").unwrap();
    let layer = layer.require_acr("mfa").unwrap().require_max_age(Duration::from_millis(60_900));
    let error =
        |parameters: &str| format!(r#"Bearer realm="api", error="insufficient_user_authentication", {parameters}"#);
    let both = error(r#"acr_values="phishing-resistant mfa", max_age="60""#);
    let now = clock.unix(clock.now());
    let token = |acr: Option<&str>, age: Option<u64>| {
        let token = issuer.token(|claims| {
            let claims = acr.iter().fold(claims.subject("ada"), |claims, acr| claims.acr(acr));
            match age {
                Some(age) => claims.auth_time(tollgate::clock::UnixTime::from_secs(now.as_secs() - age)),
                None => claims,
            }
        });
        format!("Bearer {token}")
    };
    for (acr, age, is_enough) in [
        (Some("mfa"), Some(0), true),
        (Some("phishing-resistant"), Some(60), true),
        // clocks may differ by five seconds
        (Some("mfa"), Some(65), true),
        (Some("mfa"), Some(66), false),
        (Some("mfa"), None, false),
        (Some("pwd"), Some(0), false),
        (Some("mf"), Some(0), false),
        (Some("phishing-resistant mfa"), Some(0), false),
        (None, Some(0), false),
    ] {
        let expected = if is_enough { (200, String::new()) } else { (401, both.clone()) };
        assert_eq!(challenge(&layer, &token(acr, age)).await, expected, "{acr:?} {age:?}");
    }
    // the answer is that of any layer for requests without a token
    assert_eq!(challenge(&layer, "").await, (401, r#"Bearer realm="api""#.to_owned()));
    // time passes for a token that was good before
    let good = token(Some("mfa"), Some(0));
    assert_eq!(challenge(&layer, &good).await.0, 200);
    clock.advance(Duration::from_secs(66));
    assert_eq!(challenge(&layer, &good).await, (401, both));

    let only = |layer: BearerLayer| async move { challenge(&layer, &token(Some("pwd"), None)).await.1 };
    let (acr, age) = (BearerLayer::new(issuer.verifier()), BearerLayer::new(issuer.verifier()));
    assert_eq!(only(acr.require_acr("mfa").unwrap()).await, error(r#"acr_values="mfa""#));
    assert_eq!(only(age.require_max_age(Duration::ZERO)).await, error(r#"max_age="0""#));
    for bad in ["", "a b", "a\"", "é"] {
        assert_eq!(BearerLayer::new(issuer.verifier()).require_acr(bad).unwrap_err().setting(), "required acr");
    }
}

#[tokio::test]
async fn c135_a_step_up_also_names_the_scopes_and_the_document_and_the_scheme_of_the_token() {
    let (issuer, clock) = issuer();
    let verifier = issuer.verifier().to_builder().dpop("https://notes.example").unwrap().build();
    let layer = BearerLayer::new(verifier).resource(NOTES).unwrap().require_acr("mfa").unwrap();
    let layer = layer.require_scope("notes:write").unwrap();
    let (key, now) = (DpopKey::generate(), clock.unix(clock.now()));
    let token = issuer.token(|claims| claims.subject("ada").bound_to(key.thumbprint()));
    let proof = key.proof("POST", NOTES).issued_at(now).token(&token).sign();
    let request = Request::post("/mcp").header("authorization", format!("DPoP {token}")).header("dpop", proof);
    let (status, challenge, _) = send(&layer, request.body(()).unwrap()).await;
    let more = format!(r#"scope="notes:write", {METADATA}"#);
    let error = r#"error="insufficient_user_authentication", acr_values="mfa""#;
    let expected =
        format!(r#"Bearer realm="api", {more}, DPoP realm="api", {error}, algs="ES256 EdDSA Ed25519 RS256", {more}"#);
    assert_eq!((status.as_u16(), challenge), (401, expected));
}
