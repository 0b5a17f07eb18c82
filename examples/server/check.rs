//! `--check-config`: reads a file and assembles the server with it, without connecting to anything.

use std::{error::Error, path::Path, process::ExitCode};

use tollgate::EventLog;

use crate::{
    api,
    facts::Facts,
    file::{self, File},
    listen::Listen,
    login_settings::LoginSettings,
    person::Person,
    senders::Senders,
    storage,
};

/// Prints a summary with warnings, or what is wrong.
pub(crate) async fn print_result(path: &Path) -> ExitCode {
    match check(path).await {
        Ok(summary) => {
            let state = if summary.contains("\nwarning: ") { "no errors" } else { "no problems" };
            println!("{}: {state}\n{summary}", path.display());
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
    let reach = facts.check_reach(listen);
    let mut lines = vec![
        format!("issuer: {}", facts.issuer.as_deref().unwrap_or("http://localhost and the port")),
        format!("listens on: {}", listen.shown()),
        format!("clients: {}", facts.clients.iter().count()),
        format!("users: {}", facts.people.len()),
    ];
    lines.extend(sign_in(&login, facts.prints_codes));
    lines.push(match (&server.data, &server.redis) {
        (Some(directory), _) => format!("keeps its state in: {}", directory.display()),
        (None, Some(_)) => "keeps its state in: Redis".to_owned(),
        (None, None) => "keeps its state in: memory, unless a flag says otherwise".to_owned(),
    });
    lines.extend(server.event_log.iter().map(|path| format!("event log: {}", path.display())));
    lines.extend(server.metrics.iter().map(|address| format!("metrics: http://{address}/metrics")));
    lines.extend(locked_out(&facts, &login));
    let directory = std::env::temp_dir().join(format!("tollgate-check-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let assembled = async {
        let state = storage::scratch(&directory).await?;
        api::app("http://localhost:8080", facts, login, &state, false, &EventLog::new()).await
    };
    let assembled = assembled.await.map(drop);
    let _ = std::fs::remove_dir_all(&directory);
    match (reach, assembled) {
        (Ok(()), Ok(())) => Ok(lines.join("\n")),
        (Err(reach), Err(error)) => Err(format!("{reach}\n{error}").into()),
        (Err(reach), Ok(())) => Err(reach.into()),
        (Ok(()), Err(error)) => Err(error),
    }
}

/// Describes how users sign in.
fn sign_in(settings: &LoginSettings, prints_codes: bool) -> Vec<String> {
    let Senders { email, sms, whatsapp } = &settings.senders;
    let codes = [("e-mail", email), ("text message", sms), ("WhatsApp", whatsapp)];
    let codes = codes.iter().filter_map(|(channel, sender)| match (sender, prints_codes) {
        (Some(_), _) => Some(format!("codes by {channel}")),
        (None, true) => Some(format!("codes by {channel} (printed)")),
        (None, false) => None,
    });
    let more = [("passkeys", settings.passkeys.is_some()), ("authenticator apps", settings.apps.is_some())];
    let more = more.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| (*name).to_owned());
    let sign_in = [String::from("passwords")].into_iter().chain(more).chain(codes).collect::<Vec<_>>().join(", ");
    let mut lines = vec![format!("users sign in with: {sign_in}")];
    #[cfg(feature = "external-providers")]
    lines.extend(settings.providers.iter().map(|provider| format!("provider: {}", provider.name)));
    lines.extend(settings.account_pages.iter().map(|tenant| format!("account pages for: {}", tenant.as_str())));
    lines
}

/// Names the users who have nothing to sign in with: no password, and no contact to which the server sends codes.
fn locked_out(facts: &Facts, settings: &LoginSettings) -> Vec<String> {
    let Senders { email, sms, whatsapp } = &settings.senders;
    let (mails, texts) =
        (email.is_some() || facts.prints_codes, sms.is_some() || whatsapp.is_some() || facts.prints_codes);
    #[cfg(feature = "external-providers")]
    let has_providers = !settings.providers.is_empty();
    #[cfg(not(feature = "external-providers"))]
    let has_providers = false;
    let cannot = |person: &&Person| {
        let gets_codes = (mails && person.email.is_some()) || (texts && person.phone.is_some());
        !has_providers && person.password.is_none() && !gets_codes
    };
    let people = facts.people.iter().filter(cannot);
    people.map(|person| format!("warning: {} cannot sign in: set password_hash", person.place())).collect()
}
