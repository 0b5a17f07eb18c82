//! `GET /authorize`: where a login begins, and where its code is had.

use http::{HeaderName, Method, Response};

use super::{
    answer,
    cookies::Carried,
    grant::Grant,
    page, password,
    problem::{Code, Problem},
    query::{self, Asked, Wishes},
    request::Wrong,
    visit::Visit,
};
use crate::{
    accept,
    body::Body,
    event::EventKind,
    login::{Binding, Call, Login},
    policy::Plan,
    secret::Secret,
    store::StoreError,
    user::Account,
};

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

pub(super) async fn authorize(visit: &mut Visit<'_>) -> Result<Response<Body>, Problem> {
    let asked = match query::asked(visit).await {
        Ok(asked) => asked,
        Err(problem) => return page::shown(visit, problem),
    };
    let (binding, wishes) = match asked.binding().and_then(|binding| Ok((binding, asked.wishes()?))) {
        Ok(checked) => checked,
        Err(wrong) => return asked.error(visit, wrong),
    };
    visit.refuse_ahead()?;
    let cookies = visit.inner.config.cookies;
    let carried = cookies.carried(&visit.parts.headers);
    let outcome = match visit.parts.method {
        Method::GET => hand_out(visit, &asked, (&binding, wishes), &carried).await,
        _ => Ok(None),
    };
    match outcome {
        Ok(Some(response)) => Ok(response),
        Ok(None) if wishes.silent => {
            let wrong = Wrong { code: Code::LoginRequired, detail: "the user has to log in first" };
            asked.error(visit, wrong)
        }
        Ok(None) if !carried.is_empty() || is_navigation(visit) => to_login(visit, &asked),
        Ok(None) => Err(Problem::new(Code::LoginRequired, "the user has to log in first")),
        Err(error) => {
            let Problem { code, detail, .. } = Problem::from(error);
            asked.error(visit, Wrong { code, detail })
        }
    }
}

/// The code, if a login of this browser is completed for this very request.
async fn hand_out(
    visit: &Visit<'_>,
    asked: &Asked<'_>,
    wanted: (&Binding, Wishes),
    carried: &[Carried<'_>],
) -> Result<Option<Response<Body>>, StoreError> {
    let Some((cookie, login, plan)) = newest_completed(visit, asked, wanted, carried).await? else { return Ok(None) };
    let running = visit.inner.running();
    let keyed = visit.inner.keyed().await?;
    // the account may have been closed since its steps were proved, or its password changed because somebody had it
    let account = visit.inner.config.users.find(&login.tenant, &login.identifier).await?;
    let unchanged = |account: &Account| {
        let mark = account.password_hash().map(|hash| password::mark(hash, keyed));
        let stands = login.marks.is_empty() || mark.is_some_and(|mark| login.marks.contains(&mark));
        Some(account.id()) == login.user.as_ref() && stands
    };
    if !account.is_some_and(|account| !account.is_disabled() && unchanged(&account)) {
        visit.inner.journal().tally_login(EventKind::LoginFailed, &login, None, keyed);
        let wrong = Wrong { code: Code::AccessDenied, detail: "the account may not log in" };
        return Ok(asked.error(visit, wrong).ok());
    }
    // whatever can fail without the store does so before the login is spent
    let code = Secret::generate();
    let grant = Grant::of(&login, plan.acr().or(login.plan.acr()));
    let session = grant.as_ref().and_then(|grant| grant.session().ok());
    let answer = asked.back(visit, &[("code", code.expose())]);
    let (Some(grant), Some(session), Ok(mut response)) = (grant, session, answer) else { return Ok(None) };
    // first the login is spent, then the code exists: what fails in between costs a login and never gives two codes
    let spent = running.logins.step(&cookie.digest, &Call::Consume(&code.digest())).await?;
    if spent.is_none_or(|moved| moved.answer.is_err()) {
        return Ok(None);
    }
    running.codes.issue(&code.digest(), &grant).await?;
    let (session_cookie, _) = running.sessions.create(session).await?;
    // the cookie takes the place of the one before, and so nobody could end that session any more
    if let Err(error) = running.sessions.end_presented(&visit.parts.headers).await {
        crate::trace::warning!("the session before could not be ended: {error}");
    }
    let journal = visit.inner.journal();
    journal.record(EventKind::LoginSucceeded, &login, None, keyed);
    journal.record(EventKind::CodeIssued, &login, None, keyed);
    session_cookie.append_to(response.headers_mut());
    if let Some(removal) = visit.inner.config.cookies.removal(cookie.name) {
        removal.append_to(response.headers_mut());
    }
    Ok(Some(response))
}

/// The newest login of this browser that answers this request, and the plan of the request, which it meets.
async fn newest_completed<'c>(
    visit: &Visit<'_>,
    asked: &Asked<'_>,
    (binding, wishes): (&Binding, Wishes),
    carried: &'c [Carried<'c>],
) -> Result<Option<(&'c Carried<'c>, Login, Plan)>, StoreError> {
    let logins = &visit.inner.running().logins;
    let Some(plan) = asked.plan(visit) else { return Ok(None) };
    let mut newest: Option<(&Carried<'_>, Login)> = None;
    for cookie in carried {
        let Some(login) = logins.find(&cookie.digest).await? else { continue };
        let answers = login.is_completed(logins.now())
            && login.binding == *binding
            && login.tenant == *asked.to.client.tenant()
            && cookie.name == visit.inner.config.cookies.name_of(&login.id)
            && wishes.max_age.is_none_or(|age| login.was_proved_within(age, logins.now()))
            && plan.is_met_by(login.proved());
        if answers && newest.as_ref().is_none_or(|(_, other)| other.began < login.began) {
            newest = Some((cookie, login));
        }
    }
    Ok(newest.map(|(cookie, login)| (cookie, login, plan)))
}

/// To the login page, with the query as it came.
fn to_login(visit: &Visit<'_>, asked: &Asked<'_>) -> Result<Response<Body>, Problem> {
    let config = &visit.inner.config;
    let page = match &config.login_url {
        Some(url) => url.clone(),
        None => format!("{}/authentication/start", config.issuer.path()),
    };
    let location = format!("{page}?{}", asked.query.raw);
    answer::redirect(&location).ok_or_else(|| Problem::invalid("the query can't be passed on"))
}

/// Whether a person opens a page: the browser says so; without it, whoever takes HTML or anything is one.
fn is_navigation(visit: &Visit<'_>) -> bool {
    let headers = &visit.parts.headers;
    match headers.get(SEC_FETCH_MODE) {
        Some(mode) => mode == "navigate",
        None => accept::favourite(headers).is_none_or(|best| best == "*/*") || accept::prefers_html(headers),
    }
}
