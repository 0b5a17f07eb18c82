//! Links an account at another identity provider to the account of the user who calls.
//!
//! The user leaves the account page for the provider, and comes back to the callback that logins use. The parameter `state`
//! tells the two apart. A pending row binds it to the session, to the provider, and to one return within five minutes.

use http::{Method as HttpMethod, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    account::new_link,
    round_trip::{LINK, SsoState, callback_query, provider_url, returned_user},
    row::SsoLink,
};
use crate::{
    auth::{
        context::{RequestContext, incoming::IncomingRequest, stages::SiteCall},
        factors::{
            credentials::table::{Added, is_added},
            enrolment::{call::AccountCall, pending::PendingEnrolments},
        },
        http::{
            answer,
            problem::{EndpointResult, Problem},
            route::{ACCOUNT_PAGE, provider_of},
        },
        query::Query,
    },
    delivery::NoticeKind,
    event::EventKind,
    policy::Method,
    session::Session,
    sso::{ProviderUser, SsoConnection, SsoError},
    tenant::Tenant,
    util::{
        clock::UnixTime,
        fmt::named_enum,
        secret::{Secret, SecretDigest},
    },
};

/// The table of links whose users are at a provider.
const PENDING: &str = "pending_links";

/// A user who has left for a provider to link an account there.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PendingLink {
    provider: String,
    /// The digest of the secret in `state`.
    state: [u8; 32],
    /// When the user left, in nanoseconds.
    left_at: u64,
}

named_enum! {
    /// How a user came back, as the account page learns it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum LinkOutcome {
        Linked = "ok",
        /// It was linked before.
        Known = "known",
        /// Another user has linked it.
        Taken = "taken",
        TooMany = "too_many",
        Denied = "denied",
        Failed = "failed",
        Unavailable = "unavailable",
        /// The provider has not asked its user again.
        NotFresh = "stale",
        /// No link is pending in this session, or not for this answer.
        Expired = "expired",
    }

    fn as_str;
}

/// Returns the URL at which the user signs in to a provider to link that account. It replaces an earlier one of this session.
///
/// The provider is asked to sign the user in anew: somebody else could have signed this browser in there.
pub(crate) async fn start_provider_link(call: &AccountCall<'_>) -> EndpointResult {
    let core = call.cx.core;
    let name = call.fields.provider.as_deref().ok_or(Problem::invalid("provider is missing"))?;
    let found = core.factors.sso.find(call.tenant(), name);
    let (name, connection) = found.ok_or(Problem::invalid("provider is unknown"))?;
    call.require_fresh()?;
    let (keyed, secret) = (core.keyed().await?, Secret::generate());
    let (state, left_at) = (*secret.digest().as_bytes(), core.logins.now().as_nanos());
    let parameter = SsoState { login: LINK.to_owned(), secret };
    let redirect_url = provider_url(core, (name, connection), (&parameter, keyed), Some(0)).await?;
    let pending = PendingLink { provider: name.to_owned(), state, left_at };
    PendingEnrolments::of_table(core, PENDING).start_enrolment(&call.session().sid(), &pending).await?;
    Ok(answer::json(StatusCode::OK, &json!({ "redirect_url": redirect_url })))
}

/// Links the account of a user who comes back from a provider, and returns to the account page.
pub(crate) async fn finish_provider_link(request: &mut IncomingRequest<'_>) -> EndpointResult {
    let query = callback_query(request.parts);
    let SiteCall { cx, client, .. } = request.of_this_site().await.map_err(Problem::into_error_page)?;
    let outcome = match query {
        Ok(query) => redeem_pending_link(&cx, &query, client.tenant()).await,
        Err(problem) => Err(problem),
    };
    let outcome = outcome.map_err(Problem::into_error_page)?;
    let location = format!("{}{ACCOUNT_PAGE}#link={}", cx.core.issuer.path(), outcome.as_str());
    answer::see_other(&location).ok_or_else(Problem::unavailable)
}

async fn redeem_pending_link(
    cx: &RequestContext<'_>,
    query: &Query<'_>,
    tenant: &Tenant,
) -> Result<LinkOutcome, Problem> {
    cx.refuse_prefetch()?;
    if query.form.has_duplicates() {
        return Err(Problem::invalid("a parameter appears more than once"));
    }
    let session = cx.core.sessions.presented(&cx.parts.headers, tenant).await?;
    let state = query.value("state").and_then(SsoState::parse);
    // HEAD must not use up the row
    let (Some(session), Some(state), &HttpMethod::GET) = (session, state, &cx.parts.method) else {
        return Ok(LinkOutcome::Expired);
    };
    let name = provider_of(cx.parts.uri.path(), cx.core.issuer.path());
    let provider = name.and_then(|name| cx.core.factors.sso.find(tenant, name));
    let pending = match provider {
        Some((name, _)) => take_pending_link(cx, &session, (name, &state)).await?,
        None => None,
    };
    let Some((provider, pending)) = provider.zip(pending) else {
        cx.core.journal.tally(EventKind::SequenceFailed, Some(tenant), Some(Method::Sso.as_str()));
        return Ok(LinkOutcome::Expired);
    };
    let keyed = cx.core.keyed().await?;
    let user = match returned_user(cx, provider, (&state, keyed), query).await {
        Ok(user) => user,
        Err(SsoError::Denied) => return Ok(LinkOutcome::Denied),
        Err(SsoError::Unavailable(_)) => return Ok(LinkOutcome::Unavailable),
        Err(SsoError::Failed(_)) => return Ok(LinkOutcome::Failed),
    };
    link_provider_user(cx, (tenant, &session), provider, (&user, UnixTime::from_nanos(pending.left_at))).await
}

/// Returns the pending link of this session if it waits for this provider and this state. Only one call gets it.
async fn take_pending_link(
    cx: &RequestContext<'_>,
    session: &Session,
    (provider, state): (&str, &SsoState),
) -> Result<Option<PendingLink>, Problem> {
    let rows = PendingEnrolments::<PendingLink>::of_table(cx.core, PENDING);
    let Some(pending) = rows.find(&session.sid()).await? else { return Ok(None) };
    let is_awaited =
        pending.value.provider == provider && SecretDigest::from_bytes(pending.value.state).matches(&state.digest());
    Ok((is_awaited && rows.take_found(&session.sid(), &pending).await?).then_some(pending.value))
}

/// Links a user of a provider to the user of this session. The provider may have taken its time, so the session and its
/// account are read only now, and its proofs must have been fresh when the user left.
async fn link_provider_user(
    cx: &RequestContext<'_>,
    (tenant, session): (&Tenant, &Session),
    (name, connection): (&str, &SsoConnection),
    (user, left_at): (&ProviderUser, UnixTime),
) -> Result<LinkOutcome, Problem> {
    let (core, now) = (cx.core, cx.core.logins.now());
    if connection.auth_time(user, Some(left_at), now).is_some_and(|time| time < left_at) {
        crate::util::trace::warning!("the provider {name} has not signed in its user anew, so nothing is linked");
        return Ok(LinkOutcome::NotFresh);
    }
    let Some(call) = AccountCall::find_caller(cx, tenant, left_at).await? else { return Ok(LinkOutcome::Expired) };
    if call.session().sid() != session.sid() || call.require_fresh().is_err() {
        return Ok(LinkOutcome::Expired);
    }
    let link = new_link(name, user, now, call.strength());
    // the user must be told of a link
    cx.continue_without_caller();
    let added = core.credentials.add_link(call.owner(), &link, true).await;
    call.announce_if_stored(is_added(&added), NoticeKind::LinkAdded).await;
    match added? {
        Added::Done => {}
        Added::Refused | Added::Outdated => return Ok(LinkOutcome::TooMany),
        Added::Taken => return owned(&call, &link).await,
    }
    call.keep(core.credentials.discard_link(call.owner(), &link)).await?;
    Ok(LinkOutcome::Linked)
}

/// Returns whether the calling user has this link already, or another user does.
async fn owned(call: &AccountCall<'_>, link: &SsoLink) -> Result<LinkOutcome, Problem> {
    let (tenant, own) = call.owner();
    let owner = call.cx.core.credentials.by_id(tenant, link.link_id()).await?;
    if owner.is_some_and(|(owner, _)| owner == *own) {
        return Ok(LinkOutcome::Known);
    }
    crate::util::trace::warning!("a user of the provider {} is linked to another user already", link.provider);
    Ok(LinkOutcome::Taken)
}
