//! Reads the command line.

use std::{ffi::OsString, path::PathBuf};

use crate::listen::Listen;

pub(crate) const HELP: &str = "\
A service behind tollgate, with demo tenants and users.

Usage: cargo run --example server -- [FLAGS]

  --listen ADDR      where to listen. Defaults to localhost:8080, which is
                     127.0.0.1 and, where there is IPv6, [::1]. The keys and
                     passwords of the demo are public, so it accepts only these
                     addresses. With --config and an https issuer, any address.
  --config FILE      reads tenants, keys, clients and users from this TOML
                     file instead of the demo's;
                     examples/server/config.toml shows every setting
  --data DIR         keeps logins, sessions, users and signing keys in this
                     directory, so that they survive a restart; keeps them in
                     memory by default
  --redis URL        keeps them in Redis or Valkey instead, so that several
                     servers can share them: redis://host:6379, or rediss://
                     for TLS; docs/scale.md has the details. The environment
                     variable REDIS_PASSWORD sets the password
  --sso-demo         starts an identity provider on the next port, so that single
                     sign-on can be tried; needs the feature `sso`:
                     cargo run --features sso --example server -- --sso-demo
  --event-log FILE   also writes the event log to this file, as JSON lines
  --help             shows this text

Servers with --redis share budgets, also those of addresses at the login. Each
counts bad keys at the API, and what reads the event log, on its own.

A connection without a complete request within 10 seconds is closed. At most
1,000 connections are open at the same time, and without proxies at most 100 of
one address.
";

const WITHOUT_SSO: &str = "--sso-demo: this server was built without single sign-on. Run it by
cargo run --features sso --example server -- --sso-demo\n";

#[derive(Debug)]
pub(crate) enum Command {
    Serve(Config),
    Help,
}

/// Where logins, sessions, users and signing keys are kept.
#[derive(Debug)]
pub(crate) enum Storage {
    Memory,
    Directory(PathBuf),
    Redis(String),
}

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: Listen,
    pub(crate) file: Option<PathBuf>,
    pub(crate) store: Storage,
    pub(crate) event_log: Option<PathBuf>,
    #[cfg(feature = "sso")]
    pub(crate) sso_demo: bool,
}

/// Reads the arguments after the program's name: `--flag value` or `--flag=value`.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let (mut listen, mut file, mut data, mut redis, mut log, mut sso_demo) = (None, None, None, None, None, false);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = text(argument)?;
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(OsString::from(value))),
            None => (argument.as_str(), None),
        };
        let slot = match flag {
            "--help" | "-h" => return Ok(Command::Help),
            "--sso-demo" if !cfg!(feature = "sso") => return Err(WITHOUT_SSO.to_owned()),
            "--sso-demo" if value.is_none() => {
                sso_demo = true;
                continue;
            }
            "--listen" => &mut listen,
            "--config" => &mut file,
            "--data" => &mut data,
            "--redis" => &mut redis,
            "--event-log" => &mut log,
            _ => return Err(format!("{argument}: unknown flag.")),
        };
        let value = value.or_else(|| arguments.next()).filter(|value| !value.is_empty());
        if slot.replace(value.ok_or_else(|| format!("{flag} needs a value."))?).is_some() {
            return Err(format!("{flag} appears more than once."));
        }
    }
    if sso_demo && file.is_some() {
        return Err("--sso-demo is for the demo, without --config.".to_owned());
    }
    Ok(Command::Serve(Config {
        #[cfg(feature = "sso")]
        sso_demo,
        listen: match (listen, &file) {
            (None, _) => Listen::Localhost(8080),
            (Some(value), None) => Listen::loopback(&text(value)?)?,
            (Some(value), Some(_)) => Listen::parse(&text(value)?)?,
        },
        file: file.map(PathBuf::from),
        store: match (data, redis) {
            (None, None) => Storage::Memory,
            (Some(directory), None) => Storage::Directory(PathBuf::from(directory)),
            (None, Some(url)) => Storage::Redis(text(url)?),
            (Some(_), Some(_)) => return Err("--data and --redis exclude each other.".into()),
        },
        event_log: log.map(PathBuf::from),
    }))
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{}: not valid UTF-8.", value.display()))
}
