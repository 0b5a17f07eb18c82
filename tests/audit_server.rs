//! Attacks on the bundled server, and its shutdown, over real sockets.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use support::browser::{Browser, Registered};
use support::example::Example;
use support::late_bodies::{self, LateCall};
use support::wire::{Wire, body, header, status};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    task::JoinSet,
    time::timeout,
};
use tollgate::clock::{Clock, SystemClock};

const FREE_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];
/// A bound for tests that fail. The server is another process, so no clock of a test can move its time.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a07_keys_cannot_be_guessed_at_the_event_log() {
    let server = Example::start("server", &FREE_PORT).await;
    let mut wire = server.wire().await;
    // the demo needs no key, but not through a proxy
    let guesses = ["x-api-key: guess", "x-operator-key: guess", "x-forwarded-for: 192.0.2.1\naccept: */*"];
    for (number, guess) in guesses.iter().cycle().take(60).enumerate() {
        let path = if number % 2 == 0 { "log" } else { "stream" };
        let refused = wire.ask(&format!("GET /events/{path} HTTP/1.1\n{guess}-{number}")).await;
        assert_eq!((status(&refused), header(&refused, "www-authenticate")), (401, Some("ApiKey")), "{number}");
    }
    // from now on a right key is not looked at either, here and at the API
    for request in [
        "GET /events/log HTTP/1.1\nx-operator-key: demo-operator-key",
        "GET /events/log HTTP/1.1\nx-api-key: demo-acme-key",
        "GET /api/hello HTTP/1.1\nx-api-key: demo-acme-key",
    ] {
        let refused = wire.ask(request).await;
        assert_eq!(status(&refused), 429, "{request}");
        assert!((1..=60).contains(&header(&refused, "retry-after").unwrap().parse::<u32>().unwrap()), "{refused}");
    }
}

#[tokio::test]
async fn a07_reads_of_the_event_log_are_charged_apart_from_the_budget_of_the_api() {
    let server = Example::start("server", &FREE_PORT).await;
    let mut wire = server.wire().await;
    let read = "GET /events/log HTTP/1.1\nx-api-key: demo-globex-key";
    for number in 0..120 {
        assert_eq!(status(&wire.ask(read).await), 200, "{number}");
    }
    assert_eq!(status(&wire.ask(read).await), 429);
    assert_eq!(status(&wire.ask("GET /events/ HTTP/1.1").await), 200, "the page reads nothing");
    assert_eq!(status(&wire.ask("GET /events/log HTTP/1.1\nx-api-key: demo-acme-key").await), 200);
    let hello = wire.ask("GET /api/hello HTTP/1.1\nx-api-key: demo-globex-key").await;
    assert_eq!((status(&hello), header(&hello, "x-ratelimit-remaining")), (200, Some("59")));
}

#[tokio::test]
async fn a09_the_operator_sees_who_was_guessed_and_that_keys_were() {
    let server = Example::start("server", &FREE_PORT).await;
    let mut wire = server.wire().await;
    wire.ask("GET /api/hello HTTP/1.1\nx-api-key: guessed").await;
    wire.ask("GET /api/hello HTTP/1.1").await;
    let callback = format!("{}/demo/callback", server.origin);
    let client = Registered { id: "demo-web", redirect_uri: &callback };
    for name in ["ada", "grace", "nobody"] {
        let mut browser = Browser::new(&server.origin, "");
        let id = browser.start(&client, name).await;
        let step = serde_json::json!({"session_id": id, "method": "password", "username": name, "password": "wrong"});
        assert_eq!(browser.call("authenticate", &client, step).await.status, 401);
    }
    wire.ask("GET /account HTTP/1.1").await;
    let log = wire.ask("GET /events/log HTTP/1.1\nx-operator-key: demo-operator-key").await;
    let log: Value = serde_json::from_str(body(&log)).unwrap();
    let of = |kind: &str| -> Vec<Value> {
        log["events"].as_array().unwrap().iter().filter(|event| event["kind"] == kind).cloned().collect()
    };
    assert_eq!((of("credential_unknown").len(), of("tenant_missing").len()), (1, 1), "{log}");
    assert_eq!(of("tenant_missing")[0]["reason"], "missing", "{log}");
    assert_eq!(of("session_refused")[0]["reason"], "no_session", "{log}");
    let failed = of("authn_login_fail");
    assert_eq!(failed.len(), 3, "{log}");
    assert!(failed.iter().all(|event| event["subject"].is_string()), "{log}");
}

#[tokio::test]
async fn b20_no_route_of_the_server_closes_a_connection_whose_body_comes_later() {
    let server = Example::start("server", &FREE_PORT).await;
    let form = "content-type: application/x-www-form-urlencoded";
    let lines = [
        "PUT /healthz",
        "POST /",
        "POST /demo/",
        "POST /demo/nowhere",
        "POST /account/sign-out",
        "GET /account",
        "POST /api/hello",
        "POST /api/me",
        "POST /api/nowhere",
        "POST /nowhere",
        "POST /account/totp/begin",
    ];
    let calls = lines.map(|line| LateCall::new(&format!("{line}\n{form}"), "a=b")).to_vec();
    let all = late_bodies::make(server.address, calls, 1_100).await;
    // many of them are refused by a limit in the end, and answered like the others
    let as_expected = |all: &[late_bodies::Outcome]| all.iter().all(|it| it.lost == 0 && it.closing == 0);
    assert!(as_expected(&all.values().copied().collect::<Vec<_>>()), "{all:#?}");
}

/// Waits until the server closes the connection, and returns how long that took.
async fn closed(mut stream: TcpStream) -> Duration {
    let (clock, mut rest) = (SystemClock::new(), Vec::new());
    let began = clock.now();
    // a reset is an end, too
    let ended = timeout(LONG, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the server keeps the connection");
    clock.now().since(began)
}

#[tokio::test]
async fn a08_connections_without_a_complete_head_are_closed_after_ten_seconds() {
    let server = Example::start("server", &FREE_PORT).await;
    let whole = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let slow = [
        String::new(),
        String::from("GET /healthz HTTP/1.1\r\nhost: loc"),
        // the preface of HTTP/2, its settings, and no request
        String::from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
        String::from("PRI * HT"),
        // a second head that stays behind
        format!("{whole}GET /healthz"),
        String::from(whole),
    ];
    let mut connections = JoinSet::new();
    for text in slow {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        connections.spawn(async move { (closed(stream).await, text) });
    }
    // over HTTP/2, with a request before and none afterwards
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let idle = tokio::spawn(timeout(LONG, connection));
    let request = http::Request::get(format!("{}/healthz", server.origin)).body(String::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    // a response may take longer than that
    let mut stream = server.wire().await;
    stream.send("GET /events/stream HTTP/1.1\r\nhost: x\r\nx-api-key: demo-globex-key\r\n\r\n").await;
    stream.until("retry: 2000").await;
    while let Some(ended) = connections.join_next().await {
        let (took, text) = ended.unwrap();
        assert!((8..20).contains(&took.as_secs()), "{took:?} {text:?}");
    }
    assert!(idle.await.unwrap().is_ok(), "the server keeps the connection");
    drop(sender);
    // the stream still runs
    let mut wire = server.wire().await;
    for _ in 0..61 {
        wire.ask("GET /api/hello HTTP/1.1\nx-api-key: demo-globex-key").await;
    }
    stream.until("\"count\":1}").await;
}

#[tokio::test]
async fn a08_an_address_has_a_hundred_connections_and_leaves_room_for_others() {
    let server = Example::start("server", &["--listen", "localhost:0"]).await;
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut wire = server.wire().await;
        assert_eq!(status(&wire.ask("GET /healthz HTTP/1.1").await), 200);
        held.push(wire);
    }
    let refused = TcpStream::connect(server.address).await.unwrap();
    assert!(closed(refused).await < Duration::from_secs(5));
    // another address is served: this machine's by IPv6, where there is one
    if let Ok(stream) = TcpStream::connect(("::1", server.address.port())).await {
        assert_eq!(status(&Wire::of(stream).ask("GET /healthz HTTP/1.1").await), 200);
    }
    drop(held);
    // the server notices the ends one by one
    let served = async {
        loop {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
            let mut text = String::new();
            if stream.read_to_string(&mut text).await.is_ok() && text.starts_with("HTTP/1.1 200") {
                return;
            }
        }
    };
    timeout(LONG, served).await.unwrap();
}

#[tokio::test]
async fn a08_slow_bodies_of_one_address_are_bounded_before_they_are_read() {
    let server = Example::start("server", &FREE_PORT).await;
    let head = "POST /authentication/start HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 100\r\n";
    let mut held = Vec::new();
    for _ in 0..50 {
        let mut wire = server.wire().await;
        wire.send(&format!("{head}expect: 100-continue\r\n\r\n")).await;
        // the server is reading
        wire.until("100 Continue\r\n\r\n").await;
        wire.send("{\"identifier\":").await;
        held.push(wire);
    }
    let mut wire = server.wire().await;
    wire.send(&format!("{head}\r\n{{")).await;
    let refused = wire.answer(false).await;
    assert_eq!((status(&refused), header(&refused, "retry-after")), (429, Some("1")), "{refused}");
    // the API and what needs no body go on
    assert_eq!(status(&server.wire().await.ask("GET /jwks HTTP/1.1").await), 200);
    assert_eq!(status(&server.wire().await.ask("GET /api/hello HTTP/1.1\nx-api-key: demo-acme-key").await), 200);
}

#[cfg(unix)]
#[tokio::test]
async fn a19_a_signal_ends_the_server_promptly_while_a_stream_is_open() {
    for name in ["TERM", "INT"] {
        let mut server = Example::start("server", &FREE_PORT).await;
        let mut stream = server.wire().await;
        stream.send("GET /events/stream HTTP/1.1\r\nhost: x\r\nx-operator-key: demo-operator-key\r\n\r\n").await;
        stream.until("retry: 2000").await;
        // an idle connection does not hold it up either
        let mut idle = server.wire().await;
        idle.ask("GET /healthz HTTP/1.1").await;
        let pid = server.child.id().unwrap().to_string();
        let clock = SystemClock::new();
        let began = clock.now();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().await.unwrap().success());
        assert!(timeout(LONG, server.child.wait()).await.unwrap().unwrap().success());
        // the server would cut the stream off after five seconds
        let took = clock.now().since(began);
        assert!(took < Duration::from_secs(4), "{name}: {took:?}");
        assert!(stream.until("\r\n0\r\n\r\n").await.ends_with("0\r\n\r\n"), "the stream ended properly");
    }
}

#[tokio::test]
async fn the_server_has_the_name_localhost_and_pages_go_there() {
    let server = Example::start("server", &["--listen", "localhost:0"]).await;
    let port = server.address.port();
    assert_eq!(server.origin, format!("http://localhost:{port}"));
    let mut wire = server.wire().await;
    let ask = |path: &str, host: &str, more: &str| format!("GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n{more}\r\n");
    for address in ["127.0.0.1", "[::1]"] {
        for (path, more) in [
            ("/", ""),
            ("/demo/", ""),
            ("/demo/login/demo-web", ""),
            ("/account", ""),
            ("/events/", ""),
            ("/callback?code=x&state=y", ""),
            ("/authorize?client_id=demo-web", "sec-fetch-mode: navigate\r\n"),
        ] {
            wire.send(&ask(path, address, more)).await;
            let sent = wire.answer(false).await;
            let location = format!("http://localhost:{port}{path}");
            assert_eq!((status(&sent), header(&sent, "location")), (307, Some(&*location)), "{path}");
        }
        for path in ["/healthz", "/jwks", "/openapi.json", "/demo/outbox", "/.well-known/openid-configuration"] {
            wire.send(&ask(path, address, "")).await;
            assert_eq!(status(&wire.answer(false).await), 200, "{path}");
        }
        wire.send(&ask("/api/hello", address, "x-api-key: demo-acme-key\r\n")).await;
        assert_eq!(status(&wire.answer(false).await), 200);
    }
    for path in ["/demo/", "/events/"] {
        wire.send(&ask(path, "localhost", "sec-fetch-mode: navigate\r\n")).await;
        assert_eq!(status(&wire.answer(false).await), 200, "{path}");
    }
    // a machine without IPv6 has none to listen on
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let stream = TcpStream::connect(("::1", port)).await.unwrap();
        assert_eq!(status(&Wire::of(stream).ask("GET /healthz HTTP/1.1").await), 200);
    }
}

#[tokio::test]
async fn a_login_at_an_address_works_for_programs() {
    let server = Example::start("server", &FREE_PORT).await;
    let callback = format!("{}/demo/callback", server.origin);
    let client = Registered { id: "demo-web", redirect_uri: &callback };
    for origin in [format!("http://{}", server.address), server.origin.clone()] {
        let mut browser = Browser::new(&origin, "");
        browser.log_in(&client, "ada", "correct horse battery staple").await;
    }
}
