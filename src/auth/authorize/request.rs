//! The parameters that every authorization request has. `/authorize` and `start` check them in the same way.

use std::sync::Arc;

use crate::{
    auth::{
        http::problem::{Code, Problem},
        state::journal::LoginJournal,
    },
    client::{Client, RequestedRedirect, Scopes},
    event::EventKind,
    login::Binding,
    pkce::{CodeChallenge, PkceErrorKind},
};

/// The client, and the redirect URI to which the answer goes.
pub(crate) struct Recipient {
    pub(crate) client: Arc<Client>,
    pub(crate) redirect: RequestedRedirect,
}

impl Recipient {
    /// Returns whether the response goes to a website and not to an app on the user's device.
    pub(crate) fn is_of_a_site(&self) -> bool {
        self.client.is_first_party() || self.redirect.is_of_a_site()
    }

    /// Returns the target of the response in a form that users understand: its kind, and its host or scheme.
    pub(crate) fn place(&self) -> (&'static str, &str) {
        let (scheme, rest) = self.redirect.as_str().split_once(':').unwrap_or_default();
        let host = rest.strip_prefix("//").unwrap_or_default();
        let host = host.split(['/', '?']).next().unwrap_or_default();
        match scheme {
            _ if self.client.is_first_party() => ("site", host),
            "https" => ("site", host),
            "http" => ("loopback", host),
            _ => ("app", scheme),
        }
    }
}

/// Determines who gets the answer. Errors here are shown and never sent anywhere.
pub(crate) fn recipient<'v>(
    value: impl Fn(&str) -> Option<&'v str>,
    client: Option<Arc<Client>>,
) -> Result<Recipient, Problem> {
    if value("client_id").is_none() {
        return Err(Problem::invalid("client_id is missing"));
    }
    let client = client.ok_or(Problem::new(Code::InvalidClient, "client_id is unknown"))?;
    let requested = value("redirect_uri").ok_or(Problem::invalid("redirect_uri is missing"))?;
    let redirect =
        client.redirect(requested).ok_or(Problem::invalid("redirect_uri is not registered for this client"))?;
    Ok(Recipient { client, redirect })
}

/// Checks the other parameters. Errors here can be sent to the redirect URI.
pub(crate) fn bind<'v>(
    value: impl Fn(&str) -> Option<&'v str>,
    to: &Recipient,
    journal: &LoginJournal,
) -> Result<Binding, Problem> {
    match value("response_type") {
        Some("code") => {}
        Some(_) => return Err(Problem::new(Code::UnsupportedResponseType, "response_type must be code")),
        None => return Err(Problem::invalid("response_type is missing")),
    }
    let scope_error = |detail| Problem::new(Code::InvalidScope, detail);
    let scope = value("scope").ok_or(scope_error("scope is missing"))?;
    let scope = Scopes::parse(scope).map_err(|_| scope_error("scope is malformed"))?;
    if !to.client.allows_scopes(&scope) {
        return Err(scope_error("scope contains a name that this client is not allowed to request"));
    }
    let challenge = CodeChallenge::from_members(value("code_challenge"), value("code_challenge_method"));
    let code_challenge = challenge.map_err(|error| {
        journal.tally(EventKind::PkceRefused, Some(to.client.tenant()), None);
        Problem::invalid(match error.kind() {
            PkceErrorKind::ChallengeRequired => "code challenge required",
            PkceErrorKind::UnsupportedMethod => "code_challenge_method must be S256",
            _ => "code_challenge is malformed",
        })
    })?;
    Ok(Binding {
        client_id: to.client.id().to_owned(),
        redirect_uri: to.redirect.as_str().to_owned(),
        scope,
        code_challenge,
    })
}
