#![no_main]
//! The query with which a user comes back from an identity provider. `{state}` is replaced by the state that the user left
//! with. The provider signs in everyone whose `code` is `right`, but nobody has an account. Nothing may prove a step, panic
//! or cause a 5xx.

use std::{cell::RefCell, net::SocketAddr};

use http::{Request, header};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, Limiter, PeerAddr, Quota, Quotas, StoredUsers,
    body::Body,
    sso::{ProviderUser, SsoCallback, SsoError, SsoProvider, SsoRequest},
    store::{AnyStore, Memory},
};
use tower_service::Service;

const PARAMETERS: &str = r#""client_id":"web","redirect_uri":"https://app.example/cb","response_type":"code","scope":"openid","code_challenge":"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM","code_challenge_method":"S256""#;

struct Idp;

impl SsoProvider for Idp {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        Ok(format!("https://idp.example/?state={}", request.state()))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        match callback.code()? {
            "right" => Ok(ProviderUser::new("https://idp.example", "ada")),
            _ => Err(SsoError::Failed("the code is wrong")),
        }
    }
}

struct World {
    runtime: Runtime,
    service: AuthService,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = AnyStore::from(Memory::new());
        let client = Client::new("web", "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
        let clients = ClientTable::new([client.redirect_uri("https://app.example/cb").unwrap()]).unwrap();
        let service = AuthService::builder("https://auth.example", store.clone())
            .clients(clients)
            .users(StoredUsers::new(store))
            .client_ip(ClientIp::unknown())
            .sso("idp", Idp)
            .limiter(Limiter::memory(Quotas::new(Quota::per_minute(u32::MAX).unwrap())))
            .build()
            .unwrap();
        Self { runtime, service }
    }

    /// Sends a request, and returns its status, its headers and its body.
    fn send(&mut self, request: Request<Body>) -> (u16, http::HeaderMap, String) {
        let Self { runtime, service } = self;
        runtime.block_on(async {
            let (parts, body) = service.call(request).await.unwrap().into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            (parts.status.as_u16(), parts.headers, String::from_utf8(bytes.to_vec()).unwrap())
        })
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

fn member<'t>(text: &'t str, name: &str) -> &'t str {
    text.split_once(&format!(r#""{name}":""#)).unwrap().1.split('"').next().unwrap()
}

fuzz_target!(|query: &str| {
    WORLD.with_borrow_mut(|world| {
        let peer = PeerAddr(SocketAddr::from(([127, 0, 0, 1], 1234)));
        let post = |path: &str, cookie: &str, more: &str| {
            let request = Request::post(path).header("content-type", "application/json").header(header::COOKIE, cookie);
            request.extension(peer).body(Body::from(format!("{{{PARAMETERS}{more}}}"))).unwrap()
        };
        let (_, headers, text) = world.send(post("/authentication/start", "", ""));
        let cookie = headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let more = format!(r#","session_id":"{}","method":"sso","provider":"idp""#, member(&text, "session_id"));
        let (_, _, text) = world.send(post("/authentication/authenticate", &cookie, &more));
        let state = member(&text, "redirect_url").split_once("state=").unwrap().1;
        let target = format!("/authentication/sso/idp/callback?{}", query.replace("{state}", state));
        let request = Request::get(target).header(header::COOKIE, &cookie).extension(peer).body(Body::empty());
        let Ok(request) = request else { return };
        let (status, headers, _) = world.send(request);
        assert!(status < 500, "{status}");
        let location = headers.get("location").map(|location| location.to_str().unwrap()).unwrap_or_default();
        assert!(location.is_empty() || location.starts_with("/authentication/start?client_id=web&"), "{location}");
        // without an account, even the right code proves nothing
        assert!(!location.ends_with("#sso=ok"));
    });
});
