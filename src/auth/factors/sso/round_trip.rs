//! The round trip of a user to another identity provider, which logins and the account page share: the parameter `state`, the
//! URL to which the user leaves, and the user whom the provider names afterwards.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::request::Parts;

use crate::{
    auth::{
        context::RequestContext,
        core::{Core, Limits},
        http::{
            problem::{Code, Problem},
            route::sso_callback,
        },
        query::Query,
    },
    limit::{Decision, Spend},
    login::Keyed,
    pkce::{CodeChallenge, CodeVerifier},
    sso::{ProviderUser, SsoCallback, SsoConnection, SsoError, SsoRequest},
    support::url::parse_url,
    tenant::LimitKey,
    util::secret::{Secret, SecretDigest},
};

/// How long the user of a login can take at the provider.
pub(super) const CHALLENGE_LIFETIME: Duration = Duration::from_secs(600);

/// Takes the place of the id of a login in `state` if the user links an account.
pub(super) const LINK: &str = "link";

/// The longest query of a callback.
const LONGEST_QUERY: usize = 16 * 1024;

/// The parameter `state`, which a user brings back from a provider.
pub(crate) struct SsoState {
    /// The id of the login, or [`LINK`].
    pub(crate) login: String,
    pub(crate) secret: Secret,
}

impl SsoState {
    /// Parses `state`: the id of a login and a secret.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (login, secret) = text.split_once('.')?;
        Some(Self { login: login.to_owned(), secret: Secret::parse(secret)? })
    }

    pub(crate) fn digest(&self) -> SecretDigest {
        self.secret.digest()
    }

    fn nonce(&self, keyed: &Keyed) -> String {
        BASE64URL.encode(self.derived("sso nonce", keyed).as_bytes())
    }

    fn verifier(&self, keyed: &Keyed) -> Result<CodeVerifier, SsoError> {
        let text = BASE64URL.encode(self.derived("sso verifier", keyed).as_bytes());
        CodeVerifier::parse(&text).map_err(|_| SsoError::Failed("no verifier can be made"))
    }

    fn derived(&self, purpose: &'static str, keyed: &Keyed) -> SecretDigest {
        keyed.hash(purpose, [self.secret.expose().as_bytes()])
    }
}

impl std::fmt::Display for SsoState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.login, self.secret.expose())
    }
}

/// Returns the URL that the user opens at the provider.
pub(crate) async fn provider_url(
    core: &Core,
    (name, connection): (&str, &SsoConnection),
    (state, keyed): (&SsoState, &Keyed),
    max_age: Option<u64>,
) -> Result<String, Problem> {
    let url = async {
        let (redirect_uri, verifier) = (redirect_uri(core, name), state.verifier(keyed)?);
        let (text, nonce, challenge) = (state.to_string(), state.nonce(keyed), CodeChallenge::from_verifier(&verifier));
        let request = SsoRequest::new(&redirect_uri, &text, &nonce, &challenge);
        let request = match max_age {
            Some(seconds) => request.with_max_age(Duration::from_secs(seconds)),
            None => request,
        };
        let url = connection.authorization_url(&request).await?;
        let is_safe = parse_url("provider", &url).is_ok();
        if is_safe { Ok(url) } else { Err(SsoError::Unavailable("the URL of the provider is not safe to open")) }
    };
    url.await.map_err(|error| {
        crate::util::trace::warning!("the provider {name} can't be used: {error}");
        Problem::new(Code::ProviderUnavailable, "this provider cannot be reached right now")
    })
}

fn redirect_uri(core: &Core, name: &str) -> String {
    format!("{}{}", core.issuer.as_str(), sso_callback(name))
}

/// Returns the parameters with which a user comes back.
pub(crate) fn callback_query(parts: &Parts) -> Result<Query<'_>, Problem> {
    Query::from_request_uri(parts).and_then(|query| match query.raw.len() <= LONGEST_QUERY {
        true => Ok(query),
        false => Err(Problem::invalid("the query is longer than 16 KiB")),
    })
}

/// Asks the provider about the user who came back with these parameters. Logs why an answer names no user.
///
/// # Errors
///
/// Returns an error without asking if this address has failed too often, or this provider has failed too often for it.
pub(crate) async fn returned_user(
    cx: &RequestContext<'_>,
    (name, connection): (&str, &SsoConnection),
    (state, keyed): (&SsoState, &Keyed),
    query: &Query<'_>,
) -> Result<ProviderUser, SsoError> {
    let Some(counted) = CountedCall::count_provider_call(cx, name).await else { return Err(TOO_MANY_FAILURES) };
    let redirect_uri = redirect_uri(cx.core, name);
    let (nonce, verifier, parameters) = (state.nonce(keyed), state.verifier(keyed), query.pairs().collect::<Vec<_>>());
    let user = match &verifier {
        Ok(verifier) => connection.user(&SsoCallback::new(&redirect_uri, &parameters, verifier, &nonce)).await,
        Err(error) => Err(*error),
    };
    counted.refund_unused(user.as_ref().err());
    match &user {
        Ok(_) => {}
        Err(SsoError::Denied) => {
            #[cfg(feature = "tracing")]
            ::tracing::debug!("the sign-in at the provider {name} was cancelled");
        }
        Err(error) => crate::util::trace::warning!("the provider {name} has not signed in a user: {error}"),
    }
    user
}

pub(super) const TOO_MANY_FAILURES: SsoError = SsoError::Unavailable("too many failures of this address");

/// A call to a provider, counted up front. Even a made-up answer costs a call, so a failure counts against the address.
///
/// Failures of the provider itself count apart, because they must not lock its users out of the other methods. A user who
/// hangs up before the provider answers counts there, too.
struct CountedCall<'a> {
    limits: &'a Limits,
    failure: Option<Spend>,
    outage: Option<Spend>,
}

impl<'a> CountedCall<'a> {
    /// Returns `None` after too many failures of this address, or of this provider for it.
    async fn count_provider_call(cx: &RequestContext<'a>, provider: &str) -> Option<Self> {
        let limits = &cx.core.limits;
        let mut counted = Self { limits, failure: None, outage: None };
        if let Some(address) = cx.address.clone() {
            counted.failure = Some(admitted(limits.failures.check(&address, 1).await)?);
            let of_provider = LimitKey::parse_reserved(format!("{}/{provider}", address.as_str())).unwrap_or(address);
            counted.outage = Some(admitted(limits.provider_outages.check(&of_provider, 1).await)?);
        }
        Some(counted)
    }

    /// Uncounts what did not happen.
    fn refund_unused(mut self, error: Option<&SsoError>) {
        if let Some(SsoError::Failed(_)) = error {
            self.failure = None;
        }
        if let Some(spend) = self.outage.take().filter(|_| !matches!(error, Some(SsoError::Unavailable(_)))) {
            self.limits.provider_outages.refund_later(spend);
        }
    }
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        if let Some(spend) = self.failure.take() {
            self.limits.failures.refund_later(spend);
        }
    }
}

fn admitted(decision: Decision) -> Option<Spend> {
    decision.is_admitted().then(|| decision.into_spend())
}
