//! The login step: sends the user to another identity provider. The user comes back to the callback (`callback.rs`).

use serde_json::json;

use super::round_trip::{CHALLENGE_LIFETIME, SsoState, provider_url};
use crate::{
    auth::{
        factors::step::LoginStep,
        http::{
            answer,
            problem::{EndpointResult, Problem},
        },
    },
    login::{Challenge, Login, LoginCall, OpenChallenge, OpenRedirect},
    util::{
        form::{self, Form},
        secret::Secret,
    },
};

/// The longest query of a login page that is kept. Anyone can begin logins, so it is short: our page keeps a longer one in the
/// browser.
const LONGEST_QUERY: usize = 2 * 1024;

/// Opens a challenge, and returns the URL of the provider. Both are the same for every user.
pub(crate) async fn start_provider_login(step: LoginStep<'_>) -> EndpointResult {
    let (core, login) = (step.cx.core, &step.login);
    let name = step.fields.provider.as_deref().ok_or(Problem::invalid("provider is missing"))?;
    let found = core.factors.sso.find(&login.tenant, name);
    let (name, connection) = found.ok_or_else(|| step.problem(Problem::invalid("provider is unknown")))?;
    let query = match step.fields.query.as_deref() {
        Some(query) => checked_query(query, login)?.to_owned(),
        None => query_of(login),
    };
    let state = SsoState { login: login.id.to_string(), secret: Secret::generate() };
    let url = provider_url(core, (name, connection), (&state, step.keyed), step.login.max_age).await;
    let url = url.map_err(|problem| step.problem(problem))?;
    let challenge = OpenChallenge::new(state.digest(), step.now() + CHALLENGE_LIFETIME);
    let open = OpenRedirect { provider: name.to_owned(), state: challenge, query };
    let update = step.apply(&LoginCall::Open(&Challenge::Redirect(open))).await?;
    Ok(answer::login_progress(update.response_view(step.now())?, json!({ "redirect_url": url })))
}

/// Checks the query that the user returns to: that of a login page for this client.
fn checked_query<'q>(query: &'q str, login: &Login) -> Result<&'q str, Problem> {
    if query.len() > LONGEST_QUERY {
        return Err(Problem::invalid("query is longer than 2 KiB"));
    }
    let is_plain = query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let form = Form::parse(query.as_bytes()).ok().filter(|_| is_plain);
    let is_own = form.is_some_and(|form| form.only("client_id").ok().flatten() == Some(&login.binding.client_id));
    if is_own { Ok(query) } else { Err(Problem::invalid("query is not that of a login page for this client")) }
}

/// Returns the query of a login page for a login, without the parameters that only `/authorize` needs.
fn query_of(login: &Login) -> String {
    let binding = &login.binding;
    let scope = binding.scope.iter().collect::<Vec<_>>().join(" ");
    let parameters = [
        ("client_id", binding.client_id.as_str()),
        ("redirect_uri", &binding.redirect_uri),
        ("response_type", "code"),
        ("scope", &scope),
        ("code_challenge", binding.code_challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    let return_to = login.wanted.return_to.as_deref().map(|path| ("return_to", path));
    form::encode_pairs(parameters.into_iter().chain(return_to))
}
