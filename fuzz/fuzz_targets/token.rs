#![no_main]
//! A request to a token endpoint: the endpoint and which of its usual parameters are omitted (two
//! characters), then lines for `Authorization`, for `DPoP`, and for additional parameters.
//! `{code}`, `{refresh}`, `{access}`, `{id}` and `{proof}` are replaced by valid ones. Nothing may
//! panic or cause a 5xx, every error must be JSON with a known code, and tokens are issued only for
//! a code or a refresh token.

use std::{
    cell::RefCell,
    net::{Ipv4Addr, SocketAddr},
};

use http::{Method, Request, header};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tokio::runtime::Runtime;
use tollgate::{AuthService, Client, ClientIp, ClientTable, Identifier, Limiter, Password, Passwords, PeerAddr, Plans, Quota, StoredUsers, Tokens, UserId, auth::AbuseLimits, body::Body, pkce::{CodeChallenge, CodeVerifier}, store::{AnyStore, Memory}, testing::DpopKey, user::NewUser};
use tower_service::Service;

const ISSUER: &str = "https://auth.example";
const FORM: &str = "application/x-www-form-urlencoded";
const ERRORS: [&str; 16] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_token",
    "insufficient_scope",
    "invalid_dpop_proof",
    "use_dpop_nonce",
    "origin_not_allowed",
    "method_not_allowed",
    "not_found",
    "content_too_large",
    "unsupported_media_type",
    "temporarily_unavailable",
];
const ENDPOINTS: [(&str, &str, &[&str]); 9] = [
    ("POST", "/token", &["client_id=web", "grant_type=authorization_code", "code={code}", "code_verifier={verifier}"]),
    ("POST", "/token", &["client_id=web", "grant_type=refresh_token", "refresh_token={refresh}"]),
    ("POST", "/revoke", &["client_id=web", "token={refresh}"]),
    ("POST", "/introspect", &["client_id=web", "token={access}"]),
    ("GET", "/userinfo", &[]),
    ("POST", "/userinfo", &[]),
    ("POST", "/logout", &["client_id=web", "id_token_hint={id}"]),
    ("GET", "/logout", &["client_id=web", "id_token_hint={id}"]),
    ("GET", "/jwks", &[]),
];
/// How often new tokens are created. Inputs with expired ones reveal less.
const EVERY: u32 = 100;

struct World {
    runtime: Runtime,
    service: AuthService,
    key: DpopKey,
    runs: u32,
    verifier: String,
    code: String,
    access: String,
    refresh: String,
    id: String,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = AnyStore::from(Memory::new());
        let client = Client::new("web", "acme".parse().unwrap()).unwrap().scopes("openid offline_access").unwrap();
        let client = client.redirect_uri("https://app.example/cb").unwrap();
        let passwords = Passwords::insecure_fast();
        let users = StoredUsers::new(store.clone());
        runtime.block_on(async {
            let hash = passwords.hash(Password::new("ada's password".to_owned())).await.unwrap();
            let ada = NewUser::new(UserId::parse("u-ada").unwrap(), Identifier::parse("ada").unwrap());
            users.create(&"acme".parse().unwrap(), ada.password(hash)).await.unwrap();
        });
        let service = AuthService::builder(ISSUER, store)
            .clients(ClientTable::new([client]).unwrap())
            .users(users)
            .client_ip(ClientIp::peer())
            .tokens(Tokens::new())
            .passwords(passwords)
            .limiter(Limiter::memory(Plans::new(Quota::per_minute(u32::MAX).unwrap())))
            .abuse_limits(AbuseLimits::new()
            .unverified_per_address(Quota::per_minute(u32::MAX).unwrap()))
            .build()
            .unwrap();
        let key = DpopKey::generate();
        let none = String::new;
        let (verifier, code, access, refresh, id) = (none(), none(), none(), none(), none());
        Self { runtime, service, key, runs: 0, verifier, code, access, refresh, id }
    }

    /// Sends a request. Returns the status, the cookie or location, and the body.
    fn send(&mut self, mut request: Request<Body>) -> (u16, String, String) {
        let peer = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1234);
        request.extensions_mut().insert(PeerAddr(peer));
        let Self { runtime, service, .. } = self;
        runtime.block_on(async {
            let response = service.call(request).await.unwrap();
            let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            let (status, more) = (response.status().as_u16(), header("location").or(header("set-cookie")));
            let body = response.into_body().collect().await.unwrap().to_bytes().to_vec();
            (status, more.unwrap_or_default(), String::from_utf8(body).unwrap())
        })
    }

    /// Performs a login and returns its code.
    fn sign_in(&mut self) -> String {
        self.verifier = format!("{:x<43}", self.runs);
        let challenge = CodeChallenge::from_verifier(&CodeVerifier::parse(&self.verifier).unwrap());
        let parameters = format!(
            r#""client_id":"web","redirect_uri":"https://app.example/cb","response_type":"code","scope":"openid","code_challenge":"{challenge}","code_challenge_method":"S256""#
        );
        let mut cookie = String::new();
        let mut id = String::new();
        for (path, more) in [
            ("start", r#","identifier":"ada""#),
            ("authenticate", r#","method":"password","username":"ada","password":"ada's password""#),
            ("complete", ""),
        ] {
            let session = if id.is_empty() { String::new() } else { format!(r#","session_id":"{id}""#) };
            let body = format!("{{{parameters}{more}{session}}}");
            let request = Request::post(format!("/authentication/{path}"))
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::COOKIE, &cookie);
            let (status, set, body) = self.send(request.body(Body::from(body)).unwrap());
            assert_eq!(status, 200, "{path} {body}");
            if path == "start" {
                set.split(';').next().unwrap().clone_into(&mut cookie);
                id = serde_json::from_str::<Value>(&body).unwrap()["session_id"].as_str().unwrap().to_owned();
            }
        }
        let query = parameters.replace("\":\"", "=").replace("\",\"", "&").replace('"', "");
        let request = Request::get(format!("/authorize?{query}")).header(header::COOKIE, cookie);
        let (_, location, _) = self.send(request.body(Body::empty()).unwrap());
        location.split("code=").nth(1).unwrap().split('&').next().unwrap().to_owned()
    }

    /// Creates new tokens and an unused code.
    fn renew(&mut self) {
        let code = self.sign_in();
        let form = format!("client_id=web&grant_type=authorization_code&code={code}&code_verifier={}", self.verifier);
        let request = Request::post("/token").header(header::CONTENT_TYPE, FORM);
        let (status, _, body) = self.send(request.body(Body::from(form)).unwrap());
        assert_eq!(status, 200, "{body}");
        let tokens: Value = serde_json::from_str(&body).unwrap();
        let own = |name: &str| tokens[name].as_str().unwrap().to_owned();
        (self.access, self.refresh, self.id) = (own("access_token"), own("refresh_token"), own("id_token"));
        self.runs += 1;
        self.code = self.sign_in();
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

fuzz_target!(|text: &str| {
    WORLD.with_borrow_mut(|world| {
        if world.runs.is_multiple_of(EVERY) {
            world.renew();
        }
        world.runs += 1;
        let mut bytes = text.bytes();
        let (Some(endpoint), Some(left_out)) = (bytes.next(), bytes.next()) else { return };
        let Some(rest) = text.get(2..) else { return };
        let (method, path, fields) = ENDPOINTS[usize::from(endpoint) % ENDPOINTS.len()];
        let proof = if rest.contains("{proof}") {
            world.key.proof(method, &format!("{ISSUER}{path}")).token(&world.access).sign()
        } else {
            String::new()
        };
        let filled = |text: &str| {
            text.replace("{code}", &world.code)
                .replace("{verifier}", &world.verifier)
                .replace("{refresh}", &world.refresh)
                .replace("{access}", &world.access)
                .replace("{id}", &world.id)
                .replace("{proof}", &proof)
        };
        let mut lines = rest.splitn(3, '\n').map(&filled);
        let (authorization, dpop) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let kept = fields.iter().enumerate().filter(|(at, _)| left_out & (1 << at) == 0);
        let mut form: Vec<_> = kept.map(|(_, field)| filled(field)).collect();
        form.extend(lines.next().filter(|more| !more.is_empty()));
        let form = form.join("&");
        let uses = form.contains(&world.code) || form.contains(&world.refresh);
        let (target, body) = match Method::from_bytes(method.as_bytes()) {
            Ok(Method::GET) => (format!("{path}?{form}"), String::new()),
            _ => (path.to_owned(), form),
        };
        let mut request = Request::builder().method(method).uri(target).header(header::CONTENT_TYPE, FORM);
        for (name, value) in [("authorization", authorization), ("dpop", dpop)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        let Ok(request) = request.body(Body::from(body)) else { return };
        let (status, location, body) = world.send(request);
        assert!(status < 500, "{status} {body}");
        assert!(location.is_empty() || path == "/logout", "{location}");
        // the logout endpoint answers with a page, or redirects to one
        if path == "/logout" && (body.starts_with("<!") || (status == 303 && !location.is_empty())) {
            return;
        }
        let answer: Value = serde_json::from_str(&body).unwrap();
        if status >= 400 {
            let error = answer["error"].as_str().unwrap();
            assert!(ERRORS.contains(&error), "{error}");
        }
        assert!(answer["access_token"].is_null() || (path == "/token" && uses));
    });
});
