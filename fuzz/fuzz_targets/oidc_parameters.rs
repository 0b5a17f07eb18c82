#![no_main]
//! Optional OpenID Connect parameters, one per line: `claims`, `prompt`, `max_age`, `acr_values`,
//! `id_token_hint` and `nonce`, before percent-encoding. Nothing may panic or cause a 5xx. No user
//! is signed in, so the response leads to the login or is a known error, and `claims` that are not
//! a JSON object are rejected.

use std::{
    cell::RefCell,
    net::{Ipv4Addr, SocketAddr},
};

use http::Request;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tollgate::{AuthService, Client, ClientIp, ClientTable, Limiter, PeerAddr, Plans, Quota, StoredUsers, Tokens, auth::AbuseLimits, body::Body, store::{AnyStore, Memory}};
use tower_service::Service;

const ISSUER: &str = "https://auth.example";
const QUERY: &str = "client_id=web&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&response_type=code&scope=openid&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256";
const WISHES: [&str; 6] = ["claims", "prompt", "max_age", "acr_values", "id_token_hint", "nonce"];
const ERRORS: [&str; 3] = ["invalid_request", "login_required", "unmet_authentication_requirements"];

fn service() -> AuthService {
    let store = AnyStore::from(Memory::new());
    let client = Client::new("web", "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
    let clients = ClientTable::new([client.redirect_uri("https://app.example/cb").unwrap()]).unwrap();
    AuthService::builder(ISSUER, store.clone())
        .clients(clients)
        .users(StoredUsers::new(store))
        .client_ip(ClientIp::peer())
        .tokens(Tokens::new())
        .limiter(Limiter::memory(Plans::new(Quota::per_minute(u32::MAX).unwrap())))
        .abuse_limits(AbuseLimits::new()
        .unverified_per_address(Quota::per_minute(u32::MAX).unwrap()))
        .build()
        .unwrap()
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

thread_local! {
    static WORLD: RefCell<(Runtime, AuthService)> =
        RefCell::new((tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), service()));
}

fuzz_target!(|text: &str| {
    let mut target = format!("/authorize?{QUERY}");
    for (name, value) in WISHES.iter().zip(text.split('\n')) {
        target += &format!("&{name}={}", encoded(value));
    }
    let peer = PeerAddr(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1234));
    let Ok(request) = Request::get(target).header("sec-fetch-mode", "navigate").extension(peer).body(Body::empty())
    else {
        return;
    };
    WORLD.with_borrow_mut(|(runtime, service)| {
        let response = runtime.block_on(service.call(request)).unwrap();
        let status = response.status().as_u16();
        let location = response.headers().get("location").map_or("", |it| it.to_str().unwrap());
        let error = location.split(['?', '&']).find_map(|pair| pair.strip_prefix("error="));
        match error {
            Some(error) => {
                assert!(location.starts_with("https://app.example/cb?") && ERRORS.contains(&error), "{error}")
            }
            None => assert!(location.starts_with("/authentication/start?"), "{status} {location}"),
        }
        let claims = text.split('\n').next().unwrap_or_default();
        let is_object = claims.is_empty() || serde_json::from_str::<Map<String, Value>>(claims).is_ok();
        assert!(is_object || error == Some("invalid_request"), "{claims}");
    });
});
