//! One-time codes through HTTP gateways, well-behaved and not.

#![cfg(feature = "webhook")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod support;

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use support::certificate::Certificate;
use support::python::PythonServer;
use support::redis_server::ReservedPort;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tollgate::{
    clock::{Clock, SystemClock, UnixTime},
    delivery::{Channel, Message, Notice, NoticeKind, OtpSender, SendErrorKind, Webhook},
    testing::ManualClock,
};

const KEY: &[u8] = b"a key of thirty-two plain bytes.";

/// A gateway with scripted responses. The default response is 204.
struct Gateway {
    address: SocketAddr,
    seen: mpsc::UnboundedReceiver<Request<Bytes>>,
}

impl Gateway {
    async fn start(answers: impl IntoIterator<Item = Response>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let (tell, seen) = mpsc::unbounded_channel();
        let app = Router::new().fallback(async move |request: Request<Body>| {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            tell.send(Request::from_parts(head, body)).unwrap();
            answers.lock().unwrap().pop_front().unwrap_or_else(|| status(204))
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, seen }
    }

    fn webhook(&self) -> Webhook {
        webhook(self.address)
    }

    async fn next(&mut self) -> Request<Bytes> {
        timeout(Duration::from_secs(60), self.seen.recv()).await.expect("no request arrived").unwrap()
    }
}

/// A gateway that does this with each connection after it has received the request head.
async fn raw<F: Future<Output = ()> + Send>(act: impl Fn(TcpStream) -> F + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let act = act.clone();
            tokio::spawn(async move {
                let (mut stream, mut line) = (BufReader::new(stream), String::new());
                while stream.read_line(&mut line).await.is_ok_and(|read| read > 2) {
                    line.clear();
                }
                act(stream.into_inner()).await;
            });
        }
    });
    address
}

fn webhook(address: SocketAddr) -> Webhook {
    Webhook::new(&format!("http://{address}/otp?of=acme"), KEY).unwrap()
}

fn status(status: u16) -> Response {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

fn message(channel: Channel) -> Message {
    let clock = SystemClock::new();
    let until = clock.unix(clock.now()) + Duration::from_secs(300);
    Message::new(channel, "acme".parse().unwrap(), "+15550100", "482913", until)
}

/// Returns the result of one attempt. Fails if it takes too long.
async fn kind(webhook: &Webhook) -> Option<SendErrorKind> {
    let sent = timeout(Duration::from_secs(60), webhook.send(&message(Channel::Sms))).await;
    sent.expect("the attempt hangs").err().map(|error| error.kind())
}

fn header<'a>(request: &'a Request<Bytes>, name: &str) -> &'a str {
    request.headers()[name].to_str().unwrap()
}

/// HMAC-SHA256 (RFC 2104) for keys of at most 64 bytes.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let pad = |with: u8| (0..64).map(|place| key.get(place).unwrap_or(&0) ^ with).collect::<Vec<u8>>();
    let inner = Sha256::digest([&pad(0x36), text].concat());
    Sha256::digest([&pad(0x5c), &inner[..]].concat()).to_vec()
}

#[tokio::test]
async fn a_gateway_receives_the_code_and_can_verify_the_sender() {
    let mut gateway = Gateway::start([]).await;
    let clock = ManualClock::new();
    let webhook = gateway.webhook().clock(clock);
    let until = UnixTime::from_secs(1_000_000_300);
    let message = Message::new(Channel::Whatsapp, "acme".parse().unwrap(), "+15550100", "48\"2913", until);
    webhook.send(&message).await.unwrap();
    let request = gateway.next().await;
    assert_eq!((request.method().as_str(), request.uri().to_string()), ("POST", "/otp?of=acme".to_owned()));
    assert_eq!(header(&request, "content-type"), "application/json");
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    let text = "48\"2913 is your code. It is valid for 5 minutes. Never share it with anyone. Enter it only on the sign-in page.";
    let expected = json!({
        "id": message.id(), "channel": "whatsapp", "tenant": "acme", "to": "+15550100", "code": "48\"2913",
        "language": "en", "text": text, "expires_at": 1_000_000_300,
    });
    assert_eq!(body, expected);
    assert_eq!(header(&request, "webhook-id"), message.id());
    assert_eq!(header(&request, "webhook-timestamp"), "1000000000");
    let signed = [message.id().as_bytes(), b".1000000000.", request.body()].concat();
    assert_eq!(header(&request, "webhook-signature"), format!("v1,{}", STANDARD.encode(hmac(KEY, &signed))));
}

#[tokio::test]
async fn a_gateway_receives_a_notice_without_a_code() {
    let mut gateway = Gateway::start([]).await;
    let webhook = gateway.webhook().clock(ManualClock::new());
    let (at, until) = (UnixTime::from_secs(1_000_000_000), UnixTime::from_secs(1_000_086_400));
    let notice = Notice::new(NoticeKind::PasskeyAdded, at);
    let message = Message::of_notice(Channel::Sms, "acme".parse().unwrap(), "+15550100", notice, until);
    webhook.send(&message).await.unwrap();
    let body: Value = serde_json::from_slice(gateway.next().await.body()).unwrap();
    let text = "A passkey was added to your account on 2001-09-09 01:46 UTC. If that wasn't you, sign in, check your \
        sign-in methods and change your password.";
    let expected = json!({
        "id": message.id(), "channel": "sms", "tenant": "acme", "to": "+15550100", "notice": "passkey_added",
        "language": "en", "text": text, "expires_at": 1_000_086_400,
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_python_gateway_verifies_it_over_tls_and_untrusted_ones_get_nothing() {
    let (Some(certificate), Some(other)) = (Certificate::new("gateway"), Certificate::new("stranger")) else { return };
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let (chain, key) = (certificate.chain.to_str().unwrap(), certificate.key.to_str().unwrap());
    let arguments = ["--chain", chain, "--key", key, "--secret", secret];
    let Some(mut gateway) = PythonServer::start("gateway.py", "ssl", &arguments).await else { return };
    let url = format!("https://localhost:{}/otp", gateway.port);
    let webhook = || Webhook::new(&url, secret).unwrap();
    // trusted neither by public authorities nor by another private one
    assert_eq!(kind(&webhook()).await, Some(SendErrorKind::Transient));
    assert_eq!(kind(&webhook().root_pem(&other.authority).unwrap()).await, Some(SendErrorKind::Transient));
    let message = message(Channel::Sms);
    webhook().root_pem(&certificate.authority).unwrap().send(&message).await.unwrap();
    let first = gateway.next().await;
    assert_eq!((&first["verified"], &first["body"]["id"]), (&json!(true), &json!(message.id())));
    assert!(rustls::crypto::CryptoProvider::get_default().is_none(), "a process-wide crypto provider was installed");
}

#[tokio::test]
async fn retries_have_the_same_id_and_a_new_signature() {
    let mut gateway = Gateway::start([status(500), status(503)]).await;
    let (clock, message) = (ManualClock::new(), message(Channel::Sms));
    let webhook = gateway.webhook().clock(clock.clone());
    let mut signatures = BTreeSet::new();
    for is_sent in [false, false, true] {
        assert_eq!(webhook.send(&message).await.is_ok(), is_sent);
        clock.advance(Duration::from_secs(1));
        let attempt = &gateway.next().await;
        assert_eq!(header(attempt, "webhook-id"), message.id());
        let signed = [message.id(), header(attempt, "webhook-timestamp"), ""].join(".");
        let signature = STANDARD.encode(hmac(KEY, &[signed.as_bytes(), attempt.body()].concat()));
        assert_eq!(header(attempt, "webhook-signature"), format!("v1,{signature}"));
        signatures.insert(signature);
    }
    assert_eq!(signatures.len(), 3);
}

#[tokio::test]
async fn an_overloaded_gateway_controls_the_retry_time() {
    let busy = Response::builder().status(429).header("retry-after", "7").body(Body::empty()).unwrap();
    let gateway = Gateway::start([busy]).await;
    let error = gateway.webhook().send(&message(Channel::Sms)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (SendErrorKind::Transient, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let mut elsewhere = Gateway::start([]).await;
        let to = format!("http://{}/", elsewhere.address);
        let answer = Response::builder().status(status).header("location", to).body(Body::empty()).unwrap();
        let gateway = Gateway::start([answer]).await;
        assert_eq!(kind(&gateway.webhook()).await, Some(SendErrorKind::Permanent), "{status}");
        assert!(elsewhere.seen.try_recv().is_err(), "{status} was followed");
    }
}

/// An endless body that counts how many pieces were read.
struct Endless(Arc<AtomicUsize>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.fetch_add(1, SeqCst);
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 65_536])))))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.fetch_add(1 << 32, SeqCst);
    }
}

#[tokio::test]
async fn only_the_status_matters_and_endless_bodies_are_not_read() {
    for (code, expected) in [(200, None), (500, Some(SendErrorKind::Transient))] {
        let pieces = Arc::new(AtomicUsize::new(0));
        let answer = Response::builder().status(code).body(Body::new(Endless(Arc::clone(&pieces)))).unwrap();
        let gateway = Gateway::start([answer]).await;
        assert_eq!(kind(&gateway.webhook()).await, expected);
        // the connection is closed, so the gateway stops
        let closed = async {
            while pieces.load(SeqCst) < 1 << 32 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), closed).await.expect("the body is still being read");
    }
}

#[tokio::test]
async fn hanging_slow_and_endless_gateways_time_out() {
    let hangs = raw(async |_stream| std::future::pending().await).await;
    let drips = raw(async |mut stream| {
        for byte in b"HTTP/1.1 200 OK\r\nx: ".iter().chain(std::iter::repeat(&b'x')) {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let floods = raw(async |mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await;
        while stream.write_all(&[b'x'; 65_536]).await.is_ok() {}
    });
    let garbles = raw(async |mut stream| drop(stream.write_all(b"SMTP/1.1 OK\r\n\r\n").await));
    let hangs_up = raw(async |stream| drop(stream));
    for address in [hangs, drips.await, floods.await, garbles.await, hangs_up.await] {
        let webhook = webhook(address).timeout(Duration::from_millis(300)).unwrap();
        assert_eq!(kind(&webhook).await, Some(SendErrorKind::Transient));
    }
    let nobody = ReservedPort::new();
    assert_eq!(kind(&webhook(([127, 0, 0, 1], nobody.number).into())).await, Some(SendErrorKind::Transient));
}

#[test]
fn connections_of_an_ended_runtime_are_not_reused() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let gateways = runtime();
    let gateway = gateways.block_on(Gateway::start([]));
    let webhook = gateway.webhook();
    for _ in 0..3 {
        assert_eq!(runtime().block_on(kind(&webhook)), None);
    }
}

#[test]
fn invalid_settings_are_rejected_without_showing_secrets() {
    assert!(Webhook::new("http://gateway.example/otp", KEY).is_err());
    let error = Webhook::new("https://gateway.example/otp", "a short one").unwrap_err();
    assert!(!error.to_string().contains("a short one"));
    let webhook = || Webhook::new("https://gateway.example/hidden-path", KEY).unwrap();
    assert!(webhook().timeout(Duration::ZERO).is_err());
    assert!(webhook().root_pem("not PEM").is_err());
    let shown = format!("{:?}", webhook());
    assert!(shown.contains("gateway.example") && !shown.contains("hidden") && !shown.contains("thirty"), "{shown}");
}
