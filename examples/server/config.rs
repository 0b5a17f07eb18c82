//! Reads the command line.

use std::{ffi::OsString, path::PathBuf};

use crate::{help, listen::Listen, server_settings::ServerSettings, state::RedisServer, storage::Storage};

pub(crate) enum Command {
    Serve(Config),
    Help,
    ExampleConfig,
    CheckConfig(PathBuf),
    HashPassword,
    ClientSecret,
}

pub(crate) struct Config {
    pub(crate) file: Option<PathBuf>,
    pub(crate) end_sessions: bool,
    #[cfg(feature = "external-providers")]
    pub(crate) sso_demo: bool,
    listen: Option<Listen>,
    data: Option<PathBuf>,
    redis: Option<String>,
    database: Option<String>,
    event_log: Option<PathBuf>,
}

/// Where to listen, and what to keep where.
pub(crate) struct Places {
    pub(crate) listen: Listen,
    pub(crate) store: Storage,
    pub(crate) event_log: Option<PathBuf>,
}

impl Config {
    /// Fills in from the file what no flag sets.
    pub(crate) fn places(&self, file: ServerSettings) -> Result<Places, String> {
        let (data, redis) = (self.data.clone(), self.redis.clone().map(RedisServer::at));
        let (data, redis) = match (data, redis) {
            (None, None) => (file.data, file.redis),
            flags => flags,
        };
        Ok(Places {
            listen: self.listen.or(file.listen).unwrap_or(Listen::Localhost(8080)),
            store: Storage::read(data, redis, self.database.clone())?,
            event_log: self.event_log.clone().or(file.event_log),
        })
    }
}

/// Reads the arguments after the program's name: `--flag value` or `--flag=value`.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let (mut listen, mut file, mut data, mut redis, mut database, mut log) = (None, None, None, None, None, None);
    let (mut sso_demo, mut end_sessions, mut check) = (false, false, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = text(argument)?;
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(OsString::from(value))),
            None => (argument.as_str(), None),
        };
        let slot = match flag {
            "--help" | "-h" => return Ok(Command::Help),
            "--example-config" => return Ok(Command::ExampleConfig),
            "--hash-password" => return Ok(Command::HashPassword),
            "--client-secret" => return Ok(Command::ClientSecret),
            "--sso-demo" if !cfg!(feature = "external-providers") => return Err(help::without_sso()),
            "--sso-demo" if value.is_none() => {
                sso_demo = true;
                continue;
            }
            "--end-sessions" if value.is_none() => {
                end_sessions = true;
                continue;
            }
            "--listen" => &mut listen,
            "--config" => &mut file,
            "--check-config" => &mut check,
            "--data" => &mut data,
            "--redis" => &mut redis,
            "--database" => &mut database,
            "--event-log" => &mut log,
            _ => return Err(format!("{argument}: unknown flag.")),
        };
        let value = value.or_else(|| arguments.next()).filter(|value| !value.is_empty());
        if slot.replace(value.ok_or_else(|| format!("{flag} needs a value."))?).is_some() {
            return Err(format!("{flag} appears more than once."));
        }
    }
    if let Some(path) = check {
        return Ok(Command::CheckConfig(path.into()));
    }
    if sso_demo && file.is_some() {
        return Err("--sso-demo is for the demo, without --config.".to_owned());
    }
    let listen = listen.map(text).transpose()?;
    let parse = if file.is_some() { Listen::parse } else { Listen::loopback };
    let listen = listen.map(|value| parse(&value)).transpose().map_err(|error| format!("--listen {error}"))?;
    let config = Config {
        #[cfg(feature = "external-providers")]
        sso_demo,
        end_sessions,
        listen,
        file: file.map(PathBuf::from),
        data: data.map(PathBuf::from),
        redis: redis.map(text).transpose()?,
        database: database.map(text).transpose()?,
        event_log: log.map(PathBuf::from),
    };
    // flags that exclude each other
    config.places(ServerSettings::default())?;
    Ok(Command::Serve(config))
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{}: not valid UTF-8.", value.display()))
}
