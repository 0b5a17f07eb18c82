//! Two servers that share a store in Redis serve one login behind one address, taking turns.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::pkce::{CodeChallenge, CodeVerifier};

use super::{FORM, VERIFIER, config, sample};
use crate::support::{
    browser::{Browser, Registered},
    example::Example,
    redis_server::RedisServer,
};

/// A proxy that sends each request to the next server.
struct InTurn {
    address: SocketAddr,
    servers: Arc<Mutex<Vec<SocketAddr>>>,
    turn: Arc<AtomicUsize>,
}

impl InTurn {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = Self { address: listener.local_addr().unwrap(), servers: Arc::default(), turn: Arc::default() };
        let (servers, turn) = (Arc::clone(&own.servers), Arc::clone(&own.turn));
        tokio::spawn(async move {
            let client: Client<HttpConnector, Incoming> = Client::builder(TokioExecutor::new()).build_http();
            while let Ok((stream, _)) = listener.accept().await {
                let (servers, turn, client) = (Arc::clone(&servers), Arc::clone(&turn), client.clone());
                let forward = service_fn(move |mut request: http::Request<Incoming>| {
                    let servers = servers.lock().unwrap().clone();
                    let server = servers[turn.fetch_add(1, SeqCst) % servers.len()];
                    let path = request.uri().path_and_query().unwrap().clone();
                    *request.uri_mut() = format!("http://{server}{path}").parse().unwrap();
                    request.headers_mut().insert("x-forwarded-for", http::HeaderValue::from_static("192.0.2.7"));
                    client.request(request)
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), forward),
                );
            }
        });
        own
    }
}

#[tokio::test]
async fn two_servers_serve_one_login_in_turn() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let proxy = InTurn::start().await;
    let origin = format!("http://{}", proxy.address);
    let text = sample(|key| ["issuer", "proxies", "seal"].contains(&key));
    let text = text.replace("https://login.example.com/auth", &origin).replace("10.0.0.0/8", "127.0.0.1/32");
    let path = config("two-servers", &text);
    let url = redis.url();
    let arguments = ["--config", path.to_str().unwrap(), "--listen", "127.0.0.1:0", "--redis", &url];
    // at the same time, so both find an empty store
    let (one, mut other) = tokio::join!(Example::start("server", &arguments), Example::start("server", &arguments));
    proxy.servers.lock().unwrap().extend([one.address, other.address]);

    let client = Registered { id: "web", redirect_uri: "http://127.0.0.1:3000/callback" };
    let mut browser = Browser::new(&origin, "");
    let before = proxy.turn.load(SeqCst);
    let code = browser.log_in(&client, "ada", "correct horse battery staple").await;
    assert!(proxy.turn.load(SeqCst) - before >= 6, "each step is a request");
    let redeem = format!(
        "grant_type=authorization_code&client_id=web&code={code}&code_verifier={VERIFIER}\
         &redirect_uri=http%3A%2F%2F127.0.0.1%3A3000%2Fcallback"
    );
    let tokens = browser.send("POST", "/token", &[FORM], &redeem).await;
    assert_eq!(tokens.status, 200, "{tokens:?}");
    let tokens = tokens.json();
    // one budget for both
    let key = ("x-api-key", "a-key-of-its-own");
    let mut spent = Vec::new();
    // on a busy machine, an answer of Redis may come too late
    for _ in 0..5 {
        let mut remaining = Vec::new();
        for turn in 0..7 {
            if turn == 6 {
                // the login at the next server spends it, too
                browser.authorize(&client).await;
            }
            let answer = browser.send("GET", "/api/hello", &[key], "").await;
            remaining.push(answer.header("x-ratelimit-remaining").parse::<i32>().unwrap());
        }
        spent = remaining.iter().map(|left| remaining[0] - left).collect();
        if spent == [0, 1, 2, 3, 4, 5, 7] {
            break;
        }
    }
    assert_eq!(spent, [0, 1, 2, 3, 4, 5, 7]);
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    let mut me = async || browser.send("GET", "/api/me", &[("authorization", &bearer)], "").await;
    for _ in 0..4 {
        let answer = me().await;
        assert_eq!((answer.status, &answer.json()["subject"]), (200, &json!("u-1")), "{answer:?}");
    }
    // a code that one server has redeemed is used up at both
    for _ in 0..2 {
        let again = Browser::new(&origin, "").send("POST", "/token", &[FORM], &redeem).await;
        assert_eq!((again.status, again.error().as_str()), (400, "invalid_grant"));
    }
    // what one revokes, both refuse
    let form = format!("client_id=web&token={}", tokens["access_token"].as_str().unwrap());
    assert_eq!(Browser::new(&origin, "").send("POST", "/revoke", &[FORM], &form).await.status, 200);
    for _ in 0..2 {
        assert_eq!(me().await.status, 401);
    }
    // what both have begun, one ends after kill -9 of the other
    let verifier = CodeVerifier::generate();
    let challenge = CodeChallenge::from_verifier(&verifier).to_string();
    let mut browser = Browser::new(&origin, "");
    let with_challenge = |mut members: Value| {
        members["code_challenge"] = json!(challenge);
        members
    };
    let started = browser.call("start", &client, with_challenge(json!({ "identifier": "ada" }))).await;
    let id = started.json()["session_id"].clone();
    let members = json!({
        "session_id": id, "method": "password", "username": "ada", "password": "correct horse battery staple",
    });
    assert_eq!(browser.call("authenticate", &client, with_challenge(members)).await.status, 200);
    other.child.kill().await.unwrap();
    proxy.servers.lock().unwrap().retain(|server| *server == one.address);
    let completed = browser.call("complete", &client, with_challenge(json!({ "session_id": id }))).await;
    assert_eq!(completed.status, 200, "{completed:?}");
    let target = format!(
        "/authorize?client_id=web&redirect_uri=http%3A%2F%2F127.0.0.1%3A3000%2Fcallback&response_type=code\
         &scope=openid&code_challenge={challenge}&code_challenge_method=S256"
    );
    let again = browser.open(&target).await.redirected("code").unwrap();
    let redeem = redeem.replace(&code, &again).replace(VERIFIER, verifier.expose());
    assert_eq!(browser.send("POST", "/token", &[FORM], &redeem).await.status, 200);
    assert_eq!(me().await.status, 401);
    fs::remove_file(path).unwrap();
}
