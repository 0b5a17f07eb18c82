//! Reads the flags, and assembles the server.

use std::{error::Error, path::Path, process::ExitCode};

use tollgate::EventLog;

#[cfg(feature = "external-providers")]
use crate::sso_demo;
use crate::{
    api, check, client_secrets,
    config::{self, Command, Config},
    demo,
    file::{self, File},
    hash_password, help,
    json_lines::JsonLines,
    listen,
    login_settings::LoginSettings,
    notices, serve,
    server_settings::ServerSettings,
    storage, welcome,
};

/// The maximum size of the event log in bytes. Then a new file begins.
const LARGEST_LOG: u64 = 64 << 20;

/// How many full event logs are kept.
const OLD_LOGS: u32 = 5;

/// Runs the server with the flags of the command line.
pub(crate) async fn run() -> ExitCode {
    let done = match config::parse(std::env::args_os().skip(1)) {
        Ok(Command::Serve(config)) => serve_with(config).await,
        Ok(Command::Help) => show(&help::text()),
        Ok(Command::ExampleConfig) => show(include_str!("config.toml")),
        Ok(Command::HashPassword) => hash_password::print().await,
        Ok(Command::ClientSecret) => show(&client_secrets::new_secret()),
        Ok(Command::CheckConfig(path)) => return check::print_result(&path).await,
        Err(error) => {
            eprintln!("{error}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show(text: &str) -> Result<(), Box<dyn Error>> {
    print!("{text}");
    Ok(())
}

fn of_file(path: &Path, error: &(dyn Error + 'static)) -> String {
    format!("--config {}: {error}", path.display())
}

async fn serve_with(config: Config) -> Result<(), Box<dyn Error>> {
    let (facts, login, server) = match &config.file {
        Some(path) => {
            let File { facts, login, server } = file::read(path).map_err(|error| of_file(path, &*error))?;
            (Some(facts), login, server)
        }
        None => (None, LoginSettings::default(), ServerSettings::default()),
    };
    let mut log = EventLog::builder().sink(notices::sink());
    #[cfg(feature = "metrics")]
    let metrics = match server.metrics {
        Some(address) => {
            log = log.sink(tollgate::event::MetricsSink);
            Some(crate::prometheus::serve(address).await?)
        }
        None => None,
    };
    let places = config.places(server)?;
    if let Some(path) = &places.event_log {
        log = log.sink(JsonLines::open(path, LARGEST_LOG, OLD_LOGS)?);
    }
    let log = log.build();
    let state = storage::open(&places.store).await?;
    let listeners = listen::bind(places.listen).await?;
    let bound = listeners.first().ok_or("there is nothing to listen on")?.local_addr()?;
    let origin = places.listen.origin(bound);
    #[cfg_attr(not(feature = "external-providers"), expect(unused_mut, reason = "only --sso-demo changes it"))]
    let mut facts = match facts {
        Some(facts) => facts,
        None => demo::facts(&origin)?,
    };
    let welcome = welcome::text(&origin, &facts, &login);
    #[cfg(feature = "external-providers")]
    if config.sso_demo {
        facts.provider = Some(sso_demo::start(&origin, bound.port().wrapping_add(1)).await?);
    }
    facts.check_reach(places.listen).map_err(|error| format!("--config: {error}"))?;
    let is_behind_proxies = facts.is_behind_proxies;
    let app =
        api::app(&origin, facts, login, &state, config.end_sessions, &log).await.map_err(|error| {
            match &config.file {
                Some(path) => of_file(path, &*error).into(),
                None => error,
            }
        })?;
    print!("{welcome}");
    #[cfg(feature = "external-providers")]
    print!("{}", if config.sso_demo { sso_demo::WELCOME } else { "" });
    #[cfg(feature = "metrics")]
    if let Some(bound) = metrics {
        println!("Metrics at http://{bound}/metrics");
    }
    serve::until_stopped(listeners, app, is_behind_proxies, &log).await;
    state.close().await;
    if places.event_log.is_some() && !log.flush() {
        eprintln!("some events could not be written to the log");
    }
    Ok(())
}
