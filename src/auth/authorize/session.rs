//! The signed-in session that a completed login begins or updates.

use std::time::Duration;

use super::completed::CompletedLogin;
use crate::{
    auth::{context::RequestContext, factors::signed_in::SignedIn, http::user_agent},
    http::cookie::SetCookie,
    login::Login,
    policy::{Method, MethodSet},
    session::{Authentication, NewSession, Renewal, Session},
    store::StoreError,
    util::public_id::PublicId,
};

/// A remembered session after a login of several steps lives at most this long.
const LONGEST_REMEMBERED_STEPS: Duration = Duration::from_secs(24 * 3600);

/// How often a sign-in tries again because another tab changes its session.
const SIGN_IN_ROUNDS: usize = 4;

/// The session of a login, and the cookies to set for it.
pub(crate) struct BegunSession {
    pub(crate) sid: PublicId,
    pub(crate) cookies: Vec<SetCookie>,
}

/// The session that a login will begin or update. It is chosen before the login is spent, and stored with it.
pub(crate) struct TargetSession {
    pub(crate) sid: PublicId,
    /// The browser's session of the same user, if it has one.
    pub(super) current: Option<Session>,
}

impl TargetSession {
    pub(crate) async fn of_completed_login(
        cx: &RequestContext<'_>,
        completed: &CompletedLogin<'_>,
        who: &Authentication,
    ) -> Result<Self, StoreError> {
        let presented = cx.core.sessions.presented(&cx.parts.headers, &completed.login().tenant).await?;
        let current = presented.filter(|session| *session.user() == who.user);
        let sid = current.as_ref().map_or_else(|| completed.new_session(), Session::sid);
        Ok(Self { sid, current })
    }
}

/// Begins the session of a login, or updates the browser's session of the same user. Ends the sessions that it replaces.
///
/// A login that proved nothing new leaves its session as it is. Returns `None` if the session that the login builds on,
/// or the user, was ended meanwhile.
pub(crate) async fn begin_session(
    cx: &RequestContext<'_>,
    completed: &CompletedLogin<'_>,
    who: &Authentication,
    signed_in: Option<&SignedIn>,
    target: TargetSession,
) -> Result<Option<BegunSession>, StoreError> {
    let (sessions, login) = (&cx.core.sessions, completed.login());
    let builds_on = signed_in.filter(|it| login.session == Some(it.session.sid()));
    if let Some(signed_in) = builds_on.filter(|_| login.is_all_carried()) {
        return Ok(Some(BegunSession { sid: signed_in.session.sid(), cookies: Vec::new() }));
    }
    let begun = match builds_on {
        Some(signed_in) => {
            let more = with_proofs_of(who, &signed_in.session);
            let stepped_up = described(cx, login, more);
            sessions.renew(&signed_in.session, Renewal::StepUp(stepped_up)).await?
        }
        None if login.session.is_some() => None,
        None => match cx.core.counting_in_any_generation(who, cx.core.keyed().await?).await? {
            Some(_) => sign_in(cx, completed, who, target).await?,
            // an outdated login must not end the session that the browser has
            None => None,
        },
    };
    let Some((cookie, session)) = begun else { return Ok(None) };
    if !completed.confirm(cx, &session).await? {
        return Ok(None);
    }
    let mut cookies = vec![cookie];
    cookies.extend(sessions.end_replaced(&cx.parts.headers, &session).await?);
    Ok(Some(BegunSession { sid: session.sid(), cookies }))
}

/// Begins a session with new proofs only. It keeps its id if the same user is signed in already, in this tab or another.
async fn sign_in(
    cx: &RequestContext<'_>,
    completed: &CompletedLogin<'_>,
    who: &Authentication,
    target: TargetSession,
) -> Result<Option<(SetCookie, Session)>, StoreError> {
    let (sessions, tenant) = (&cx.core.sessions, &completed.login().tenant);
    let new = described(cx, completed.login(), who.clone());
    let own = target.sid;
    let TargetSession { mut sid, mut current } = target;
    for other in completed.sessions_of_other_tabs(cx).await? {
        let live = sessions.get(&other.sid).await?;
        if other.user != who.user {
            if other.came_first || live.is_some() {
                sessions.end_or_prevent(tenant, &other.user, &other.sid).await?;
            }
        } else if current.is_none() && (other.came_first || live.is_some()) {
            (sid, current) = (other.sid, live);
        }
    }
    for _ in 0..SIGN_IN_ROUNDS {
        let begun = match &current {
            Some(session) => sessions.renew(session, Renewal::FullSignIn(new.clone())).await?,
            None => sessions.create_as(sid, new.clone()).await?,
        };
        if begun.is_some() {
            if sid != own {
                completed.note_joined_session(cx, &sid).await?;
            }
            return Ok(begun);
        }
        // another tab has begun, renewed or ended it
        current = sessions.get(&sid).await?.filter(|session| *session.user() == who.user);
        if current.is_none() {
            if sid == own {
                // a sign-out has ended or prevented it
                return Ok(None);
            }
            sid = own;
        }
    }
    Ok(None)
}

pub(super) fn described(cx: &RequestContext<'_>, login: &Login, who: Authentication) -> NewSession {
    let methods: MethodSet = who.methods().filter_map(Method::from_name).collect();
    let auth_time = who.auth_time();
    let new = NewSession::authenticated(who).client(&login.binding.client_id);
    let new = new.device(user_agent::describe_device(&cx.parts.headers));
    // methods are few and have short names
    let new = new.clone().amr(methods.amr()).unwrap_or(new);
    let new = match auth_time {
        Some(time) => new.auth_time(time),
        None => new,
    };
    let longest = if login.plan.policy_steps() > 1 { LONGEST_REMEMBERED_STEPS } else { Duration::MAX };
    let remember = match login.session {
        None => cx.core.remember.filter(|_| login.wanted.remember).map(|lifetime| lifetime.min(longest)),
        // a step-up to several steps shortens a session that was remembered for longer
        Some(_) => Some(longest),
    };
    match remember.map(|lifetime| new.clone().remember(lifetime)) {
        Some(Ok(remembered)) => remembered,
        _ => new,
    }
}

/// Adds the proofs of the session by other methods.
fn with_proofs_of(who: &Authentication, session: &Session) -> Authentication {
    let more = session.proofs().iter().filter(|proof| who.methods().all(|own| *own != *proof.method));
    let mut all = Authentication { proofs: who.proofs.iter().chain(more).cloned().collect(), ..who.clone() };
    all.proofs.sort_by_key(|proof| proof.at);
    all.acr = all.acr.or_else(|| session.acr().map(Box::from));
    all
}
