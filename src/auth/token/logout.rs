//! `/logout` (OpenID Connect RP-Initiated Logout): the end of the signed-in session, and of what came of it.

use bytes::Bytes;
use http::{Method, Response};

use super::{client::Posted, pages};
use crate::{
    auth::{answer, fields, page, problem::Problem, query::LONGEST_STATE, visit::Visit},
    body::Body,
    client::Client,
    event::EventKind,
    form::Form,
    handle::Handle,
    session::{Session, UserId},
    store::StoreError,
    tenant::Tenant,
    tokens::Tokens,
};

/// What is asked for.
#[derive(Default)]
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
    fn is_of(&self, session: &Session) -> bool {
        self.tenant == session.tenant()
            && self.user == *session.user()
            && self.session.is_none_or(|named| named == session.handle())
    }
}

/// Ends a session at once where the request comes from somebody who has an id_token of it, for no stranger's link has
/// that. About any other that the browser shows a person is asked.
pub(super) async fn logout<B>(visit: &mut Visit<'_>, tokens: &Tokens, body: B) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let asked = match asked(visit, body).await {
        Ok(asked) => asked,
        Err(problem) => {
            visit.charge(None)?;
            return page::shown(visit, problem);
        }
    };
    let hint = match &asked.hint {
        Some(hint) => tokens.hint(hint).await?,
        None => None,
    };
    let client_id = asked.client_id.clone().or(hint.as_ref().map(|hint| hint.aud.clone()));
    let client = visit.charged_client(client_id.as_deref()).await?;
    // a hint for another client is none
    let hint = hint.filter(|hint| client.as_ref().is_some_and(|client| client.id() == hint.aud));
    let after = match after(&asked, client.as_deref()) {
        Ok(after) => after,
        Err(problem) => return page::shown(visit, problem),
    };
    visit.refuse_ahead()?;
    // who only looks ends nothing
    let hinted = hint.zip(client.as_ref()).filter(|_| visit.parts.method != Method::HEAD).and_then(|(hint, client)| {
        let session = match hint.sid {
            Some(sid) => Some(Handle::parse(sid)?),
            None => None,
        };
        Some(Hinted { tenant: client.tenant(), user: UserId::parse(hint.sub).ok()?, session })
    });
    let sessions = &visit.inner.running().sessions;
    let session = sessions.presented(&visit.parts.headers, None).await?;
    let named = hinted.as_ref().and_then(|hinted| hinted.session);
    // whether or not it is shown: a client may post the hint, which then comes alone; and tokens outlive a session that was
    // idle for long
    if let (Some(hinted), Some(named)) = (&hinted, &named) {
        end(visit, tokens, (hinted.tenant, &hinted.user), named).await?;
    }
    if let Some(session) = &session {
        let own_page = asked.confirmed && visit.parts.method == Method::POST && visit.is_of_own_page();
        if !own_page && !hinted.is_some_and(|hinted| hinted.is_of(session)) {
            return Ok(pages::ask(&[
                ("client_id", client_id.as_deref()),
                ("post_logout_redirect_uri", asked.after.as_deref()),
                ("state", asked.state.as_deref()),
            ]));
        }
        if named != Some(session.handle()) {
            end(visit, tokens, (session.tenant(), session.user()), &session.handle()).await?;
        }
    }
    let mut response = match after {
        // a form may lead nowhere else, so a person goes on by a link
        Some(location) if asked.confirmed => pages::done(Some(&location)),
        Some(location) => answer::redirect(&location).ok_or_else(|| Problem::invalid("state can't be sent back"))?,
        None => pages::done(None),
    };
    // a browser keeps its cookie from other sites: what one of them sends must not take it away unseen
    if sessions.presents(&visit.parts.headers) || visit.is_of_own_page() {
        sessions.removal().append_to(response.headers_mut());
    }
    Ok(response)
}

/// Ends a session, if it still lives, and what came of it.
async fn end(
    visit: &Visit<'_>,
    tokens: &Tokens,
    (tenant, user): (&Tenant, &UserId),
    session: &Handle,
) -> Result<(), StoreError> {
    let running = visit.inner.running();
    tokens.revoke_session(session).await?;
    // nobody can show the sessions any more that it took the place of
    if let Some(digest) = running.sessions.listed(tenant, user, session).await?
        && let Some(evidence) = running.evidences.of(&digest).await?
    {
        for replaced in &evidence.replaced {
            tokens.revoke_session(replaced).await?;
        }
    }
    // last, so that what fails before can be asked for again
    running.sessions.revoke_one(tenant, user, session).await?;
    visit.inner.journal().tally(EventKind::TokenRevoked, Some(tenant), None);
    Ok(())
}

async fn asked<B>(visit: &Visit<'_>, body: B) -> Result<Asked, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    if visit.parts.method == Method::POST {
        let body = fields::form(visit.parts, body).await?;
        let posted = Posted::of(&body);
        posted.check()?;
        return Ok(Asked::of(|name| posted.value(name)));
    }
    let query = visit.parts.uri.query().unwrap_or_default();
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
