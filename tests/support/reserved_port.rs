//! [`ReservedPort`].

use tokio::net::TcpSocket;

/// A port on loopback for a program that a test starts. No other program gets it as long as this value lives. While nothing
/// listens there, for example because the program was killed, connections are refused.
pub(crate) struct ReservedPort {
    pub(crate) number: u16,
    _socket: Option<TcpSocket>,
}

impl ReservedPort {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let number = socket.local_addr().unwrap().port();
        // other systems would keep the program from listening there, too
        Self { number, _socket: cfg!(target_os = "linux").then_some(socket) }
    }
}
