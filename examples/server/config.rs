//! Reads the command line.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

pub(crate) const HELP: &str = "\
A service behind tollgate, with demo tenants and users.

Usage: cargo run --example server -- [FLAGS]

  --listen ADDR      where to listen. Defaults to localhost:8080, which is
                     127.0.0.1 and, where there is IPv6, [::1]. The keys and
                     passwords of the demo are public, so it accepts only these
                     addresses. With --config and an https issuer, any address.
  --config FILE      has tenants, keys, clients and users from this TOML file,
                     and nothing of the demo; examples/server/config.toml
                     shows all that can stand there
  --data DIR         keeps logins, sessions, users and the keys of tokens in
                     this directory, so that they survive a restart; in memory
                     by default
  --event-log FILE   also writes the event log to this file, as JSON lines
  --help             shows this

There is no --redis yet, for several servers with one store.

A connection without a complete request within 10 seconds is closed. At most
1,000 connections are open at the same time, and without proxies at most 100 of
one address.
";

#[derive(Debug)]
pub(crate) enum Command {
    Serve(Config),
    Help,
}

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: Listen,
    pub(crate) file: Option<PathBuf>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) event_log: Option<PathBuf>,
}

/// Where to listen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listen {
    /// On this port of the loopback interface, for IPv4 and IPv6.
    Localhost(u16),
    At(SocketAddr),
}

impl Listen {
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

/// Reads the arguments after the program's name: `--flag value` or `--flag=value`.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let (mut listen, mut file, mut data, mut event_log) = (None, None, None, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = text(argument)?;
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(OsString::from(value))),
            None => (argument.as_str(), None),
        };
        let slot = match flag {
            "--help" | "-h" => return Ok(Command::Help),
            "--listen" => &mut listen,
            "--config" => &mut file,
            "--data" => &mut data,
            "--event-log" => &mut event_log,
            _ => return Err(format!("{argument}: there is no such flag.")),
        };
        let value = value.or_else(|| arguments.next()).filter(|value| !value.is_empty());
        if slot.replace(value.ok_or_else(|| format!("{flag} needs a value."))?).is_some() {
            return Err(format!("{flag} is given twice."));
        }
    }
    Ok(Command::Serve(Config {
        listen: match (listen, &file) {
            (None, _) => Listen::Localhost(8080),
            (Some(value), None) => loopback(value)?,
            (Some(value), Some(_)) => address(&text(value)?)?,
        },
        file: file.map(PathBuf::from),
        data: data.map(PathBuf::from),
        event_log: event_log.map(PathBuf::from),
    }))
}

/// The keys of the demo are public, so it listens on loopback addresses only.
fn loopback(value: OsString) -> Result<Listen, String> {
    let value = text(value)?;
    match address(&value)? {
        Listen::At(address) if !is_localhost(address.ip()) => Err(format!(
            "--listen {value}: the keys of the demo are public, so it listens only on a loopback address, localhost, \
             127.0.0.1 or [::1]."
        )),
        listen => Ok(listen),
    }
}

fn is_localhost(ip: IpAddr) -> bool {
    ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST
}

fn address(value: &str) -> Result<Listen, String> {
    let error = || format!("--listen {value}: must be an address and a port, such as localhost:8080.");
    if let Some(port) = value.strip_prefix("localhost:") {
        return port.parse().map(Listen::Localhost).map_err(|_| error());
    }
    let address: SocketAddr = value.parse().map_err(|_| error())?;
    Ok(Listen::At(SocketAddr::new(address.ip().to_canonical(), address.port())))
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{}: is not UTF-8.", value.display()))
}
