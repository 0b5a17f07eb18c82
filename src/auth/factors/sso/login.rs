//! The method `sso`: the user proves a step at another identity provider.
//!
//! `authenticate` sends the user there. The user comes back to the callback (`callback.rs`).

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    outcome::{SsoOutcome, SsoRefusal, without_account, without_address},
    row::SsoLink,
};
use crate::{
    auth::{
        context::RequestContext,
        core::{Core, Limits},
        factors::{
            credentials::{
                credential::{Credential, CurrentProofs, Strength},
                row::Credentials,
                table::Added,
            },
            step::LoginStep,
        },
        http::{
            answer::{self, Counters},
            problem::{Code, Problem},
            route::sso_callback,
        },
    },
    delivery::NoticeKind,
    event::EventKind,
    http::body::Body,
    limit::{Decision, Spend},
    login::{BoundUser, Challenge, Keyed, Login, LoginCall, OpenChallenge, OpenRedirect, Proved, Subject},
    pkce::{CodeChallenge, CodeVerifier},
    policy::{FactorClass, Method, MethodSet},
    session::{Proof, UserId},
    sso::{ProviderUser, SsoCallback, SsoConnection, SsoError, SsoRequest},
    support::outgoing::parse_url,
    tenant::LimitKey,
    user::{Account, Contact},
    util::{
        clock::{UnixTime, saturating_nanos},
        form::{self, Form},
        public_id::PublicId,
        secret::{Secret, SecretDigest},
    },
};

const METHOD: Method = Method::Sso;

/// How long the user can take at the provider.
const LIFETIME: Duration = Duration::from_secs(600);

/// The longest query of a login page that is kept. Anyone can begin logins, so it is short: our page keeps a longer one in the
/// browser.
const LONGEST_QUERY: usize = 2 * 1024;

#[derive(Serialize)]
struct SentAway {
    #[serde(flatten)]
    login: Counters,
    redirect_url: String,
}

/// The parameter `state`, which a user brings back from a provider.
pub(crate) struct SsoState {
    /// The id of the login.
    pub(crate) login: String,
    pub(crate) secret: Secret,
}

/// Returns the URL of the provider. The same for every user.
pub(crate) async fn start_provider_login(step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
    let (core, login) = (step.cx.core, &step.login);
    let name = step.fields.provider.as_deref().ok_or(Problem::invalid("provider is missing"))?;
    let found = core.factors.sso.find(&login.tenant, name);
    let (name, connection) = found.ok_or_else(|| step.problem(Problem::invalid("provider is unknown")))?;
    let query = match step.fields.query.as_deref() {
        Some(query) => checked_query(query, login)?.to_owned(),
        None => query_of(login),
    };
    let state = SsoState { login: login.id.to_string(), secret: Secret::generate() };
    let sent = sent_to(core, (name, connection), (&state, step.keyed), step.login.max_age).await;
    let url = sent.map_err(|problem| step.problem(problem))?;
    let challenge = OpenChallenge::new(state.digest(), step.now() + LIFETIME);
    let open = OpenRedirect { provider: name.to_owned(), state: challenge, query };
    let update = step.apply(&LoginCall::Open(&Challenge::Redirect(open))).await?;
    let view = update.response_view(step.now())?;
    Ok(answer::json(StatusCode::OK, &SentAway { login: Counters::from(view), redirect_url: url }))
}

/// Returns the URL that the user opens at the provider.
pub(crate) async fn sent_to(
    core: &Core,
    (name, connection): (&str, &SsoConnection),
    (state, keyed): (&SsoState, &Keyed),
    max_age: Option<u64>,
) -> Result<String, Problem> {
    authorization_url(core, (name, connection), (state, keyed), max_age).await.map_err(|error| {
        crate::util::trace::warning!("the provider {name} can't be used: {error}");
        Problem::new(Code::ProviderUnavailable, "this provider cannot be reached right now")
    })
}

async fn authorization_url(
    core: &Core,
    (name, connection): (&str, &SsoConnection),
    (state, keyed): (&SsoState, &Keyed),
    max_age: Option<u64>,
) -> Result<String, SsoError> {
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
}

fn redirect_uri(core: &Core, name: &str) -> String {
    format!("{}{}", core.issuer.as_str(), sso_callback(name))
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

/// Ends a redeemed challenge: asks the provider who the user is, and proves the step if that user has the account of the
/// login.
pub(crate) async fn settle_provider_login(
    step: &LoginStep<'_>,
    (name, connection): (&str, &SsoConnection),
    state: &SsoState,
    parameters: &[(&str, &str)],
) -> Result<SsoOutcome, Problem> {
    let user = match returned_user(step.cx, (name, connection), (state, step.keyed), parameters).await {
        Ok(user) => user,
        Err(error) => {
            if error == TOO_MANY_FAILURES {
                step.tally(EventKind::LoginLocked, Some(METHOD));
            }
            return end_without_user(step, error).await;
        }
    };
    let asked_for = asked_for(&step.login);
    let auth_time = connection.auth_time(&user, asked_for, step.now());
    let is_fresh = asked_for.is_none_or(|asked_for| auth_time.is_some_and(|time| time >= asked_for));
    // one of unknown age counts as another factor after a step that is fresh
    if !is_fresh && (auth_time.is_some() || step.login.proofs.is_empty()) {
        return refuse_provider_user(step, name, SsoRefusal::NotFresh).await;
    }
    let found = async {
        Ok(match find_linked_account(step, (name, connection), &user).await? {
            Ok((user, mark)) => Ok((step.enrolled_factors(Some(&user)).await?, user, mark)),
            Err(refusal) => Err(refusal),
        })
    };
    let (factors, user, mark) = match found.await {
        Ok(Ok(proved)) => proved,
        Ok(Err(refusal)) => return refuse_provider_user(step, name, refusal).await,
        Err(problem) => {
            withdraw_sso_attempt(step).await?;
            step.cx.log(&problem);
            return Ok(SsoOutcome::Unavailable);
        }
    };
    let elsewhere = Some(auth_time.unwrap_or_default().as_nanos());
    let proved = Proved { user: &user, mark: Some(mark), elsewhere, factors };
    let update = step.apply(&LoginCall::Settle(METHOD, Some(proved))).await?;
    let is_proved = step.conclude(&update, METHOD).is_ok();
    Ok(if is_proved { SsoOutcome::Proved } else { SsoOutcome::Ended })
}

/// Ends an attempt of a user whom the provider has signed in, and who is not signed in here.
async fn refuse_provider_user(step: &LoginStep<'_>, name: &str, refusal: SsoRefusal) -> Result<SsoOutcome, Problem> {
    crate::util::trace::warning!("a user of the provider {name} is not signed in: {}", refusal.explanation());
    let update = step.apply(&LoginCall::Settle(METHOD, None)).await?;
    let _counted = step.conclude_with(&update, METHOD, Some(refusal.as_str()));
    Ok(SsoOutcome::Refused(refusal))
}

/// Asks the provider for the user who came back with these parameters. Logs why there is none.
///
/// # Errors
///
/// Returns an error without asking after too many failures of this address, or of this provider for it.
pub(crate) async fn returned_user(
    cx: &RequestContext<'_>,
    (name, connection): (&str, &SsoConnection),
    (state, keyed): (&SsoState, &Keyed),
    parameters: &[(&str, &str)],
) -> Result<ProviderUser, SsoError> {
    let Some(counted) = CountedCall::count_provider_call(cx, name).await else { return Err(TOO_MANY_FAILURES) };
    let redirect_uri = redirect_uri(cx.core, name);
    let (nonce, verifier) = (state.nonce(keyed), state.verifier(keyed));
    let user = match &verifier {
        Ok(verifier) => connection.user(&SsoCallback::new(&redirect_uri, parameters, verifier, &nonce)).await,
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

const TOO_MANY_FAILURES: SsoError = SsoError::Unavailable("too many failures of this address");

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
        if let Some(address) = cx.known_address() {
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

/// Returns since when the provider must have asked its user for credentials, if the login needs that.
fn asked_for(login: &Login) -> Option<UnixTime> {
    let (Some(Challenge::Redirect(open)), Some(seconds)) = (&login.open, login.max_age) else { return None };
    let age = saturating_nanos(Duration::from_secs(seconds));
    Some(UnixTime::from_nanos(
        open.state.expires_at().as_nanos().saturating_sub(saturating_nanos(LIFETIME)).saturating_sub(age),
    ))
}

/// Ends an attempt for which the provider named no user.
async fn end_without_user(step: &LoginStep<'_>, error: SsoError) -> Result<SsoOutcome, Problem> {
    let outcome = match error {
        SsoError::Denied => SsoOutcome::Denied,
        SsoError::Unavailable(_) => SsoOutcome::Unavailable,
        SsoError::Failed(_) => {
            let (refusal, update) = (SsoRefusal::WrongAnswer, step.apply(&LoginCall::Settle(METHOD, None)).await?);
            let _counted = step.conclude_with(&update, METHOD, Some(refusal.as_str()));
            return Ok(SsoOutcome::Refused(refusal));
        }
    };
    withdraw_sso_attempt(step).await?;
    Ok(outcome)
}

/// Uncounts an attempt that proved nothing wrong.
async fn withdraw_sso_attempt(step: &LoginStep<'_>) -> Result<(), Problem> {
    step.apply(&LoginCall::Withdraw).await.map(drop)
}

/// Returns the user whose account belongs to a provider's user, and the mark of the link, or why it may not prove this step.
async fn find_linked_account(
    step: &LoginStep<'_>,
    (name, connection): (&str, &SsoConnection),
    user: &ProviderUser,
) -> Result<Result<(BoundUser, [u8; 32]), SsoRefusal>, Problem> {
    let (core, tenant) = (step.cx.core, &step.login.tenant);
    // another connection of this tenant can claim the same issuer, so links belong to one connection
    let linked = core.credentials.by_link(tenant, (name, user.issuer(), user.subject())).await?;
    let is_new = linked.is_none();
    let (id, link) = match linked {
        Some((id, _)) if !step.login.subject.accepts(&id) => return Ok(Err(SsoRefusal::OtherAccount)),
        Some(found) => found,
        None => {
            let (id, strength) = match first_link(step, connection, user).await? {
                Ok(first) => first,
                Err(refusal) => return Ok(Err(refusal)),
            };
            (id, new_link(name, user, step.now(), strength))
        }
    };
    // a link that is too weak for this login proves nothing, and is not made either
    if !link.strength.counts_for(&step.login.plan) {
        return Ok(Err(SsoRefusal::TooWeak));
    }
    // a hook of the operator can't make a link again that the user has removed
    let is_vouched = !link.strength.is_full();
    if is_new && core.credentials.add_link((tenant, &id), &link, is_vouched).await? != Added::Done {
        return Ok(Err(SsoRefusal::NotLinked));
    }
    let account = core.accounts.of_user(tenant, Some(&id)).await?;
    let found = core.accounts.with_generation(tenant, account).await?;
    // a user who was closed, ended or forgotten meanwhile keeps no new link
    let is_ended = step.login.subject.user().is_some_and(|user| user.generation < found.generation());
    if is_new && (is_ended || found.active().is_none()) {
        let _removed = core.credentials.discard_link((tenant, &id), &link).await?;
        return Ok(Err(SsoRefusal::AccountClosed));
    }
    if let Some(account) = found.active().filter(|_| is_new) {
        let language = step.cx.language(&step.login);
        core.announce(&*step.login, (tenant, account), NoticeKind::LinkAdded, language).await?;
    }
    let mark = link.mark(step.keyed);
    Ok(found.active().and(found.user()).map(|user| (user, mark)).ok_or(SsoRefusal::AccountClosed))
}

/// Returns the account that a provider's user without a link may be linked to, and the strength of that link, or why there is
/// none.
async fn first_link(
    step: &LoginStep<'_>,
    connection: &SsoConnection,
    user: &ProviderUser,
) -> Result<Result<(UserId, Strength), SsoRefusal>, Problem> {
    let (core, login) = (step.cx.core, &step.login);
    if login.subject == Subject::Unbound
        && let Some(created) = connection.created(&login.tenant, user).await?
    {
        return Ok(Ok((created, Strength::FULL.clone())));
    }
    // before the first proof, the user behind a typed name must not show
    let (Subject::User(bound), Some(who)) = (&login.subject, login.authentication(None)) else {
        return without_account(step.cx, &login.tenant, user).await.map(Err);
    };
    if let Some(refusal) = without_address(user) {
        return Ok(Err(refusal));
    }
    let Some(email) = connection.trusted_email(user).filter(|_| is_vouched_for(login)) else {
        return Ok(Err(SsoRefusal::NotLinked));
    };
    // a password that was changed meanwhile no longer counts
    let current = core.current_proofs(&who, step.keyed).await?;
    let current = current.filter(|current| current.proofs.len() == who.proofs.len());
    let current = current.filter(|current| current.account.has_verified(&Contact::Email(email)));
    let Some(CurrentProofs { strengths, .. }) = current else { return Ok(Err(SsoRefusal::NotLinked)) };
    Ok(Ok((bound.id.clone(), strength_of_link(login, &strengths))))
}

/// Returns the methods that were proved in this very login and vouch for a first link. Proofs of an earlier login do
/// not count, because somebody else may use the browser by now. A code by e-mail does not count, because a thief of the mailbox
/// can have the account at the provider that runs it, too.
fn vouching(login: &Login) -> MethodSet {
    let own: &[Proof] = login.proofs.get(login.carried..).unwrap_or_default();
    let methods = own.iter().filter_map(|proof| Method::from_name(&proof.method));
    methods.filter(|method| method.class() != FactorClass::Mailbox).collect()
}

fn is_vouched_for(login: &Login) -> bool {
    !vouching(login).is_empty()
}

/// Returns the strength of a link that is made in this login, whose proofs have these strengths. The trusted provider proves
/// the address, which counts like another factor.
fn strength_of_link(login: &Login, strengths: &[Strength]) -> Strength {
    let methods = vouching(login).with(METHOD);
    Strength::of_proofs(methods.classes(), methods, strengths)
}

/// Returns whether a user has a link to this provider that counts in a login.
pub(crate) fn has_link_for(login: &Login, row: &Credentials, name: &str) -> bool {
    row.links.iter().any(|link| link.provider == name && link.strength.counts_for(&login.plan))
}

/// Returns whether a user who comes back from this provider can be linked, and prove the next step at once. The proofs of the
/// login count for its plan already.
pub(crate) fn may_link(login: &Login, connection: &SsoConnection, account: &Account) -> bool {
    is_vouched_for(login)
        && strength_of_link(login, &[]).counts_for(&login.plan)
        && connection.trusts_contact_of(account)
}

/// Creates the row of a link to this user of a provider.
pub(crate) fn new_link(provider: &str, user: &ProviderUser, now: UnixTime, strength: Strength) -> SsoLink {
    SsoLink {
        enrolment: PublicId::random(),
        issuer: user.issuer().to_owned(),
        subject: user.subject().to_owned(),
        provider: provider.to_owned(),
        name: shown_name(user),
        created_at: now.as_secs(),
        strength,
    }
}

/// Returns what the account page shows, cut to a reasonable length.
fn shown_name(user: &ProviderUser) -> String {
    let name = user.email().or(user.name()).unwrap_or_default();
    name.chars().filter(|char| !char.is_control()).take(100).collect()
}
