//! What the command line says.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

pub(crate) const HELP: &str = "\
A service behind tollgate, with demo tenants and users.

Usage: cargo run --example server -- [FLAGS]

  --listen ADDR      where to listen; 127.0.0.1:8080 by default. Only a loopback
                     address will do, 127.0.0.1 or [::1], for the keys and
                     passwords of the demo are public.
  --data DIR         keeps logins, sessions and users in this directory, so that
                     they survive a restart; in memory by default
  --event-log FILE   also writes the event log to this file, as JSON lines
  --help             shows this

Tenants, keys, clients and users are built in: there is no --config yet. Nor is
there --redis, for several servers with one store.
";

#[derive(Debug)]
pub(crate) enum Command {
    Serve(Config),
    Help,
}

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) data: Option<PathBuf>,
    pub(crate) event_log: Option<PathBuf>,
}

/// Reads the arguments after the program's name: `--flag value` or `--flag=value`.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let (mut listen, mut data, mut event_log) = (None, None, None);
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
        listen: listen.map_or(Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))), loopback)?,
        data: data.map(PathBuf::from),
        event_log: event_log.map(PathBuf::from),
    }))
}

/// The keys of the demo are known to everybody, so nobody else may reach it.
fn loopback(value: OsString) -> Result<SocketAddr, String> {
    let value = text(value)?;
    let address: SocketAddr = value
        .parse()
        .map_err(|_| format!("--listen {value}: must be an address and a port, such as 127.0.0.1:8080."))?;
    let ip = address.ip().to_canonical();
    if ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST {
        return Ok(SocketAddr::new(ip, address.port()));
    }
    Err(format!(
        "--listen {value}: the keys of the demo are public, so it listens only on a loopback address, 127.0.0.1 or [::1]."
    ))
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{}: is not UTF-8.", value.display()))
}
