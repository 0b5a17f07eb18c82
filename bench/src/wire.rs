//! A server in its own process, and persistent connections to it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{self, Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

pub const DEADLINE: Duration = Duration::from_secs(20);

/// A server process, which is ended on drop.
pub struct Server {
    pub process: Child,
    pub address: String,
    /// The output of the server after its address.
    pub output: Option<BufReader<ChildStdout>>,
}

impl Server {
    /// Starts a child with these arguments. The child prints its address first.
    pub fn start(one: &Path, arguments: &[&str]) -> io::Result<Self> {
        let mut process = Command::new(one).args(arguments).stdout(Stdio::piped()).stdin(Stdio::piped()).spawn()?;
        let (mut address, mut output) = (String::new(), process.stdout.take().map(BufReader::new));
        if let Some(output) = &mut output {
            output.read_line(&mut address)?;
        }
        Ok(Self { process, address: address.trim().to_owned(), output })
    }

    pub fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs in the child: ends it when its parent is gone.
pub fn end_with_parent() {
    thread::spawn(|| {
        // the parent holds the other end as long as it lives
        let _ = io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
}

pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub fn new(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Self { stream, read: Vec::with_capacity(4096) })
    }

    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Reads one complete response. Returns its head and its body.
    pub fn receive(&mut self) -> io::Result<(&[u8], &[u8])> {
        self.read.clear();
        let mut chunk = [0; 4096];
        let end = loop {
            let count = self.stream.read(&mut chunk)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read.extend_from_slice(&chunk[..count]);
            let Some(head) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                continue;
            };
            if self.read.len() >= head + 4 + content_length(&self.read[..head]) {
                break head + 4;
            }
        };
        Ok(self.read.split_at(end))
    }
}

fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length: ";
    let Some(at) = head.windows(NAME.len()).position(|bytes| bytes.eq_ignore_ascii_case(NAME)) else { return 0 };
    let digits = head[at + NAME.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
}
