#![no_main]
//! A request to the login service: a line with method and target, one with cookies, one with
//! `Accept`, and the body. `{id}` is replaced by the id of a live login, whose cookie is sent
//! along. Nothing may panic, cause a 5xx, or return a code.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use http::{Request, header};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;
use tollgate::{AuthService, Client, ClientIp, ClientTable, Limiter, Passwords, PeerAddr, Plans, Quota, StoredUsers, auth::AbuseLimits, body::Body, delivery::Outbox, store::{AnyStore, Memory}};
use tower_service::Service;

const PARAMETERS: &str = r#""client_id":"web","redirect_uri":"https://app.example/cb","response_type":"code","scope":"openid","code_challenge":"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM","code_challenge_method":"S256""#;

/// The address that every request comes from.
const PEER: PeerAddr = PeerAddr(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1234));

struct World {
    runtime: Runtime,
    service: AuthService,
    id: String,
    cookie: String,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = AnyStore::from(Memory::new());
        let client = Client::new("web", "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
        let clients = ClientTable::new([client.redirect_uri("https://app.example/cb").unwrap()]).unwrap();
        let mut service = AuthService::builder("https://auth.example", store.clone())
            .clients(clients)
            .users(StoredUsers::new(store))
            .client_ip(ClientIp::peer())
            .sms(Outbox::new())
            .email(Outbox::new())
            .limiter(Limiter::memory(Plans::new(Quota::per_minute(u32::MAX).unwrap())))
            .abuse_limits(AbuseLimits::new()
            .unverified_per_address(Quota::per_minute(u32::MAX).unwrap()))
            .passwords(Passwords::insecure_fast())
            .build()
            .unwrap();
        let body = format!(r#"{{"identifier":"ada",{PARAMETERS}}}"#);
        let request = Request::post("/authentication/start").header("content-type", "application/json");
        let (cookie, text) = runtime.block_on(async {
            let request = request.extension(PEER).body(Body::from(body)).unwrap();
            let response = service.call(request).await.unwrap();
            let cookie = response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
            (cookie, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
        });
        let id = text.split('"').nth(3).unwrap().to_owned();
        Self { runtime, service, id, cookie }
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

fuzz_target!(|text: &str| {
    WORLD.with_borrow_mut(|world| {
        let text = text.replace("{id}", &world.id).replace("{parameters}", PARAMETERS);
        let mut lines = text.splitn(4, '\n');
        let (method, target) =
            lines.next().unwrap_or_default().split_once(' ').unwrap_or(("POST", "/authentication/start"));
        let cookies = format!("{}; {}", world.cookie, lines.next().unwrap_or_default());
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::COOKIE, cookies)
            .header(header::ACCEPT, lines.next().unwrap_or_default())
            .header(header::CONTENT_TYPE, "application/json")
            .extension(PEER)
            .body(Body::from(lines.next().unwrap_or_default().to_owned()));
        let Ok(request) = request else { return };
        let World { runtime, service, .. } = world;
        runtime.block_on(async {
            let response = service.call(request).await.unwrap();
            assert!(response.status().as_u16() < 500 || response.status() == 503, "{}", response.status());
            let location = response.headers().get("location").map(|it| it.to_str().unwrap().to_owned());
            assert!(location.is_none_or(|it| !it.starts_with("https://app.example/cb?code=")));
            let _whole = response.into_body().collect().await.unwrap();
        });
    });
});
