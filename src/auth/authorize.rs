//! `/authorize`: where a login begins, and where its code is had.

use bytes::Bytes;
use http::{HeaderName, Method, Response};

use super::{
    answer, code,
    cookies::Carried,
    fields,
    hint::Meant,
    page,
    problem::{Code, Problem},
    query::{self, Asked, Checked, Query},
    request::Wrong,
    signed_in::SignedIn,
    visit::Visit,
};
use crate::{
    http::{accept, body::Body},
    login::Login,
    policy::LoginPlan,
    store::StoreError,
    util::form,
};

/// The longest form: room for the longest `id_token_hint`, `state` and `claims`.
const LONGEST_FORM: usize = 16 * 1024;

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

pub(super) async fn authorize(visit: &mut Visit<'_>) -> Result<Response<Body>, Problem> {
    let asked = match query::asked(visit).await {
        Ok(asked) => asked,
        Err(problem) => return page::shown(visit, problem),
    };
    let checked = match asked.checked(visit) {
        Ok(checked) => checked,
        Err(wrong) => return asked.error(visit, wrong),
    };
    visit.refuse_ahead()?;
    let cookies = visit.inner.config.cookies;
    let carried = cookies.carried(&visit.parts.headers);
    let outcome = match visit.parts.method {
        Method::GET => hand_out(visit, &asked, &checked, &carried).await,
        _ => Ok(None),
    };
    match outcome {
        Ok(Some(response)) => Ok(response),
        Ok(None) if checked.wishes.silent => {
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

/// `POST /authorize` (OpenID Connect Core §3.1.2.1): leads to the URL that says the same. A browser keeps its cookies from
/// a form of another site, and shows them there.
pub(super) async fn by_form<B>(visit: &mut Visit<'_>, body: B) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    match url_of(visit, body).await {
        Ok(url) => answer::see_other(&url).ok_or_else(|| Problem::invalid("the form can't be passed on")),
        Err(problem) => page::shown(visit, problem),
    }
}

async fn url_of<B>(visit: &mut Visit<'_>, body: B) -> Result<String, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let body = match fields::form(visit.parts, body).await {
        Ok(body) if body.len() > LONGEST_FORM => Err(Problem::new(Code::TooLarge, "the form is longer than 16 KiB")),
        other => other,
    };
    let query = body.as_deref().map_err(Problem::clone).and_then(Query::parse);
    let client_id = query.as_ref().ok().and_then(Query::client_id);
    let charged = visit.charged_client(client_id).await;
    let (query, _) = (query?, charged?);
    Ok(format!("{}/authorize?{}", visit.inner.config.issuer.path(), form::written(query.pairs())))
}

/// The code, if a login of this browser is completed for this very request, or if who is signed in need not log in.
async fn hand_out(
    visit: &Visit<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    carried: &[Carried<'_>],
) -> Result<Option<Response<Body>>, StoreError> {
    let (client, Some(plan)) = (&asked.to.client, &checked.plan) else { return Ok(None) };
    let meant = match Meant::by(visit, &checked.wishes, client).await {
        Ok(meant) => meant,
        Err(wrong) => return Ok(asked.error(visit, wrong).ok()),
    };
    if visit.inner.running().challenges.is_redeemed(&checked.binding).await? {
        return Ok(asked.error(visit, Wrong { code: Code::InvalidRequest, detail: query::REDEEMED }).ok());
    }
    let signed_in = SignedIn::find(visit, client, &checked.wishes).await?;
    let outcome = match newest_completed(visit, asked, checked, plan, (carried, signed_in.as_ref())).await? {
        Some((_, login)) if !login.user.as_ref().is_some_and(|user| meant.is(user)) => {
            Err(Wrong { code: Code::LoginRequired, detail: "somebody else is logged in" })
        }
        Some((cookie, login)) => code::of_login(visit, asked, checked, (cookie, &login), signed_in).await?,
        None => match signed_in.filter(|it| meant.is(it.session.user())) {
            Some(signed_in) => code::of_session(visit, asked, checked, plan, &signed_in).await?,
            None => Ok(None),
        },
    };
    Ok(outcome.unwrap_or_else(|wrong| asked.error(visit, wrong).ok()))
}

/// The newest login of this browser that answers this request, whose plan it meets.
async fn newest_completed<'c>(
    visit: &Visit<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    plan: &LoginPlan,
    (carried, signed_in): (&'c [Carried<'c>], Option<&SignedIn>),
) -> Result<Option<(&'c Carried<'c>, Login)>, StoreError> {
    let logins = &visit.inner.running().logins;
    // what was carried into a login counts no longer than the session that it came from
    let rests = |login: &Login| login.carried == 0 || signed_in.is_some_and(|it| it.bears(login));
    let mut newest: Option<(&Carried<'_>, Login)> = None;
    for cookie in carried {
        let Some(login) = logins.find(&cookie.digest).await? else { continue };
        let answers = login.is_completed(logins.now())
            && login.binding == checked.binding
            && login.tenant == *asked.to.client.tenant()
            && cookie.name == visit.inner.config.cookies.name_of(&login.id)
            && rests(&login)
            && checked.wishes.max_age.is_none_or(|age| login.was_proved_within(age, logins.now()))
            && plan.is_met_by(login.proved());
        if answers && newest.as_ref().is_none_or(|(_, other)| other.began < login.began) {
            newest = Some((cookie, login));
        }
    }
    Ok(newest)
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
