//! HTTP/1.1 as text over a socket.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

/// A persistent connection.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    pub(crate) fn of(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// Sends a request line and headers, one per line. Returns the response like
    /// [`answer`](Self::answer).
    pub(crate) async fn ask(&mut self, head: &str) -> String {
        let head = head.trim().lines().map(|line| format!("{}\r\n", line.trim())).collect::<String>();
        self.send(&format!("{head}host: localhost\r\n\r\n")).await;
        self.answer(head.starts_with("HEAD ")).await
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads the next response. Returns it without its date and with sorted headers.
    pub(crate) async fn answer(&mut self, is_head: bool) -> String {
        let head = self.until("\r\n\r\n").await;
        let field = |name| head.lines().find_map(|line| line.strip_prefix(name));
        let len = field("content-length: ").map_or(0, |len| len.parse().unwrap());
        let mut body = vec![0; if is_head { 0 } else { len }];
        self.0.read_exact(&mut body).await.unwrap();
        sorted(&format!("{head}{}", String::from_utf8(body).unwrap()).replace("\r\n", "\n"))
    }

    /// Ends the connection as a client does that hangs up, and returns what was still on its way.
    pub(crate) async fn hang_up(mut self) -> String {
        self.0.get_mut().shutdown().await.unwrap();
        let mut rest = Vec::new();
        timeout(Duration::from_secs(60), self.0.read_to_end(&mut rest)).await.unwrap().unwrap();
        String::from_utf8(rest).unwrap()
    }

    /// Reads up to and including this text. Fails if it takes too long.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        let read = async {
            while !text.ends_with(end) {
                text.push(char::from(self.0.read_u8().await.unwrap()));
            }
        };
        if timeout(Duration::from_secs(60), read).await.is_err() {
            panic!("{end:?} not received, only {text:?}");
        }
        text
    }
}

/// Removes the date and sorts the headers.
pub(crate) fn sorted(response: &str) -> String {
    let (head, body) = response.split_once("\n\n").unwrap();
    let (status, fields) = head.split_once('\n').unwrap_or((head, ""));
    let mut fields: Vec<&str> = fields.lines().filter(|line| !line.starts_with("date: ")).collect();
    fields.sort_unstable();
    let fields: String = fields.iter().map(|field| format!("{field}\n")).collect();
    format!("{status}\n{fields}\n{body}")
}

/// Returns the status of a response.
pub(crate) fn status(answer: &str) -> u16 {
    answer.get("HTTP/1.1 ".len()..).and_then(|rest| rest.get(..3)).unwrap().parse().unwrap()
}

/// Returns the value of a header.
pub(crate) fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\n\n").next()?;
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Returns the body of a response.
pub(crate) fn body(answer: &str) -> &str {
    answer.split_once("\n\n").unwrap().1
}
