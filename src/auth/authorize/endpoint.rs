//! `/authorize`: the start of a login, and the return for its code.

use std::borrow::Cow;

use http::{HeaderName, Method, Response, header};

use super::{
    code,
    completed::CompletedLogin,
    expected_user::ExpectedUser,
    query::{self, Asked, Checked, Decision},
};
use crate::{
    auth::{
        context::{RequestContext, incoming::IncomingRequest, stages::ClientReach},
        factors::signed_in::SignedIn,
        http::{
            answer,
            bodies::RequestBody,
            cookies::PresentedLogin,
            fields,
            problem::{Code, EndpointResult, Problem},
            route::SIGN_UP_PAGE,
        },
        pages::{built, consent::consent_done_page, page},
        query::Query,
    },
    http::{accept, body::Body},
    login::Login,
    util::form,
};

/// The maximum length of a form: room for the longest `id_token_hint`, `state` and `claims`.
const LONGEST_FORM: usize = 16 * 1024;

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

pub(crate) async fn authorize(request: &mut IncomingRequest<'_>) -> EndpointResult {
    let (cx, asked) =
        query::read_authorize_request(request, ClientReach::Registered).await.map_err(Problem::into_error_page)?;
    answer_request(&cx, &asked).await
}

/// Answers a request, or a repeated one with the decision of the user.
async fn answer_request(cx: &RequestContext<'_>, asked: &Asked<'_>) -> EndpointResult {
    let checked = match asked.checked(cx) {
        Ok(checked) => checked,
        Err(error) => return asked.error(cx, &error),
    };
    if asked.decision.as_ref().is_some_and(|decision| !decision.allows) {
        return asked.error(cx, &Problem::new(Code::AccessDenied, "the user does not allow it"));
    }
    cx.refuse_prefetch()?;
    let presented = cx.core.cookies.read_login_cookies(&cx.parts.headers);
    let outcome = match cx.parts.method {
        Method::HEAD => Ok(None),
        _ => issue_code(cx, asked, &checked, &presented).await,
    };
    match outcome {
        Ok(Some(response)) => Ok(response),
        Ok(None) if checked.oidc.is_silent => asked.error(cx, &login_required()),
        Ok(None) if !presented.is_empty() || is_navigation(cx) => to_login(cx, asked, checked.oidc.creates_account),
        Ok(None) => Err(login_required()),
        Err(error) => asked.error(cx, &error),
    }
}

/// `POST /consent`: the decision of the user about a third-party client. Goes on with the request that the page was about.
pub(crate) async fn decide_about_client(request: &mut IncomingRequest<'_>, body: &mut RequestBody) -> EndpointResult {
    let (cx, asked) = decided_request(request, body).await.map_err(Problem::into_error_page)?;
    let response = answer_request(&cx, &asked).await?;
    let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
    match location.filter(|location| !location.starts_with('/') && asked.to.redirect.policy_source().is_none()) {
        // the policy of the page that asked can't permit this target, so the user follows a link
        Some(location) => {
            let language = built::language(asked.query.value("ui_locales"), cx.parts);
            let mut page = consent_done_page(&cx.core.pages, language, location);
            for cookie in response.headers().get_all(header::SET_COOKIE) {
                page.headers_mut().append(header::SET_COOKIE, cookie.clone());
            }
            Ok(page)
        }
        None => Ok(response),
    }
}

/// Reads the form of the page, which no other page may send.
async fn decided_request<'a>(
    request: &mut IncomingRequest<'a>,
    body: &mut RequestBody,
) -> Result<(RequestContext<'a>, Asked<'static>), Problem> {
    let body = fields::form(request.parts, body).await;
    let body = request.or_charge(body).await?;
    let form = request.or_charge(Query::parse(&body)).await?;
    let raw = form.value("request").unwrap_or_default();
    let query = Query::parse(raw.as_bytes())
        .map(|query| Query { raw: Cow::Owned(raw.to_owned()), form: query.form.into_owned() });
    let (cx, mut asked) = query::read_request_of_query(request, query, ClientReach::Registered).await?;
    if !cx.is_of_own_page() {
        return Err(request.foreign_origin(Some(asked.to.client.tenant())));
    }
    let allows = match form.value("decision") {
        Some("allow") => true,
        Some("deny") => false,
        _ => return Err(Problem::invalid("decision must be allow or deny")),
    };
    asked.decision = Some(Decision { ticket: form.value("ticket").unwrap_or_default().to_owned(), allows });
    Ok((cx, asked))
}

fn login_required() -> Problem {
    Problem::new(Code::LoginRequired, "the user must log in first")
}

/// `POST /authorize` (OpenID Connect Core §3.1.2.1): redirects to the URL with the same parameters. Browsers withhold
/// cookies from a form of another site, and send them there.
pub(crate) async fn by_form(request: &mut IncomingRequest<'_>, body: &mut RequestBody) -> EndpointResult {
    let url = url_of(request, body).await.map_err(Problem::into_error_page)?;
    answer::see_other(&url).ok_or_else(|| Problem::invalid("the form cannot be forwarded"))
}

async fn url_of(request: &mut IncomingRequest<'_>, body: &mut RequestBody) -> Result<String, Problem> {
    let body = match fields::form(request.parts, body).await {
        Ok(body) if body.len() > LONGEST_FORM => Err(Problem::new(Code::TooLarge, "the form is longer than 16 KiB")),
        other => other,
    };
    let query = body.as_deref().map_err(Problem::clone).and_then(Query::parse);
    let client_id = query.as_ref().ok().and_then(Query::client_id);
    let charged = request.charged_client(client_id, ClientReach::Registered).await;
    let (query, (cx, _)) = (query?, charged?);
    Ok(format!("{}/authorize?{}", cx.core.issuer.path(), form::encode_pairs(query.pairs())))
}

/// Issues a code if a login of this browser is completed for this very request, or if the user is already signed in.
async fn issue_code(
    cx: &RequestContext<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    presented: &[PresentedLogin<'_>],
) -> Result<Option<Response<Body>>, Problem> {
    let (client, Some(plan)) = (&asked.to.client, &checked.plan) else { return Ok(None) };
    let expected = ExpectedUser::from_oidc_parameters(cx, &checked.oidc, client).await?;
    let (is_redeemed, logins) = CompletedLogin::read_logins(cx, Some(&checked.binding), presented).await?;
    if is_redeemed {
        return Err(Problem::invalid(query::REDEEMED));
    }
    let signed_in = SignedIn::find(cx, client, &checked.oidc).await?;
    let (oidc, now) = (&checked.oidc, cx.core.logins.now());
    let is_shown = oidc.asks_user || !asked.to.is_of_a_site();
    let answers = |login: &Login| {
        login.binding == checked.binding
            // a login for another request has not asked the user
            && (!oidc.asks_user || login.wanted.is_confirmed)
            // and has shown no other claims
            && (!is_shown || login.wanted.includes(&oidc.wanted))
            && oidc.age().is_none_or(|age| login.was_proved_within(age, now))
    };
    match CompletedLogin::newest(cx, client, plan, (presented, logins, signed_in.as_ref()), answers) {
        Some(completed) if !completed.login().subject.user().is_some_and(|user| expected.is(&user.id)) => {
            Err(Problem::new(Code::LoginRequired, "another user is logged in"))
        }
        Some(completed) => code::for_login(cx, asked, checked, plan, completed, signed_in.as_ref()).await,
        None => match signed_in.filter(|it| expected.is(it.session.user())) {
            Some(signed_in) => code::for_session(cx, asked, checked, plan, &signed_in).await,
            None => Ok(None),
        },
    }
}

/// Redirects to the login page or the sign-up page, with the query of the request. A decision of the user came too late.
fn to_login(cx: &RequestContext<'_>, asked: &Asked<'_>, signs_up: bool) -> EndpointResult {
    let page = match signs_up {
        true => format!("{}{SIGN_UP_PAGE}", cx.core.issuer.path()),
        false => page::url(cx.core),
    };
    let location = format!("{page}?{}", asked.query.raw);
    let response = match asked.decision {
        // the page says why the user signs in again
        Some(_) => answer::see_other(&format!("{location}#consent=late")),
        None => answer::redirect(&location),
    };
    response.ok_or_else(|| Problem::invalid("the query cannot be forwarded"))
}

/// Returns whether a browser opens a page. Browsers send `Sec-Fetch-Mode`. Without it, a client that accepts HTML or any
/// type counts as a browser.
fn is_navigation(cx: &RequestContext<'_>) -> bool {
    let headers = &cx.parts.headers;
    match headers.get(SEC_FETCH_MODE) {
        Some(mode) => mode == "navigate",
        None => accept::favourite(headers).is_none_or(|best| best == "*/*") || accept::prefers_html(headers),
    }
}
