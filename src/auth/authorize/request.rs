//! What a client asks for, checked: the same at `/authorize` and at the start of a login.

use std::sync::Arc;

use crate::{
    auth::http::problem::Code,
    client::{Client, RequestedRedirect, Scopes},
    login::{Binding, ClientParameters},
    pkce::{CodeChallenge, PkceErrorKind},
};

/// A request that can be answered at its redirect URI.
pub(crate) struct Addressed {
    pub(crate) client: Arc<Client>,
    pub(crate) redirect: RequestedRedirect,
}

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) code: Code,
    pub(crate) detail: &'static str,
}

const fn wrong(code: Code, detail: &'static str) -> Wrong {
    Wrong { code, detail }
}

/// Whom to answer, and where. What is wrong here is shown, never sent anywhere.
pub(crate) fn address(parameters: &ClientParameters, client: Option<Arc<Client>>) -> Result<Addressed, Wrong> {
    if parameters.client_id.is_none() {
        return Err(wrong(Code::InvalidRequest, "client_id is missing"));
    }
    let client = client.ok_or(wrong(Code::InvalidClient, "there is no client of this client_id"))?;
    let requested = parameters.redirect_uri.as_deref();
    let requested = requested.ok_or(wrong(Code::InvalidRequest, "redirect_uri is missing"))?;
    let redirect = client
        .redirect(requested)
        .ok_or(wrong(Code::InvalidRequest, "redirect_uri is none that the client has registered"))?;
    Ok(Addressed { client, redirect })
}

/// The rest of the request. What is wrong here can be told at the redirect URI.
pub(crate) fn bind(parameters: &ClientParameters, to: &Addressed) -> Result<Binding, Wrong> {
    match parameters.response_type.as_deref() {
        Some("code") => {}
        Some(_) => return Err(wrong(Code::UnsupportedResponseType, "response_type must be code")),
        None => return Err(wrong(Code::InvalidRequest, "response_type is missing")),
    }
    let scope = parameters.scope.as_deref().ok_or(wrong(Code::InvalidScope, "scope is missing"))?;
    let scope = Scopes::parse(scope).map_err(|_| wrong(Code::InvalidScope, "scope is malformed"))?;
    if !to.client.allows_scopes(&scope) {
        return Err(wrong(Code::InvalidScope, "scope has a name that the client may not ask for"));
    }
    let (challenge, method) = (parameters.code_challenge.as_deref(), parameters.code_challenge_method.as_deref());
    let code_challenge = CodeChallenge::from_members(challenge, method).map_err(|error| {
        wrong(
            Code::InvalidRequest,
            match error.kind() {
                PkceErrorKind::ChallengeRequired => "code challenge required",
                PkceErrorKind::UnsupportedMethod => "code_challenge_method must be S256",
                _ => "code_challenge is malformed",
            },
        )
    })?;
    Ok(Binding {
        client_id: to.client.id().to_owned(),
        redirect_uri: to.redirect.as_str().to_owned(),
        scope,
        code_challenge,
    })
}
