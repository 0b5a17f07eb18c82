//! A bare server of tokens: the signatures of an exchange, and as many bytes as ours answers.

use std::convert::Infallible;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::{issuers::LEAN, wire::end_with_parent};

/// The bytes of the body that the bundled server answers: with an id_token, and without. The section `tokens` compares them.
const ANSWERS: [usize; 2] = [1_260, 767];
/// About as many bytes as its other headers have.
const HEADERS: HeaderValue = HeaderValue::from_static(concat!(
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none' and as many bytes as seven more ",
    "headers with their names, which say that answers are not cached, sniffed, framed or referred to, and how many ",
    "requests of the limit are left, in which window, and when the next ones are admitted, in seconds since the epoch"
));
/// About as many bytes as are signed in a token.
const SIGNED: [u8; 480] = [b'x'; 480];

/// Serves on a free loopback port, and prints its address. It has the runtime of the bundled server.
pub fn serve() {
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("the runtime starts");
    runtime.block_on(accept()).expect("the port opens");
}

async fn accept() -> std::io::Result<()> {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let key: &EcdsaKeyPair = Box::leak(Box::new(key));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answer = service_fn(move |request: Request<Incoming>| async move {
            let body = request.into_body().collect().await.expect("the client sends its body").to_bytes();
            Ok::<_, Infallible>(exchange(key, &body))
        });
        // a client that disconnects is not an error
        tokio::spawn(async move { _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await });
    }
}

fn exchange(key: &EcdsaKeyPair, body: &[u8]) -> Response<Full<Bytes>> {
    let lean = format!("client_id={LEAN}&");
    let is_lean_refresh =
        body.starts_with(b"grant_type=refresh_token") && body.windows(lean.len()).any(|part| part == lean.as_bytes());
    let (signatures, length) = if is_lean_refresh { (1, ANSWERS[1]) } else { (2, ANSWERS[0]) };
    for _ in 0..signatures {
        std::hint::black_box(key.sign(&SystemRandom::new(), &SIGNED).expect("a signature"));
    }
    let mut text = r#"{"access_token":"any","refresh_token":"any","more":""#.to_owned();
    text.extend(std::iter::repeat_n('x', length - text.len() - 2));
    text.push_str("\"}");
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::CONTENT_SECURITY_POLICY, HEADERS)
        .body(Full::new(text.into()))
        .expect("a valid answer")
}
