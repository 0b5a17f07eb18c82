//! `/logout` (OpenID Connect RP-Initiated Logout): the end of the signed-in session, and of what came of it.

use bytes::Bytes;
use http::{Method, Response};

use crate::{
    auth::{
        authorize::query::LONGEST_STATE,
        context::RequestContext,
        endpoints::client::Posted,
        http::{answer, fields, problem::Problem},
        pages::{logout as logout_pages, page},
        sign_out::{self, Ended},
        state::evidence::Evidence,
    },
    client::Client,
    http::body::Body,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    tokens::Tokens,
    util::{form::Form, handle::Handle},
};

/// What is asked for.
struct Asked {
    client_id: Option<String>,
    hint: Option<String>,
    after: Option<String>,
    state: Option<String>,
    /// A person has pressed the button of our own page.
    confirmed: bool,
}

impl Asked {
    fn of<'f>(value: impl Fn(&str) -> Option<&'f str>) -> Self {
        let own = |name| value(name).map(str::to_owned);
        Self {
            client_id: own("client_id"),
            hint: own("id_token_hint"),
            after: own("post_logout_redirect_uri"),
            state: own("state"),
            confirmed: value("confirmed").is_some(),
        }
    }
}

/// Whose session an id_token is of, and which.
struct Hinted<'a> {
    tenant: &'a Tenant,
    user: UserId,
    session: Option<Handle>,
}

impl Hinted<'_> {
    fn is_of(&self, session: &Ended) -> bool {
        *self.tenant == session.tenant
            && self.user == session.user
            && self.session.is_none_or(|named| named == session.handle)
    }
}

/// Ends a session at once where the request comes from somebody who has an id_token of it, for no stranger's link has
/// that. About any other that the browser shows a person is asked.
pub(crate) async fn logout<B>(cx: &mut RequestContext<'_>, tokens: &Tokens, body: B) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let asked = match asked(cx, body).await {
        Ok(asked) => asked,
        Err(problem) => {
            cx.charge(None)?;
            return page::shown(cx, problem);
        }
    };
    let hint = match &asked.hint {
        Some(hint) => tokens.hint(hint).await?,
        None => None,
    };
    let client_id = asked.client_id.clone().or(hint.as_ref().map(|hint| hint.aud.clone()));
    let client = cx.charged_client(client_id.as_deref()).await?;
    if hint.as_ref().is_some_and(|hint| asked.client_id.as_ref().is_some_and(|client_id| *client_id != hint.aud)) {
        return page::shown(cx, Problem::invalid("id_token_hint is of another client than client_id"));
    }
    let after = match after(&asked, client.as_deref()) {
        Ok(after) => after,
        Err(problem) => return page::shown(cx, problem),
    };
    cx.refuse_prefetch()?;
    // who only looks ends nothing
    let hinted = hint.zip(client.as_ref()).filter(|_| cx.parts.method != Method::HEAD).and_then(|(hint, client)| {
        let session = match hint.sid {
            Some(sid) => Some(Handle::parse(sid)?),
            None => None,
        };
        Some(Hinted { tenant: client.tenant(), user: UserId::parse(hint.sub).ok()?, session })
    });
    // whether or not it is shown: a client may post the hint, which then comes alone
    if let Some(Hinted { tenant, user, session: Some(handle) }) = &hinted {
        let (tenant, user) = ((*tenant).clone(), user.clone());
        sign_out::end(cx.core, &Ended { tenant, user, handle: *handle, digest: None }).await?;
    }
    let shown = shown(cx).await?;
    let own_page = asked.confirmed && cx.parts.method == Method::POST && cx.is_of_own_page();
    let is_hinted = |session: &Ended| hinted.as_ref().is_some_and(|hinted| hinted.is_of(session));
    if !own_page && !shown.iter().all(is_hinted) {
        return Ok(logout_pages::ask(&[
            ("client_id", client_id.as_deref()),
            ("post_logout_redirect_uri", asked.after.as_deref()),
            ("state", asked.state.as_deref()),
        ]));
    }
    for session in &shown {
        sign_out::end(cx.core, session).await?;
    }
    let sessions = &cx.core.sessions;
    let mut response = match after {
        // a form may lead nowhere else, so a person goes on by a link
        Some(location) if asked.confirmed => logout_pages::done(Some(&location)),
        Some(location) => answer::redirect(&location).ok_or_else(|| Problem::invalid("state can't be sent back"))?,
        None => logout_pages::done(None),
    };
    // a browser keeps its cookie from other sites: what one of them sends must not take it away unseen
    if sessions.presents(&cx.parts.headers) || cx.is_of_own_page() {
        sessions.removal().append_to(response.headers_mut());
    }
    Ok(response)
}

/// The sessions that a browser shows: the one that lives; where that is not one, all that it shows, be it that they were
/// idle for too long, for their tokens may live, and somebody may have pressed "Log out".
async fn shown(cx: &RequestContext<'_>) -> Result<Vec<Ended>, StoreError> {
    let (core, headers) = (cx.core, &cx.parts.headers);
    if let Some(session) = core.sessions.presented(headers, None).await? {
        return Ok(vec![Ended::of(&session)]);
    }
    let mut idle = Vec::new();
    for digest in core.sessions.shown(headers) {
        if let Some(Evidence { tenant, user, .. }) = core.evidences.of(&digest).await? {
            idle.push(Ended { tenant, user, handle: Handle::of(&digest), digest: Some(digest) });
        }
    }
    Ok(idle)
}

async fn asked<B>(cx: &RequestContext<'_>, body: B) -> Result<Asked, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    if cx.parts.method == Method::POST {
        let body = fields::form(cx.parts, body).await?;
        let posted = Posted::of(&body);
        posted.check()?;
        return Ok(Asked::of(|name| posted.value(name)));
    }
    let query = cx.parts.uri.query().unwrap_or_default();
    let form = Form::parse(query.as_bytes()).map_err(|error| Problem::invalid(error.detail()))?;
    if form.has_duplicates() {
        return Err(Problem::invalid("a parameter is given twice"));
    }
    let mut asked = Asked::of(|name| form.value(name));
    asked.confirmed = false;
    Ok(asked)
}

/// Where the browser goes afterwards: only where the client has said, and only if it is known which client it is.
fn after(asked: &Asked, client: Option<&Client>) -> Result<Option<String>, Problem> {
    let Some(uri) = &asked.after else { return Ok(None) };
    let Some(client) = client else {
        return Err(Problem::invalid("post_logout_redirect_uri needs client_id or id_token_hint"));
    };
    let unknown = Problem::invalid("post_logout_redirect_uri is none that the client has registered");
    let requested = client.after_logout_to(uri).ok_or(unknown)?;
    match &asked.state {
        Some(state) if state.len() > LONGEST_STATE => Err(Problem::invalid("state is longer than 4096 bytes")),
        Some(state) => Ok(Some(requested.answer(&[("state", state)]))),
        None => Ok(Some(requested.answer(&[]))),
    }
}
