//! Reads the flags, and assembles the server.

use std::{error::Error, process::ExitCode};

use tollgate::{EventLog, event::JsonLines};

#[cfg(feature = "external-providers")]
use crate::sso_demo;
use crate::{
    api,
    config::{self, Command, Config},
    demo, file, help, listen, notices, serve, storage, welcome,
};

/// Runs the server with the flags of the command line.
pub(crate) async fn run() -> ExitCode {
    let config = match config::parse(std::env::args_os().skip(1)) {
        Ok(Command::Serve(config)) => config,
        Ok(Command::Help) => {
            print!("{}", help::text());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match serve_with(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve_with(config: Config) -> Result<(), Box<dyn Error>> {
    let mut log = EventLog::builder().sink(notices::sink());
    if let Some(path) = &config.event_log {
        log = log.sink(JsonLines::open(path)?);
    }
    let log = log.build();
    let state = storage::open(&config.store).await?;
    let listeners = listen::bind(config.listen).await?;
    let bound = listeners.first().ok_or("there is nothing to listen on")?.local_addr()?;
    let origin = config.listen.origin(bound);
    #[cfg_attr(not(feature = "external-providers"), expect(unused_mut, reason = "only --sso-demo changes it"))]
    let mut facts = match &config.file {
        Some(path) => file::read(path).map_err(|error| format!("--config {}: {error}", path.display()))?,
        None => demo::facts(&origin)?,
    };
    let welcome =
        if facts.is_demo { welcome::welcome(&origin) } else { format!("Listening on {origin}. Ctrl-C ends it.\n") };
    #[cfg(feature = "external-providers")]
    if config.sso_demo {
        facts.provider = Some(sso_demo::start(&origin, bound.port().wrapping_add(1)).await?);
    }
    let is_behind_tls = facts.issuer.as_ref().is_some_and(|issuer| issuer.starts_with("https://"));
    if !is_behind_tls && !config.listen.is_loopback() {
        return Err("--config: others than this machine reach it only by TLS: `issuer` must be the https URL of the \
                    proxy before it."
            .into());
    }
    let is_behind_proxies = facts.is_behind_proxies;
    let app =
        api::app(&origin, facts, &state, config.end_sessions, &log).await.map_err(|error| match &config.file {
            Some(path) => format!("--config {}: {error}", path.display()).into(),
            None => error,
        })?;
    print!("{welcome}");
    #[cfg(feature = "external-providers")]
    print!("{}", if config.sso_demo { sso_demo::WELCOME } else { "" });
    serve::until_stopped(listeners, app, is_behind_proxies, &log).await;
    state.close().await;
    if config.event_log.is_some() && !log.flush() {
        eprintln!("some events could not be written to the log");
    }
    Ok(())
}
