//! The example server closes connections whose clients send nothing, or read nothing.

#[path = "../examples/server/idle.rs"]
mod idle;
#[path = "../examples/server/watched.rs"]
mod watched;

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use http_body::Frame;
use idle::{HEAD_TIME, OpenRequests, READ_TIME};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::{advance, sleep},
};
use watched::{CountedBody, Watched};

const SECOND: Duration = Duration::from_secs(1);

/// A body with this number of parts, which never ends.
struct Parts(usize);

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(left) = self.0.checked_sub(1) else { return Poll::Pending };
        self.0 = left;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

/// Returns whether a part was there.
fn take_part(body: &mut CountedBody) -> bool {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Returns whether the connection ends within this time.
async fn ends_within(requests: &OpenRequests, time: Duration) -> bool {
    tokio::select! {
        () = requests.clone().idle() => true,
        () = sleep(time) => false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_ends() {
    let requests = OpenRequests::new();
    assert!(!ends_within(&requests, HEAD_TIME - SECOND).await);
    drop(requests.begin());
    assert!(!ends_within(&requests, HEAD_TIME - SECOND).await);
    assert!(ends_within(&requests, 2 * SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_still_being_sent_keeps_the_connection_open() {
    let (requests, (io, mut client)) = (OpenRequests::new(), duplex(1));
    // the body has ended, and its last parts are on their way to a slow client
    drop(requests.begin());
    let mut connection = Watched { io, requests: requests.clone() };
    let sending = tokio::spawn(async move { connection.write_all(b"abc").await });
    for _ in 0..2 {
        assert!(!ends_within(&requests, READ_TIME - SECOND).await);
        client.read_u8().await.unwrap();
    }
    sending.await.unwrap().unwrap();
    assert!(!ends_within(&requests, HEAD_TIME - SECOND).await);
    assert!(ends_within(&requests, 2 * SECOND).await);
    // a client that takes all of the answers to its pings, and has no request
    let (requests, (io, _client)) = (OpenRequests::new(), duplex(1_000));
    let mut connection = Watched { io, requests: requests.clone() };
    let answers = async {
        loop {
            sleep(HEAD_TIME - SECOND).await;
            connection.write_all(b"pong").await.unwrap();
        }
    };
    tokio::select! {
        is_over = ends_within(&requests, HEAD_TIME + SECOND) => assert!(is_over),
        () = answers => {}
    }
    // a client that takes nothing
    let (requests, (io, _client)) = (OpenRequests::new(), duplex(1));
    let mut connection = Watched { io, requests: requests.clone() };
    tokio::spawn(async move { connection.write_all(b"ab").await });
    assert!(!ends_within(&requests, READ_TIME - SECOND).await);
    assert!(ends_within(&requests, 2 * SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_if_its_client_reads_no_response() {
    let requests = OpenRequests::new();
    let working = requests.begin();
    assert!(!ends_within(&requests, 10 * READ_TIME).await, "a slow handler");
    let unread = CountedBody::new(Body::from("x"), working);
    assert!(!ends_within(&requests, READ_TIME - SECOND).await);
    assert!(ends_within(&requests, HEAD_TIME).await);

    let requests = OpenRequests::new();
    let mut streaming = CountedBody::new(Body::new(Parts(2)), requests.begin());
    for _ in 0..2 {
        advance(READ_TIME - SECOND).await;
        assert!(take_part(&mut streaming));
    }
    assert!(!ends_within(&requests, READ_TIME - SECOND).await, "the client has read a part");
    // nothing is there to be read
    assert!(!take_part(&mut streaming));
    assert!(!ends_within(&requests, 10 * READ_TIME).await);
    drop(streaming);
    assert!(ends_within(&requests, HEAD_TIME + SECOND).await);
    drop(unread);
}
