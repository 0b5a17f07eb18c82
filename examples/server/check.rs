//! `--check-config`: reads a file and assembles the server with it, without connecting to anything.

use std::{error::Error, path::Path, process::ExitCode};

use tollgate::EventLog;

use crate::{
    api,
    file::{self, File},
    listen::Listen,
    login_settings::LoginSettings,
    senders::Senders,
    storage,
};

/// Prints a summary, or what is wrong.
pub(crate) async fn print_result(path: &Path) -> ExitCode {
    match check(path).await {
        Ok(summary) => {
            println!("{}: no problems\n{summary}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}:\n{error}", path.display());
            ExitCode::from(2)
        }
    }
}

/// Returns a summary.
async fn check(path: &Path) -> Result<String, Box<dyn Error>> {
    let File { facts, login, server } = file::read(path)?;
    let listen = server.listen.unwrap_or(Listen::Localhost(8080));
    facts.check_reach(listen)?;
    let mut lines = vec![
        format!("issuer: {}", facts.issuer.as_deref().unwrap_or("http://localhost and the port")),
        format!("listens on: {}", listen.shown()),
        format!("clients: {}", facts.clients.iter().count()),
        format!("users: {}", facts.people.len()),
    ];
    lines.extend(sign_in(&login));
    lines.push(match (&server.data, &server.redis) {
        (Some(directory), _) => format!("keeps its state in: {}", directory.display()),
        (None, Some(_)) => "keeps its state in: Redis".to_owned(),
        (None, None) => "keeps its state in: memory, unless a flag says otherwise".to_owned(),
    });
    lines.extend(server.event_log.iter().map(|path| format!("event log: {}", path.display())));
    lines.extend(server.metrics.iter().map(|address| format!("metrics: http://{address}/metrics")));
    let directory = std::env::temp_dir().join(format!("tollgate-check-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let assembled = async {
        let state = storage::scratch(&directory).await?;
        api::app("http://localhost:8080", facts, login, &state, false, &EventLog::new()).await
    };
    let assembled = assembled.await.map(drop);
    let _ = std::fs::remove_dir_all(&directory);
    assembled.map(|()| lines.join("\n"))
}

/// Describes how users sign in.
fn sign_in(settings: &LoginSettings) -> Vec<String> {
    let Senders { email, sms, whatsapp } = &settings.senders;
    let on = [
        ("passkeys", settings.passkeys.is_some()),
        ("authenticator apps", settings.apps.is_some()),
        ("codes by e-mail", email.is_some()),
        ("codes by text message", sms.is_some()),
        ("codes by WhatsApp", whatsapp.is_some()),
    ];
    let on = on.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name);
    let sign_in = ["passwords"].into_iter().chain(on).collect::<Vec<_>>().join(", ");
    let mut lines = vec![format!("users sign in with: {sign_in}")];
    #[cfg(feature = "external-providers")]
    lines.extend(settings.providers.iter().map(|provider| format!("provider: {}", provider.name)));
    lines.extend(settings.account_pages.iter().map(|tenant| format!("account pages for: {}", tenant.as_str())));
    lines
}
