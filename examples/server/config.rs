//! Reads the command line.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

pub(crate) const HELP: &str = "\
A service behind tollgate, with demo tenants and users.

Usage: cargo run --example server -- [FLAGS]

  --listen ADDR      the address to listen on; 127.0.0.1:8080 by default. Must
                     be a loopback address (127.0.0.1 or [::1]), because the
                     demo's keys and passwords are public, unless --config
                     has your own and an issuer with https
  --config FILE      reads tenants, keys, clients and users from this TOML
                     file instead of the demo's;
                     examples/server/config.toml shows every setting
  --data DIR         keeps logins, sessions, users and signing keys in this
                     directory, so that they survive a restart; keeps them in
                     memory by default
  --event-log FILE   also writes the event log to this file, as JSON lines
  --help             shows this text

Several servers can't share a store yet: there is no --redis.
";

#[derive(Debug)]
pub(crate) enum Command {
    Serve(Config),
    Help,
}

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) file: Option<PathBuf>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) event_log: Option<PathBuf>,
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
            _ => return Err(format!("{argument}: unknown flag.")),
        };
        let value = value.or_else(|| arguments.next()).filter(|value| !value.is_empty());
        if slot.replace(value.ok_or_else(|| format!("{flag} needs a value."))?).is_some() {
            return Err(format!("{flag} appears more than once."));
        }
    }
    Ok(Command::Serve(Config {
        listen: match (listen, &file) {
            (None, _) => SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            (Some(value), None) => loopback(value)?,
            (Some(value), Some(_)) => address(&text(value)?)?,
        },
        file: file.map(PathBuf::from),
        data: data.map(PathBuf::from),
        event_log: event_log.map(PathBuf::from),
    }))
}

/// The keys of the demo are public, so it listens on loopback addresses only.
fn loopback(value: OsString) -> Result<SocketAddr, String> {
    let value = text(value)?;
    let address = address(&value)?;
    if is_loopback(address.ip()) {
        return Ok(address);
    }
    Err(format!(
        "--listen {value}: the keys of the demo are public, so it listens only on a loopback address: 127.0.0.1 or [::1]."
    ))
}

fn is_loopback(ip: IpAddr) -> bool {
    ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST
}

fn address(value: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = value
        .parse()
        .map_err(|_| format!("--listen {value}: must be an address and a port, such as 127.0.0.1:8080."))?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{}: not valid UTF-8.", value.display()))
}
