//! `POST /authentication/start`: a login begins.

use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    answer,
    cookies::{Carried, MOST_LOGINS},
    fields::Fields,
    problem::{Code, Problem},
    query,
    request::{self, Addressed},
    signed_in::SignedIn,
    visit::Visit,
    wishes::Wishes,
};
use crate::{
    event::EventKind,
    http::body::Body,
    login::{Carried as Done, Keyed, Login},
    policy::{Method, Plan},
    store::StoreError,
    tenant::Tenant,
    user::Identifier,
    util::secret::Secret,
};

#[derive(Serialize)]
struct Started {
    session_id: String,
    available_methods: Vec<&'static str>,
    required_steps: usize,
    next_step: Option<usize>,
}

pub(super) async fn start(visit: &mut Visit<'_>, mut fields: Fields) -> Result<Response<Body>, Problem> {
    let parameters = fields.client();
    let client = visit.calling_client(parameters.client_id.as_deref()).await?;

    let to = request::address(&parameters, client)?;
    let binding = request::bind(&parameters, &to)?;
    let wishes = Wishes::read(|name| fields.wish(name))?;
    if visit.inner.running().challenges.is_redeemed(&binding).await? {
        return Err(Problem::invalid(query::REDEEMED));
    }
    let identifier = fields.identifier.as_deref().map(Identifier::parse).transpose();
    let identifier = identifier.map_err(|_| Problem::invalid("identifier is malformed"))?;
    let plan = wishes.plan(visit, &to.client)?;
    let done = match &plan {
        Some(plan) => done(visit, &to, &wishes, plan, identifier.as_ref()).await?,
        None => None,
    };
    let (identifier, done) = match (identifier, done) {
        (_, Some((identifier, done))) => (identifier, Some(done)),
        (Some(identifier), None) => (identifier, None),
        (None, None) => return Err(Problem::invalid("identifier is missing")),
    };

    let keyed = visit.inner.keyed().await?;
    let tenant = to.client.tenant().clone();
    throttle(visit, &tenant, &identifier, keyed)?;
    let config = &visit.inner.config;
    let plan = plan.ok_or_else(Problem::unmet)?;

    let logins = &visit.inner.running().logins;
    let secret = Secret::generate();
    let login = Login::begin(&secret, tenant, binding, identifier, plan, logins.now()).wanting(wishes.wanted);
    let login = match done {
        Some(done) => login.carrying(done),
        None => login,
    };
    let carried = config.cookies.carried(&visit.parts.headers);
    let surplus = surplus(visit, &carried).await?;
    logins.begin(&secret.digest(), &login).await?;
    visit.inner.journal().tally_login(EventKind::LoginStarted, &login, None, keyed);

    let mut response = answer::json(
        StatusCode::OK,
        &Started {
            session_id: login.id.to_string(),
            available_methods: login.plan.next(login.proved()).iter().map(Method::as_str).collect(),
            required_steps: login.required(),
            next_step: login.view(logins.now()).next(),
        },
    );
    config.cookies.set(&secret).append_to(response.headers_mut());
    for removal in surplus.iter().filter_map(|cookie| config.cookies.removal(cookie.name)) {
        removal.append_to(response.headers_mut());
    }
    Ok(response)
}

/// The steps that are done already, where who is signed in goes on as themselves.
async fn done(
    visit: &Visit<'_>,
    to: &Addressed,
    wishes: &Wishes,
    plan: &Plan,
    identifier: Option<&Identifier>,
) -> Result<Option<(Identifier, Done)>, StoreError> {
    // what a person has to confirm is confirmed on our own pages
    if visit.reader.is_some() && (wishes.asking || !to.redirect.is_of_a_site()) {
        return Ok(None);
    }
    let Some(signed_in) = SignedIn::find(visit, &to.client, wishes).await? else { return Ok(None) };
    let own = signed_in.evidence.identifier.clone();
    if !wishes.may_mean(signed_in.session.user()) || identifier.is_some_and(|typed| *typed != own) {
        return Ok(None);
    }
    let now = visit.inner.running().logins.now();
    Ok(signed_in.carried(plan, wishes, &to.client, now).map(|done| (own, done)))
}

/// From an address that was wrong too often nothing begins, and for one name not without end.
fn throttle(visit: &Visit<'_>, tenant: &Tenant, identifier: &Identifier, keyed: &Keyed) -> Result<(), Problem> {
    let running = visit.inner.running();
    let too_many = || Problem::new(Code::TooManyAttempts, "too many attempts; wait");
    if let Some(standing) = visit.known_address().and_then(|address| running.failures.peek(&address))
        && standing.remaining() == 0
    {
        return Err(too_many().retry_in(standing.wait()));
    }
    let name = keyed.hash("started", [tenant.as_str().as_bytes(), identifier.as_str().as_bytes()]);
    let name = crate::util::handle::Handle::of(&name).to_string();
    // never an error: base64url can name a tenant
    let Ok(name) = Tenant::parse(&name) else { return Ok(()) };
    let decision = running.starts.check(&name, 1);
    if decision.is_admitted() { Ok(()) } else { Err(too_many().retry_in(decision.wait())) }
}

/// The cookies that make room for one more login: of those that are gone, and then of the oldest.
async fn surplus<'c>(visit: &Visit<'_>, carried: &'c [Carried<'c>]) -> Result<Vec<&'c Carried<'c>>, StoreError> {
    let Some(too_many) = (carried.len() + 1).checked_sub(MOST_LOGINS).filter(|surplus| *surplus > 0) else {
        return Ok(Vec::new());
    };
    let logins = &visit.inner.running().logins;
    let mut aged = Vec::with_capacity(carried.len());
    for cookie in carried {
        let began = logins.find(&cookie.digest).await?.filter(|login| !login.has_ended(logins.now()));
        aged.push((began.map(|login| login.began), cookie));
    }
    // nothing comes before every time
    aged.sort_by_key(|(began, _)| *began);
    Ok(aged.into_iter().take(too_many).map(|(_, cookie)| cookie).collect())
}
