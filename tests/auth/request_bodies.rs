//! How request bodies are read, and how much of them.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::world::{ADA, Answer, World, parameters, with};

const PATHS: &[&str] = &["start", "authenticate", "verify-otp", "complete"];
const MOST: usize = 64 * 1024;

async fn send<B>(world: &World, path: &str, content_type: &str, body: B) -> Answer
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let request = Request::post(format!("/authentication/{path}")).header("content-type", content_type);
    world.browser().serve(request.body(body).unwrap()).await
}

fn good() -> Value {
    with(parameters("web"), &[("identifier", ADA)])
}

fn is(answer: &Answer, status: u16, error: &str) {
    assert_eq!((answer.status.as_u16(), &*answer.error()), (status, error), "{answer:?}");
}

#[tokio::test]
async fn a_body_must_be_json() {
    let world = World::new().await;
    for content_type in [
        "",
        "json",
        "text/json",
        "application/json5",
        "application/problem+json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "text/plain;application/json",
        "application/json, text/plain",
    ] {
        for path in PATHS {
            is(&send(&world, path, content_type, Full::from(good().to_string())).await, 415, "unsupported_media_type");
        }
    }
    for content_type in ["application/json", "APPLICATION/JSON", " application/json ;charset=utf-8"] {
        assert_eq!(send(&world, "start", content_type, Full::from(good().to_string())).await.status, 200);
    }
    let two = Request::post("/authentication/start").header("content-type", "application/json");
    is(
        &world.browser().send(two.header("content-type", "application/json"), good().to_string()).await,
        415,
        "unsupported_media_type",
    );
    for (coding, status) in [("gzip", 415), ("br", 415), ("gzip, identity", 415), ("", 415), ("identity", 200)] {
        let request = Request::post("/authentication/start").header("content-type", "application/json");
        let answer = world.browser().send(request.header("content-encoding", coding), good().to_string()).await;
        assert_eq!(answer.status, status, "{coding}");
    }
}

#[tokio::test]
async fn a_body_must_be_an_object_of_strings_without_duplicate_names() {
    let world = World::new().await;
    let deep = |n: usize| format!("{{\"x\":{}{}}}", "[".repeat(n), "]".repeat(n));
    let text = good().to_string();
    let and = |more: &str| text.replacen('{', &format!("{{{more},"), 1);
    for (bad, description) in [
        (String::new(), "the body is not a valid JSON object"),
        ("null".into(), "the body is not a valid JSON object"),
        ("[]".into(), "the body is not a valid JSON object"),
        ("\"x\"".into(), "the body is not a valid JSON object"),
        (format!("[{text}]"), "the body is not a valid JSON object"),
        (format!("{text}{text}"), "the body is not a valid JSON object"),
        (format!("{text}x"), "the body is not a valid JSON object"),
        (format!("\u{feff}{text}"), "the body is not a valid JSON object"),
        (text[..text.len() - 1].to_owned(), "the body is not a valid JSON object"),
        (deep(200), "the body is not a valid JSON object"),
        (deep(30_000), "the body is not a valid JSON object"),
        (and("\"x\":\"\\ud800\""), "the body is not a valid JSON object"),
        (and("\"x\":1e999"), "the body is not a valid JSON object"),
        (and("\"x\":\"\u{1}\""), "the body is not a valid JSON object"),
        (and("\"x\":1,\"x\":2"), "an object contains the same name twice"),
        (and("\"\\u0069dentifier\":\"grace\""), "an object contains the same name twice"),
        (and("\"x\":{\"y\":1,\"y\":1}"), "an object contains the same name twice"),
        (and("\"x\":[{\"y\":1,\"y\":1}]"), "an object contains the same name twice"),
    ] {
        for path in PATHS {
            let answer = send(&world, path, "application/json", Full::from(bad.clone())).await;
            is(&answer, 400, "invalid_request");
            let shown: String = bad.chars().take(80).collect();
            assert!(
                answer.json()["error_description"].as_str().unwrap().starts_with(description),
                "{shown} {answer:?}"
            );
        }
    }
    let latin = [b"{\"identifier\":\"\xe9\"}".to_vec(), b"\xff\xfe{\x00}\x00".to_vec(), b"{\"\xc0\x80\":1}".to_vec()];
    for bad in latin {
        is(&send(&world, "start", "application/json", Full::from(bad)).await, 400, "invalid_request");
    }
    for name in good().as_object().unwrap().keys() {
        for value in [json!(1), json!(true), json!(["x"]), json!({"x": "y"}), json!(1.5)] {
            let mut bad = good();
            bad[name] = value;
            is(&send(&world, "start", "application/json", Full::from(bad.to_string())).await, 400, "invalid_request");
        }
        // null and empty values count as absent
        let mut answers = Vec::new();
        for value in [Some(json!(null)), Some(json!("")), None] {
            let mut bad = good();
            match value {
                Some(value) => bad[name] = value,
                None => drop(bad.as_object_mut().unwrap().remove(name)),
            }
            answers.push(send(&world, "start", "application/json", Full::from(bad.to_string())).await.own());
        }
        assert_eq!((&answers[0], &answers[1]), (&answers[2], &answers[2]), "{name}");
    }
    let unknown = and(&format!("\"x\":[1,{{\"y\":null}}],\"\":\"\",\"z\":{}", "[".repeat(50) + &"]".repeat(50)));
    assert_eq!(send(&world, "start", "application/json", Full::from(unknown)).await.status, 200);
}

#[tokio::test]
async fn a_body_may_have_64_kib_but_not_one_byte_more() {
    let world = World::new().await;
    let text = good().to_string();
    let padded = |len: usize| format!("{text}{}", " ".repeat(len - text.len()));
    assert_eq!(send(&world, "start", "application/json", Full::from(padded(MOST))).await.status, 200);
    for path in PATHS {
        is(&send(&world, path, "application/json", Full::from(padded(MOST + 1))).await, 413, "content_too_large");
    }
    // long values are accepted
    for name in ["identifier", "client_id", "redirect_uri", "scope", "code_challenge"] {
        let mut long = good();
        long[name] = json!("a".repeat(60_000));
        assert_eq!(send(&world, "start", "application/json", Full::from(long.to_string())).await.status, 400, "{name}");
    }
}

/// A body that repeats one chunk forever, or breaks off.
struct Endless {
    chunk: &'static [u8],
    polls: usize,
    breaks_at: usize,
    says: SizeHint,
}

impl Endless {
    fn new(chunk: &'static [u8]) -> Self {
        Self { chunk, polls: 0, breaks_at: usize::MAX, says: SizeHint::default() }
    }
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls += 1;
        assert!(self.polls <= MOST + 1, "the body is read forever");
        if self.polls > self.breaks_at {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.chunk)))))
    }

    fn size_hint(&self) -> SizeHint {
        self.says
    }
}

#[tokio::test]
async fn an_endless_body_is_read_only_up_to_the_limit() {
    let world = World::new().await;
    for chunk in [&b" "[..], b"", b"{\"x\":\"", &[b' '; 1000]] {
        is(&send(&world, "start", "application/json", Endless::new(chunk)).await, 413, "content_too_large");
    }
    // a body with a large Content-Length is not read at all
    let long = Endless { breaks_at: 0, says: SizeHint::with_exact(MOST as u64 + 1), ..Endless::new(b"x") };
    is(&send(&world, "start", "application/json", long).await, 413, "content_too_large");
    // a body that is longer than its Content-Length is refused
    let liar = Endless { says: SizeHint::with_exact(2), ..Endless::new(b"xx") };
    is(&send(&world, "start", "application/json", liar).await, 413, "content_too_large");
    // so is one that ends too early
    let short = Endless { breaks_at: 1, ..Endless::new(b"{\"identifier\":") };
    is(&send(&world, "start", "application/json", short).await, 400, "invalid_request");
}

/// A body whose connection is lost.
struct Lost(bool);

impl Body for Lost {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0 = !self.0;
        Poll::Ready(Some(if self.0 {
            Ok(Frame::data(Bytes::from_static(b"{}")))
        } else {
            Err(std::io::Error::other("connection reset by 10.0.0.7"))
        }))
    }
}

#[tokio::test]
async fn a_broken_body_is_reported_without_details_of_the_connection() {
    let world = World::new().await;
    let answer = send(&world, "start", "application/json", Lost(false)).await;
    is(&answer, 400, "invalid_request");
    assert!(!answer.text.contains("10.0.0.7"));
}
