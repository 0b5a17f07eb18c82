//! `POST /authentication/start`: a login begins.

use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;

use crate::{
    auth::{
        authorize::{
            oidc::OidcParameters,
            query,
            request::{self, Recipient},
        },
        context::RequestContext,
        factors::{self, signed_in::SignedIn},
        http::{
            answer::{self, OfferedProvider},
            cookies::{MOST_LOGINS, PresentedLogin},
            fields::Fields,
            problem::{Code, EndpointResult, Problem},
        },
    },
    client::Client,
    event::EventKind,
    login::{CarriedProofs, Login, Subject},
    policy::{LoginPlan, Method},
    store::{StoreError, StoreErrorKind, batch::Batch},
    user::Identifier,
    util::secret::Secret,
    words::Language,
};

#[derive(Serialize)]
struct Started<C> {
    session_id: String,
    available_methods: Vec<&'static str>,
    required_steps: usize,
    next_step: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    providers: Vec<OfferedProvider>,
    #[serde(skip_serializing_if = "Option::is_none")]
    challenges: Option<C>,
}

/// Begins a login, or a reset (`is_reset`). The plan of a reset is the same for all accounts until a step is proved, and it
/// continues no session.
pub(crate) async fn start_login(
    cx: &RequestContext<'_>,
    client: Option<Arc<Client>>,
    fields: Fields,
    is_reset: bool,
) -> EndpointResult {
    let parameter = |name: &str| fields.parameter(name);
    let to = request::recipient(parameter, client)?;
    let binding = request::bind(parameter, &to, &cx.core.journal)?;
    let mut oidc = OidcParameters::read_oidc_parameters(&to.client, parameter)?;
    oidc.wanted.remember = fields.remember == Some(true) && cx.core.remember.is_some();
    oidc.wanted.language = fields.ui_locales.as_deref().and_then(Language::of_locales);
    if let (Some(site), true) = (&cx.core.first_party, to.client.is_first_party()) {
        oidc.wanted.return_to = site.return_to(fields.return_to.as_deref())?;
    }
    let identifier = fields.identifier.as_deref().map(Identifier::parse).transpose();
    let identifier = identifier.map_err(|_| Problem::invalid("identifier is malformed"))?;
    let plan = match is_reset {
        true => LoginPlan::of_reset(cx.core.enabled(to.client.tenant())),
        false => oidc.plan(cx, &to.client)?,
    };
    oidc.wanted.is_reset = is_reset;
    let carried = match &plan {
        Some(plan) if !is_reset && fields.continue_session != Some(false) => {
            find_carried_steps(cx, &to, &oidc, plan).await?
        }
        _ => None,
    };

    // before a user changes how they sign in here, another provider has to ask its user again
    let max_age = oidc.age().map(|age| if to.client.is_first_party() { 0 } else { age.as_secs() });
    let (keyed, tenant) = (cx.core.keyed().await?, to.client.tenant().clone());
    refuse_failing_address(cx).await?;
    let core = cx.core;
    let plan = plan.ok_or_else(Problem::unmet)?;

    let secret = Secret::generate();
    let times = (&core.login_limits, core.logins.now());
    let mut login = Login::begin_login(&secret, tenant, (binding, oidc.wanted), plan, times);
    login.max_age = max_age;
    let login = match identifier {
        Some(identifier) => {
            let account = core.accounts.named(&login.tenant, &identifier).await?;
            let found = core.accounts.with_generation(&login.tenant, account).await?;
            login.identified(identifier, found.user().map_or(Subject::Unknown, Subject::User))
        }
        None => login,
    };
    let login = match carried {
        Some(carried) if login.may_carry(&carried) => with_factor(cx, login.carrying(carried)).await?,
        _ => login,
    };
    let (login, challenges) = factors::with_challenge(core, login);
    let cookies = core.cookies.read_login_cookies(&cx.parts.headers);
    let surplus = surplus(cx, &cookies).await?;
    // without its secret, which only the answer has, the login of a refused request is of no use
    let mut batch = Batch::without_user(&core.store);
    let redeemed = batch.add(core.redeemed_challenges.prepare_challenge_read(&login.binding)?);
    let begun = batch.add(core.logins.prepare_login_insert(&secret.digest(), &login)?);
    let outcomes = batch.run().await?;
    if outcomes.row(&redeemed)?.live.is_some() {
        return Err(Problem::invalid(query::REDEEMED));
    }
    if outcomes.version(&begun).is_none() {
        return Err(StoreError::from(StoreErrorKind::Busy).into());
    }
    cx.core.journal.tally_login(EventKind::LoginStarted, &login, (None, None), keyed);

    let available = login.plan.next(login.proved()).that_can_be_first();
    let mut response = answer::json(
        StatusCode::OK,
        &Started {
            session_id: login.id.to_string(),
            available_methods: available.iter().map(Method::as_str).collect(),
            required_steps: login.required(),
            next_step: login.to_login_view(core.logins.now()).next(),
            providers: factors::providers(core, &login.tenant, available),
            challenges,
        },
    );
    core.cookies.set(&secret, &login.id).append_to(response.headers_mut());
    for removal in surplus.iter().filter_map(|cookie| core.cookies.removal(cookie.name)) {
        removal.append_to(response.headers_mut());
    }
    Ok(response)
}

/// Returns the steps that the browser's signed-in session has proved already.
async fn find_carried_steps(
    cx: &RequestContext<'_>,
    to: &Recipient,
    oidc: &OidcParameters,
    plan: &LoginPlan,
) -> Result<Option<CarriedProofs>, StoreError> {
    // users confirm on our own pages, not on those of another origin
    if cx.is_read_elsewhere && (oidc.asks_user || !to.is_of_a_site()) {
        return Ok(None);
    }
    let Some(signed_in) = SignedIn::find(cx, &to.client, oidc).await? else { return Ok(None) };
    if !oidc.accepts_subject(signed_in.session.user()) {
        return Ok(None);
    }
    let now = cx.core.logins.now();
    Ok(signed_in.carried(plan, oidc, &to.client, now))
}

/// Demands the second factor that the user of a session has enrolled, if the session has proved some of the steps only. A
/// session that has proved all of them counts as it is, unless the request names a level.
async fn with_factor(cx: &RequestContext<'_>, mut login: Login) -> Result<Login, StoreError> {
    let is_asked = !login.proofs.is_empty() && (login.remaining() > 0 || login.plan.acr().is_some());
    if let Some(user) = login.subject.user().filter(|_| is_asked) {
        let factors = cx.core.enrolled_factors((&login.tenant, &user.id), &login.plan, login.proved()).await?;
        login.plan.demand_factor(login.proved(), factors);
    }
    Ok(login)
}

/// Refuses addresses with too many failures. Names are never refused: that would lock the owner out of all methods.
async fn refuse_failing_address(cx: &RequestContext<'_>) -> Result<(), Problem> {
    if let Some(address) = cx.address.clone()
        && let Some(standing) = cx.core.limits.failures.peek(&address).await
        && standing.remaining() == 0
    {
        return Err(Problem::new(Code::TooManyAttempts, "too many attempts; try again later")
            .retry_in(standing.time_until_reset()));
    }
    Ok(())
}

/// Returns the cookies to remove so that there is room for one more login: first those without a login, then the oldest.
async fn surplus<'c>(
    cx: &RequestContext<'_>,
    presented: &'c [PresentedLogin<'c>],
) -> Result<Vec<&'c PresentedLogin<'c>>, StoreError> {
    let Some(too_many) = (presented.len() + 1).checked_sub(MOST_LOGINS).filter(|surplus| *surplus > 0) else {
        return Ok(Vec::new());
    };
    let logins = &cx.core.logins;
    let mut aged = Vec::with_capacity(presented.len());
    for cookie in presented {
        let began = logins.find(&cookie.digest).await?.filter(|login| !login.value.has_ended(logins.now()));
        aged.push((began.map(|login| login.value.began), cookie));
    }
    // `None` sorts first
    aged.sort_by_key(|(began, _)| *began);
    Ok(aged.into_iter().take(too_many).map(|(_, cookie)| cookie).collect())
}
