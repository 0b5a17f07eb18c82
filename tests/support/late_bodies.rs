//! Calls over kept-alive HTTP/1.1 connections whose bodies come later than their heads.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

/// The time between a head and its body. It is the subject of these tests.
const BETWEEN: Duration = Duration::from_millis(2);

/// A call, as its request line and headers, and the body that comes later.
#[derive(Clone, Debug)]
pub(crate) struct LateCall {
    head: String,
    body: String,
    at_once: bool,
}

impl LateCall {
    /// Creates a call whose body has a `Content-Length`. The first line is the method and the path, the others are headers.
    pub(crate) fn new(head: &str, body: impl Into<String>) -> Self {
        let (head, body) = (head.to_owned(), body.into());
        Self { head: format!("{head}\ncontent-length: {}", body.len()), body, at_once: false }
    }

    /// Creates a call whose body comes in one chunk.
    pub(crate) fn chunked(head: &str, body: &str) -> Self {
        let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        Self { head: format!("{head}\ntransfer-encoding: chunked"), body: chunk, at_once: false }
    }

    /// Sends the body together with the head instead.
    pub(crate) fn at_once(self) -> Self {
        Self { at_once: true, ..self }
    }

    pub(crate) fn name(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    fn sent_head(&self) -> String {
        let (line, headers) = self.head.split_once('\n').unwrap();
        let headers: String = headers.lines().map(|line| format!("{}\r\n", line.trim())).collect();
        format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")
    }
}

/// How the calls of a kind went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) answered: usize,
    /// Answers that announced the end of their connection.
    pub(crate) closing: usize,
    pub(crate) lost: usize,
    /// The last status.
    pub(crate) status: u16,
}

/// Makes this many calls, on ten connections at the same time. A connection is used until a response announces its end.
/// Returns how they went, by request line and status.
pub(crate) async fn make(address: SocketAddr, calls: Vec<LateCall>, total: usize) -> BTreeMap<String, Outcome> {
    const CONNECTIONS: usize = 10;
    let (calls, mut tasks) = (Arc::new(calls), JoinSet::new());
    for first in 0..CONNECTIONS {
        let calls = Arc::clone(&calls);
        tasks.spawn(async move {
            let (mut outcomes, mut open) = (BTreeMap::<String, Outcome>::new(), None);
            for number in (first..total).step_by(CONNECTIONS) {
                // each connection makes them in another order
                let call = &calls[(number / CONNECTIONS + first) % calls.len()];
                let mut stream = match open.take() {
                    Some(stream) => stream,
                    None => connect(address).await,
                };
                let outcome = outcomes.entry(call.name().to_owned()).or_default();
                match answer(&mut stream, call).await {
                    Some((status, closes)) => {
                        outcome.answered += 1;
                        outcome.closing += usize::from(closes);
                        outcome.status = status;
                        open = (!closes).then_some(stream);
                    }
                    None => outcome.lost += 1,
                }
            }
            outcomes
        });
    }
    let mut all = BTreeMap::<String, Outcome>::new();
    for outcomes in tasks.join_all().await {
        for (name, outcome) in outcomes {
            let sum = all.entry(name).or_default();
            sum.answered += outcome.answered;
            sum.closing += outcome.closing;
            sum.lost += outcome.lost;
            sum.status = sum.status.max(outcome.status);
        }
    }
    all
}

/// Sends each packet at once.
async fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::new(stream)
}

/// Returns the status, and whether the connection closes. Returns `None` if there is no answer.
async fn answer(stream: &mut BufReader<TcpStream>, call: &LateCall) -> Option<(u16, bool)> {
    // a closed connection may accept what is written, or refuse it
    let mut packets = vec![call.sent_head(), call.body.clone()];
    if call.at_once {
        packets = vec![packets.concat()];
    }
    for (number, packet) in packets.into_iter().enumerate() {
        if number > 0 {
            sleep(BETWEEN).await;
        }
        let _refused = stream.get_mut().write_all(packet.as_bytes()).await;
    }
    timeout(Duration::from_secs(60), response(stream)).await.ok()?
}

async fn response(stream: &mut BufReader<TcpStream>) -> Option<(u16, bool)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(stream.read_u8().await.ok()?));
    }
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    let len = field("content-length: ").map_or(0, |len| len.parse().unwrap());
    stream.read_exact(&mut vec![0; len]).await.ok()?;
    let status = head.get("HTTP/1.1 ".len()..)?.get(..3)?.parse().ok()?;
    Some((status, field("connection: ").is_some_and(|value| value == "close")))
}
