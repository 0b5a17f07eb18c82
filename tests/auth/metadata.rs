//! The metadata of the service (RFC 8414, OpenID Connect Discovery).

use http::{Method, Request};
use serde_json::{Value, json};
use tollgate::{
    AuthService, ClientIp, ClientTable, Tokens,
    bearer::Algorithm,
    body::Body,
    store::{AnyStore, Memory},
    testing::ManualClock,
};
use tower::ServiceExt;

use crate::{
    special_worlds::client,
    world::{ISSUER, World, clients},
};

const OPENID: &str = "/.well-known/openid-configuration";
const SERVER: &str = "/.well-known/oauth-authorization-server";

fn expected(issuer: &str) -> Value {
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/jwks"),
        "userinfo_endpoint": format!("{issuer}/userinfo"),
        "revocation_endpoint": format!("{issuer}/revoke"),
        "introspection_endpoint": format!("{issuer}/introspect"),
        "end_session_endpoint": format!("{issuer}/logout"),
        "pushed_authorization_request_endpoint": format!("{issuer}/par"),
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "scopes_supported": ["openid", "profile", "email", "phone", "offline_access"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256", "RS256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
        "token_endpoint_auth_signing_alg_values_supported": ["ES256", "EdDSA", "Ed25519", "RS256", "PS256"],
        "revocation_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
        "revocation_endpoint_auth_signing_alg_values_supported": ["ES256", "EdDSA", "Ed25519", "RS256", "PS256"],
        "introspection_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "private_key_jwt", "Bearer"],
        "introspection_endpoint_auth_signing_alg_values_supported": ["ES256", "EdDSA", "Ed25519", "RS256", "PS256"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "dpop_signing_alg_values_supported": ["ES256", "EdDSA", "Ed25519", "RS256"],
        "claims_supported": [
            "iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "at_hash", "sid", "tenant", "name",
            "preferred_username", "email", "email_verified", "phone_number", "phone_number_verified"
        ],
        "claims_parameter_supported": true,
        "request_parameter_supported": false,
        "request_uri_parameter_supported": false,
    })
}

/// Returns the response at this path, without comparing it with the OpenAPI document.
async fn answered(service: &AuthService, method: Method, path: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Creates a service with this issuer.
async fn under(issuer: &str) -> World {
    let store = AnyStore::from(Memory::new());
    let tokens = Tokens::new();
    World::under(issuer, (store, ManualClock::new()), clients(), tokens, |service| service).await
}

#[tokio::test]
async fn c101_both_metadata_documents_are_equal_and_complete() {
    let world = World::new().await;
    let mut browser = world.browser();
    let openid = browser.get(OPENID).await;
    assert_eq!(openid.json(), expected(ISSUER));
    assert_eq!(openid.headers["cache-control"], "public, max-age=300");
    assert_eq!(openid.headers["content-type"], "application/json");
    assert_eq!(browser.get(SERVER).await.text, openid.text);
    for path in [OPENID, SERVER] {
        let head = browser.send(Request::head(path), "").await;
        assert_eq!((head.status.as_u16(), &*head.text), (200, ""));
        let post = browser.send(Request::post(path), "").await;
        assert_eq!((post.status.as_u16(), post.header("allow")), (405, "GET, HEAD, OPTIONS"));
        let options = browser.send(Request::options(path), "").await;
        assert_eq!((options.status.as_u16(), options.header("allow")), (204, "GET, HEAD, OPTIONS"));
    }
}

#[tokio::test]
async fn c101_every_endpoint_in_the_metadata_exists() {
    for issuer in [ISSUER, "https://example.com/login/v1"] {
        let world = under(issuer).await;
        let (_, text) = answered(&world.service, Method::GET, OPENID).await;
        let document: Value = serde_json::from_str(&text).unwrap();
        let named = document.as_object().unwrap().iter();
        let named: Vec<_> = named.filter(|(name, _)| name.ends_with("_endpoint") || *name == "jwks_uri").collect();
        assert_eq!(named.len(), 8);
        for (name, url) in named {
            let path = url.as_str().unwrap().strip_prefix("https://").unwrap();
            let path = &path[path.find('/').unwrap()..];
            let answers = [
                answered(&world.service, Method::GET, path).await.0,
                answered(&world.service, Method::POST, path).await.0,
            ];
            assert!(answers.iter().all(|status| *status != 404) && answers != [405; 2], "{name}: {answers:?}");
        }
    }
}

#[tokio::test]
async fn c101_the_path_of_the_issuer_follows_the_well_known_path() {
    let issuer = "https://example.com/login/v1";
    let world = under(issuer).await;
    let (status, server) = answered(&world.service, Method::GET, &format!("{SERVER}/login/v1")).await;
    assert_eq!(status, 200);
    let document: Value = serde_json::from_str(&server).unwrap();
    assert_eq!(document, expected(issuer));
    // OpenID Connect puts the issuer's path first, and a router may have stripped it
    for path in [format!("/login/v1{OPENID}"), OPENID.to_owned(), SERVER.to_owned()] {
        assert_eq!(answered(&world.service, Method::GET, &path).await, (200, server.clone()), "{path}");
    }
    for path in
        [format!("{OPENID}/login/v1"), format!("{SERVER}/login"), format!("{SERVER}/login/v1/"), format!("{SERVER}x")]
    {
        assert_eq!(answered(&world.service, Method::GET, &path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn c101_a_service_without_tokens_has_no_metadata_or_token_endpoints() {
    let world = World::new().await;
    let service = AuthService::builder(ISSUER, Memory::new())
        .clients(clients())
        .users(world.users.clone())
        .email(world.outbox.clone())
        .client_ip(ClientIp::peer())
        .build()
        .unwrap();
    for path in ["/token", "/revoke", "/introspect", "/userinfo", "/jwks", "/logout", OPENID, SERVER] {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            let (status, text) = answered(&service, method, path).await;
            assert_eq!(status, 404, "{path}");
            assert_eq!(text, r#"{"error":"not_found","error_description":"there is no such endpoint"}"#);
        }
    }
}

#[tokio::test]
async fn clients_whose_id_token_algorithm_is_unsupported_are_refused_when_the_service_is_built() {
    let world = World::new().await;
    for (usual, own, is_good) in [
        (Algorithm::Es256, Algorithm::EdDsa, false),
        (Algorithm::EdDsa, Algorithm::Es256, false),
        (Algorithm::Es256, Algorithm::Rs256, true),
        (Algorithm::EdDsa, Algorithm::EdDsa, true),
    ] {
        let table = ClientTable::new([client("special").id_token_algorithm(own)]).unwrap();
        let tokens = Tokens::new().algorithm(usual);
        let service = AuthService::builder(ISSUER, Memory::new())
            .clients(table)
            .tokens(tokens)
            .users(world.users.clone())
            .client_ip(ClientIp::peer())
            .build();
        assert_eq!(service.is_ok(), is_good, "{usual:?} {own:?}");
    }
}

#[tokio::test]
async fn token_settings_are_checked_when_the_service_is_built() {
    let world = World::new().await;
    let service = || {
        let service = AuthService::builder(ISSUER, Memory::new()).clients(clients()).users(world.users.clone());
        service.client_ip(ClientIp::peer()).email(world.outbox.clone())
    };
    let bad = Tokens::new().access_lifetime(std::time::Duration::ZERO);
    assert_eq!(service().tokens(bad).build().unwrap_err().setting(), "access token lifetime");
    assert_eq!(service().dpop_nonces(&tollgate::Secret::generate()).build().unwrap_err().setting(), "tokens");
    assert_eq!(service().introspector(&tollgate::Secret::generate()).build().unwrap_err().setting(), "tokens");
}

#[tokio::test]
async fn cached_documents_are_readable_from_every_origin_and_show_no_budget() {
    let mut browser = World::new().await.browser();
    let kept = ["/jwks", "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"];
    let origins = [None, Some("https://app.example"), Some("https://elsewhere.example"), Some("null")];
    for origin in origins {
        let request = Request::get("/openapi.json");
        let request = if let Some(origin) = origin { request.header("origin", origin) } else { request };
        let answer = browser.send(request, "").await;
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert!(["vary", "access-control-allow-credentials"].iter().all(|name| !answer.headers.contains_key(*name)));
    }
    for path in kept {
        for origin in origins {
            let request = Request::get(path);
            let request = if let Some(origin) = origin { request.header("origin", origin) } else { request };
            let answer = browser.send(request, "").await;
            assert_eq!(
                (answer.status.as_u16(), answer.header("cache-control")),
                (200, "public, max-age=300"),
                "{path}"
            );
            assert_eq!(answer.header("access-control-allow-origin"), "*", "{path}");
            for name in ["vary", "access-control-allow-credentials", "x-ratelimit-remaining"] {
                assert!(!answer.headers.contains_key(name), "{path}: {name}");
            }
        }
    }
}
