//! The signed-in session that a completed login begins or updates.

use std::time::Duration;

use crate::{
    auth::{authorize::signed_in::SignedIn, context::RequestContext},
    http::cookie::SetCookie,
    login::Login,
    policy::{Method, MethodSet},
    session::{Authentication, NewSession, Renewal, Session},
    store::StoreError,
    user::Account,
    util::handle::Handle,
};

/// A remembered session after a login of several steps lives at most this long.
const LONGEST_REMEMBERED_STEPS: Duration = Duration::from_secs(24 * 3600);

/// The session of a login, and the cookies to set for it.
pub(crate) struct BegunSession {
    pub(crate) sid: Handle,
    pub(crate) cookies: Vec<SetCookie>,
}

/// Returns the account if it may still log in and each proof still counts for it.
pub(crate) async fn counting_account(
    cx: &RequestContext<'_>,
    who: &Authentication,
) -> Result<Option<Account>, StoreError> {
    let current = cx.core.accounts.current(who, cx.core.keyed().await?).await?;
    Ok(current.filter(|current| current.proofs.len() == who.proofs.len()).map(|current| current.account))
}

/// Begins the session of a login, or updates the browser's session of the same user. Ends the session that it replaces.
///
/// A login that proved nothing new leaves its session as it is. Returns `None` if the session that the login builds on,
/// or the user, was ended meanwhile.
pub(crate) async fn begin(
    cx: &RequestContext<'_>,
    login: &Login,
    who: &Authentication,
    signed_in: Option<&SignedIn>,
) -> Result<Option<BegunSession>, StoreError> {
    let sessions = &cx.core.sessions;
    let builds_on = signed_in.filter(|it| login.carried > 0 && login.session == Some(it.session.sid()));
    if let Some(signed_in) = builds_on.filter(|_| login.is_all_carried()) {
        return Ok(Some(BegunSession { sid: signed_in.session.sid(), cookies: Vec::new() }));
    }
    let begun = match builds_on {
        Some(signed_in) => {
            let more = with_proofs_of(who, &signed_in.session);
            sessions.renew(&signed_in.session, Renewal::StepUp(described(cx, login, more))).await?
        }
        None if login.carried > 0 => None,
        None => sign_in(cx, login, who).await?,
    };
    let Some((cookie, session)) = begun else { return Ok(None) };
    let mut cookies = vec![cookie];
    cookies.extend(sessions.end_replaced(&cx.parts.headers, &session).await?);
    Ok(Some(BegunSession { sid: session.sid(), cookies }))
}

/// Begins a session with new proofs only. It keeps its id if the same user is signed in already.
async fn sign_in(
    cx: &RequestContext<'_>,
    login: &Login,
    who: &Authentication,
) -> Result<Option<(SetCookie, Session)>, StoreError> {
    let sessions = &cx.core.sessions;
    let new = described(cx, login, who.clone());
    let current = sessions.presented(&cx.parts.headers, &login.tenant).await?;
    if let Some(session) = current.filter(|session| *session.user() == who.user)
        && let Some(renewed) = sessions.renew(&session, Renewal::FullSignIn(new.clone())).await?
    {
        return Ok(Some(renewed));
    }
    sessions.create_unless_ended(new).await
}

fn described(cx: &RequestContext<'_>, login: &Login, who: Authentication) -> NewSession {
    let methods: MethodSet = who.methods().filter_map(Method::from_name).collect();
    let auth_time = who.auth_time();
    let new = NewSession::authenticated(who).client(&login.binding.client_id);
    // methods are few and have short names
    let new = new.clone().amr(methods.amr()).unwrap_or(new);
    let new = match auth_time {
        Some(time) => new.auth_time(time),
        None => new,
    };
    let remember = cx
        .core
        .remember
        .filter(|_| login.wanted.remember)
        .map(|lifetime| if login.required() > 1 { lifetime.min(LONGEST_REMEMBERED_STEPS) } else { lifetime });
    match remember.map(|lifetime| new.clone().remember(lifetime)) {
        Some(Ok(remembered)) => remembered,
        _ => new,
    }
}

/// Adds the proofs of the session by other methods.
fn with_proofs_of(who: &Authentication, session: &Session) -> Authentication {
    let more = session.authentication().proofs.iter().filter(|proof| who.methods().all(|own| *own != *proof.method));
    let mut all = Authentication { proofs: who.proofs.iter().chain(more).cloned().collect(), ..who.clone() };
    all.proofs.sort_by_key(|proof| proof.at);
    all.acr = all.acr.or_else(|| session.acr().map(Box::from));
    all
}
