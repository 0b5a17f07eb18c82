//! A proxy with faults, on a runtime of its own.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::{Builder, Runtime},
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

/// Forwards connections to a server on this machine, until this value is dropped.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: watch::Sender<State>,
    runtime: Option<Runtime>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// How long replies take.
    delay: Duration,
    is_refusing: bool,
    /// How often the connections were stranded.
    strandings: u32,
    /// How often the connections were closed.
    closings: u32,
    /// How often the connections were told to cut a reply.
    cuts: u32,
}

impl Proxy {
    pub(crate) fn start(to: u16) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // the first connection finds it
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = watch::Sender::new(State::default());
        runtime.spawn(run(listener, to, state.subscribe()));
        Self { port, state, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Delays all replies from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    /// Breaks all connections and refuses new ones, or no longer.
    pub(crate) fn refuse(&self, is_refusing: bool) {
        self.state.send_modify(|state| state.is_refusing = is_refusing);
    }

    /// Swallows all that is sent on the connections of now, which stay open. New ones work.
    pub(crate) fn strand(&self) {
        self.state.send_modify(|state| state.strandings += 1);
    }

    /// Closes the connections of now. New ones work.
    pub(crate) fn close(&self) {
        self.state.send_modify(|state| state.closings += 1);
    }

    /// Closes each connection of now in the middle of its next reply. New ones work.
    pub(crate) fn cut_next_reply(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

async fn run(listener: std::net::TcpListener, to: u16, mut state: watch::Receiver<State>) {
    let mut listener = TcpListener::from_std(listener).unwrap();
    let address = listener.local_addr().unwrap();
    loop {
        loop {
            let client = tokio::select! {
                accepted = listener.accept() => accepted.unwrap().0,
                changed = state.wait_for(|state| state.is_refusing) => match changed {
                    Ok(_) => break,
                    Err(_) => return,
                },
            };
            tokio::spawn(serve(client, (Ipv4Addr::LOCALHOST, to).into(), state.clone()));
        }
        drop(listener);
        if state.wait_for(|state| !state.is_refusing).await.is_err() {
            return;
        }
        listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => panic!("{error}"),
            }
        };
    }
}

async fn serve(client: TcpStream, to: SocketAddr, state: watch::Receiver<State>) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
        // the end of a connection is a reset
        stream.set_zero_linger().unwrap();
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (mut breaks, at_start) = (state.clone(), *state.borrow());
    let requests = |now: &State| Fault { swallows: now.strandings != at_start.strandings, ..Fault::default() };
    let replies = |now: &State| Fault { delay: now.delay, cuts: now.cuts != at_start.cuts, ..requests(now) };
    tokio::select! {
        () = forward(from_client, to_server, &state, requests) => {}
        () = forward(from_server, to_client, &state, replies) => {}
        _ = breaks.wait_for(|state| state.is_refusing || state.closings != at_start.closings) => {}
    }
}

/// What happens to the next bytes.
#[derive(Clone, Copy, Default)]
struct Fault {
    swallows: bool,
    delay: Duration,
    cuts: bool,
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &watch::Receiver<State>,
    fault: impl Fn(&State) -> Fault,
) {
    // a delay keeps nothing behind it waiting
    let (sender, mut under_way) = mpsc::unbounded_channel();
    let read = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let Fault { swallows, delay, cuts } = fault(&state.borrow());
            if swallows {
                continue;
            }
            let end = if cuts { read / 2 } else { read };
            sender.send((Instant::now() + delay, buffer[..end].to_vec())).unwrap();
            if cuts {
                break;
            }
        }
        drop(sender);
    };
    let write = async {
        while let Some((at, bytes)) = under_way.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}
