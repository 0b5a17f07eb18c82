//! The addresses that the server listens on, and the name that it has there.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::net::TcpListener;

/// Where to listen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listen {
    /// On this port of the loopback interface, for IPv4 and IPv6.
    Localhost(u16),
    At(SocketAddr),
}

impl Listen {
    /// Parses an address, or `localhost` and a port.
    pub(crate) fn parse(value: &str) -> Result<Self, String> {
        let error = || format!("{value}: must be an address and a port, such as localhost:8080.");
        if let Some(port) = value.strip_prefix("localhost:") {
            return port.parse().map(Self::Localhost).map_err(|_| error());
        }
        let address: SocketAddr = value.parse().map_err(|_| error())?;
        Ok(Self::At(SocketAddr::new(address.ip().to_canonical(), address.port())))
    }

    /// Parses an address of the demo, whose keys are public.
    pub(crate) fn loopback(value: &str) -> Result<Self, String> {
        match Self::parse(value)? {
            Self::At(address) if !is_localhost(address.ip()) => Err(format!(
                "{value}: the keys of the demo are public, so it listens only on a loopback address, localhost, \
                 127.0.0.1 or [::1]."
            )),
            listen => Ok(listen),
        }
    }

    /// Returns the form in which the address is written.
    pub(crate) fn shown(self) -> String {
        match self {
            Self::Localhost(port) => format!("localhost:{port}"),
            Self::At(address) => address.to_string(),
        }
    }

    pub(crate) fn is_loopback(self) -> bool {
        match self {
            Self::Localhost(_) => true,
            Self::At(address) => address.ip().is_loopback(),
        }
    }

    /// Returns the origin of a server that listens here, on this port. Its own name is `localhost` where that leads to it.
    pub(crate) fn origin(self, bound: SocketAddr) -> String {
        match self {
            Self::At(address) if !is_localhost(address.ip()) => format!("http://{bound}"),
            _ => format!("http://localhost:{}", bound.port()),
        }
    }
}

fn is_localhost(ip: IpAddr) -> bool {
    ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST
}

/// Listens, or explains why that is not possible.
pub(crate) async fn bind(listen: Listen) -> Result<Vec<TcpListener>, String> {
    let port = match listen {
        Listen::At(address) => {
            return Ok(vec![TcpListener::bind(address).await.map_err(|error| explained(address, &error))?]);
        }
        Listen::Localhost(port) => port,
    };
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let first = TcpListener::bind(v4).await.map_err(|error| explained(v4, &error))?;
    let port = first.local_addr().map_err(|error| explained(v4, &error))?.port();
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    match TcpListener::bind(v6).await {
        Ok(second) => Ok(vec![first, second]),
        // a browser that resolves `localhost` to IPv6 would reach the other program
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(explained(v6, &error)),
        // this machine has no IPv6
        Err(_) => Ok(vec![first]),
    }
}

fn explained(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("{address} is in use by another program. Stop it, or choose another port with --listen.")
        }
        _ => format!("can't listen on {address}: {error}"),
    }
}
