//! Reads the command line.

use std::{ffi::OsString, path::PathBuf};

use crate::{help, listen::Listen, storage::Storage};

#[derive(Debug)]
pub(crate) enum Command {
    Serve(Config),
    Help,
}

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: Listen,
    pub(crate) file: Option<PathBuf>,
    pub(crate) store: Storage,
    pub(crate) event_log: Option<PathBuf>,
    pub(crate) end_sessions: bool,
    #[cfg(feature = "external-providers")]
    pub(crate) sso_demo: bool,
}

/// Reads the arguments after the program's name: `--flag value` or `--flag=value`.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let (mut listen, mut file, mut data, mut redis, mut database, mut log) = (None, None, None, None, None, None);
    let (mut sso_demo, mut end_sessions) = (false, false);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = text(argument)?;
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(OsString::from(value))),
            None => (argument.as_str(), None),
        };
        let slot = match flag {
            "--help" | "-h" => return Ok(Command::Help),
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
    if sso_demo && file.is_some() {
        return Err("--sso-demo is for the demo, without --config.".to_owned());
    }
    Ok(Command::Serve(Config {
        #[cfg(feature = "external-providers")]
        sso_demo,
        end_sessions,
        listen: match (listen, &file) {
            (None, _) => Listen::Localhost(8080),
            (Some(value), None) => Listen::loopback(&text(value)?)?,
            (Some(value), Some(_)) => Listen::parse(&text(value)?)?,
        },
        file: file.map(PathBuf::from),
        store: Storage::read(data, redis.map(text).transpose()?, database.map(text).transpose()?)?,
        event_log: log.map(PathBuf::from),
    }))
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{}: not valid UTF-8.", value.display()))
}
