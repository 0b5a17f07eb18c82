#![no_main]
//! The `Authorization` and `DPoP` headers of a request to an API, one per line, then a JSON Web Key
//! Set. `{token}` and `{bound}` are replaced by valid access tokens, the second one bound to a key,
//! and `{proof}` by a proof with that key. Nothing may panic. Requests are admitted only with these
//! tokens and as their users, and never with foreign keys.

use std::{cell::RefCell, convert::Infallible};

use http::{Request, Response};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;
use tollgate::{
    AccessToken, BearerLayer, Verifier,
    testing::{DpopKey, TestIssuer},
};
use tower_layer::Layer;
use tower_service::Service;

const ISSUER: &str = "https://auth.example";
const API: &str = "https://api.example";

struct World {
    runtime: Runtime,
    verifier: Verifier,
    key: DpopKey,
    token: String,
    bound: String,
}

#[derive(Clone)]
struct Api;

impl Service<Request<()>> for Api {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let token = AccessToken::from_extensions(request.extensions()).expect("only with a token");
        std::future::ready(Ok(Response::new(token.subject().to_owned())))
    }
}

impl World {
    fn new() -> Self {
        let (issuer, key) = (TestIssuer::new(ISSUER, API), DpopKey::generate());
        let hour = std::time::Duration::from_secs(3600);
        let token = issuer.token(|claims| claims.subject("ada").expires_in(hour));
        let bound = issuer.token(|claims| claims.subject("grace").expires_in(hour).bound_to(key.thumbprint()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, verifier: issuer.verifier().to_builder().dpop(API).unwrap().build(), key, token, bound }
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

fuzz_target!(|text: &str| {
    WORLD.with_borrow(|world| {
        let proof = if text.contains("{proof}") {
            world.key.proof("GET", &format!("{API}/orders")).token(&world.bound).sign()
        } else {
            String::new()
        };
        let text = text.replace("{token}", &world.token).replace("{bound}", &world.bound).replace("{proof}", &proof);
        let mut request = Request::get("/orders");
        for (name, value) in ["authorization", "dpop"].into_iter().zip(text.lines()) {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        let Ok(request) = request.body(()) else { return };
        let ask = |verifier: Verifier, request| {
            let mut api = BearerLayer::new(verifier).layer(Api);
            world.runtime.block_on(api.call(request)).unwrap()
        };
        let keys = text.splitn(3, '\n').nth(2).unwrap_or_default();
        if let Ok(verifier) = Verifier::with_keys(ISSUER, API, keys.as_bytes()) {
            assert!(ask(verifier.to_builder().dpop(API).unwrap().build(), request.clone()).status().is_client_error());
        }
        let answer = ask(world.verifier.clone(), request);
        match answer.status().as_u16() {
            200 if answer.body() == "ada" => assert!(text.contains(&world.token)),
            200 => assert!(answer.body() == "grace" && text.contains(&world.bound) && text.contains(&proof)),
            status => assert!([400, 401].contains(&status), "{status}"),
        }
    });
});
