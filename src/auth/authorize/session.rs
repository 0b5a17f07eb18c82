//! The signed-in session that a completed login begins or updates.

use std::time::Duration;

use super::completed::CompletedLogin;
use crate::{
    auth::{
        context::RequestContext,
        factors::signed_in::SignedIn,
        http::{problem::Problem, user_agent},
        state::{accounts::GenerationOf, codes::AuthorizationCode, pushed::Pushed},
    },
    http::cookie::SetCookie,
    login::Login,
    policy::MethodSet,
    session::{Authentication, NewSession, Opening, Proof, Renewal, Session, Sessions},
    store::{StoreError, StoreErrorKind, table::RowOperation},
    util::{
        public_id::PublicId,
        secret::{Secret, SecretDigest},
    },
};

/// A remembered session after a login of several steps lives at most this long.
const LONGEST_REMEMBERED_STEPS: Duration = Duration::from_secs(24 * 3600);

/// How often a sign-in tries again because others change the session or the list of the user.
const ROUNDS: usize = 64;

/// The code that a login is spent for.
pub(crate) struct NewCode<'a> {
    pub(crate) digest: SecretDigest,
    /// Gets the id of the session.
    pub(crate) row: &'a mut AuthorizationCode,
    /// The pushed request that it uses up.
    pub(crate) pushed: Option<&'a Secret>,
}

pub(crate) fn already_answered() -> Problem {
    Problem::invalid("the request was already answered")
}

/// Returns the operation that uses up a pushed request.
pub(crate) async fn use_up<'x>(
    cx: &'x RequestContext<'_>,
    pushed: Option<&Secret>,
) -> Result<Option<RowOperation<'x, Pushed>>, Problem> {
    let Some(pushed) = pushed else { return Ok(None) };
    cx.core.pushed.prepare_use_up(pushed).await?.ok_or_else(already_answered).map(Some)
}

/// Spends a login in one call of the store: begins its session or updates the browser's session of the same user, and issues its
/// code if there is one. Then ends the sessions that it replaces. A login that proved nothing new leaves its session as it is.
///
/// Returns the cookies to set, or `None` if the login was spent before, if a sign-out came first, or if the account may not log in.
///
/// The login is spent before the session and the code, so that a failure between them costs a login and never yields two
/// codes. A store that executes all of them at once, or none, never spends a login in vain. The generation is read last, and the
/// account after it.
pub(crate) async fn begin_session(
    cx: &RequestContext<'_>,
    completed: &mut CompletedLogin<'_>,
    who: &Authentication,
    signed_in: Option<&SignedIn>,
    mut code: Option<NewCode<'_>>,
) -> Result<Option<Vec<SetCookie>>, Problem> {
    let (core, sessions) = (cx.core, &cx.core.sessions);
    let Some(mut target) = TargetSession::of_completed_login(cx, completed, who, signed_in).await? else {
        return Ok(None);
    };
    let mut pushed = use_up(cx, code.as_ref().and_then(|code| code.pushed)).await?;
    let mut opening = None;
    for _ in 0..ROUNDS {
        if opening.is_none() && !target.is_kept {
            opening = target.opening(cx, completed.login(), who).await?;
            if opening.is_none() {
                if target.own.is_none() || !target.choose_again(sessions, who).await? {
                    return Ok(None);
                }
                continue;
            }
        }
        let mut batch = core.accounts.batch(&who.tenant, Some(&who.user))?;
        let list = match &mut opening {
            Some(opening) => sessions.add_list(opening, &mut batch).await?,
            None => None,
        };
        let mut spend = None;
        if target.spent_for.is_none() {
            let call = completed.prepare_spend(cx, &target.sid)?;
            let (Ok(_), Some(write)) = (&call.answer, &call.write) else { return Ok(None) };
            spend = Some((batch.add(write.clone()), call));
        }
        let used_up = pushed.clone().map(|write| batch.add(write));
        let row = opening.as_ref().map(|opening| sessions.add_row(opening, &mut batch)).transpose()?;
        let issued = match &mut code {
            Some(code) => {
                code.row.session = target.sid;
                Some(batch.add(core.codes.prepare_code_insert(&code.digest, code.row)?))
            }
            None => None,
        };
        let Some(outcomes) = batch.run().await?.since(who.generation) else {
            if let Some(opening) = opening {
                sessions.revoke(opening.session()).await?;
            }
            return Ok(None);
        };
        if let Some(opening) = &mut opening
            && !opening.note_listed(list.as_ref(), &outcomes)?
        {
            continue;
        }
        if let Some((slot, call)) = spend {
            match outcomes.version(&slot) {
                Some(version) => completed.spent(call, version),
                None if completed.changed(outcomes.row(&slot)?) => continue,
                None => return Ok(None),
            }
            target.spent_for = Some(target.sid);
        }
        if used_up.is_some_and(|used_up| outcomes.version(&used_up).is_none()) {
            return Err(already_answered());
        }
        pushed = None;
        if row.is_some_and(|row| outcomes.version(&row).is_none()) {
            opening = None;
            if !target.choose_again(sessions, who).await? {
                return Ok(None);
            }
            continue;
        }
        if issued.is_some_and(|issued| outcomes.version(&issued).is_none()) {
            // the code is new, so this cannot happen
            return Err(StoreError::from(StoreErrorKind::Busy).into());
        }
        if target.spent_for != Some(target.sid) {
            completed.note_joined_session(cx, &target.sid).await?;
        }
        let Some(opening) = opening else { return Ok(Some(Vec::new())) };
        let (cookie, session) = sessions.finish_opening(opening);
        if !completed.confirm(cx, &session).await? {
            return Ok(None);
        }
        let mut cookies = vec![cookie];
        cookies.extend(sessions.end_replaced(&cx.parts.headers, &session).await?);
        return Ok(Some(cookies));
    }
    Err(StoreError::from(StoreErrorKind::Busy).into())
}

/// The session that a login begins or updates.
struct TargetSession {
    sid: PublicId,
    /// The browser's session of the same user, if it has one.
    current: Option<Session>,
    /// The id of a session that only this login begins. `None` if it continues a session.
    own: Option<PublicId>,
    /// The session that the login was spent for.
    spent_for: Option<PublicId>,
    /// Whether the session stays as it is.
    is_kept: bool,
}

impl TargetSession {
    /// Chooses the session. Spends the login first if another tab can finish a login at the same time: the later one sees the
    /// other and joins its session. Returns `None` if the login cannot be spent, or must not.
    async fn of_completed_login(
        cx: &RequestContext<'_>,
        completed: &mut CompletedLogin<'_>,
        who: &Authentication,
        signed_in: Option<&SignedIn>,
    ) -> Result<Option<Self>, StoreError> {
        let (core, login) = (cx.core, completed.login());
        if let Some(continued) = login.session {
            let current = signed_in.map(|it| &it.session).filter(|session| session.sid() == continued).cloned();
            let is_kept = login.is_all_carried();
            let target = Self { sid: continued, current, own: None, spent_for: None, is_kept };
            return Ok(Some(target).filter(|target| target.current.is_some()));
        }
        let presented = core.sessions.presented(&cx.parts.headers, &login.tenant).await?;
        let current = presented.filter(|session| *session.user() == who.user);
        let own = completed.new_session();
        let sid = current.as_ref().map_or(own, Session::sid);
        let mut target = Self { sid, current, own: Some(own), spent_for: None, is_kept: false };
        if target.current.is_none() && completed.is_alone() {
            return Ok(Some(target));
        }
        // an outdated login must not end the session that the browser has
        if core.counting(who, GenerationOf::Account, core.keyed().await?).await?.is_none() {
            return Ok(None);
        }
        if !completed.is_alone() {
            if !completed.spend(cx, &sid).await? {
                return Ok(None);
            }
            target.spent_for = Some(sid);
            target.join_other_tabs(cx, completed, who).await?;
        }
        Ok(Some(target))
    }

    /// Joins the session that another tab has begun for the same user, and ends those of other users.
    async fn join_other_tabs(
        &mut self,
        cx: &RequestContext<'_>,
        completed: &CompletedLogin<'_>,
        who: &Authentication,
    ) -> Result<(), StoreError> {
        let (sessions, tenant) = (&cx.core.sessions, &completed.login().tenant);
        for other in completed.sessions_of_other_tabs(cx).await? {
            let live = sessions.get(&other.sid).await?;
            if other.user != who.user {
                if other.came_first || live.is_some() {
                    sessions.end_or_prevent(tenant, &other.user, &other.sid).await?;
                }
            } else if self.current.is_none() && (other.came_first || live.is_some()) {
                (self.sid, self.current) = (other.sid, live);
            }
        }
        Ok(())
    }

    /// Prepares the session. Returns `None` if the current one has ended or got another secret.
    async fn opening(
        &self,
        cx: &RequestContext<'_>,
        login: &Login,
        who: &Authentication,
    ) -> Result<Option<Opening>, StoreError> {
        let sessions = &cx.core.sessions;
        match (&self.current, self.own) {
            (Some(session), None) => {
                let stepped_up = described(cx, login, with_proofs_of(who, &session.authentication()));
                sessions.renewal(session, Renewal::StepUp(stepped_up)).await
            }
            (Some(session), Some(_)) => {
                sessions.renewal(session, Renewal::FullSignIn(described(cx, login, who.clone()))).await
            }
            (None, _) => sessions.opening(self.sid, described(cx, login, who.clone())).await.map(Some),
        }
    }

    /// Reads the session again after another tab has begun, renewed or ended it. Returns `false` if nothing is left to begin.
    async fn choose_again(&mut self, sessions: &Sessions, who: &Authentication) -> Result<bool, StoreError> {
        // a session that the login continues shows by its secret whether it is still the same
        let Some(own) = self.own else { return Ok(true) };
        self.current = sessions.get(&self.sid).await?.filter(|session| *session.user() == who.user);
        if self.current.is_none() {
            if self.sid == own {
                // a sign-out has ended or prevented it
                return Ok(false);
            }
            self.sid = own;
        }
        Ok(true)
    }
}

fn described(cx: &RequestContext<'_>, login: &Login, who: Authentication) -> NewSession {
    let methods = MethodSet::of_proofs(&who.proofs);
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

/// Adds the proofs of the session by other methods. Its `acr` remains only if each of its credentials is still among the proofs.
fn with_proofs_of(who: &Authentication, session: &Authentication) -> Authentication {
    let more = session.proofs.iter().filter(|proof| who.methods().all(|own| *own != *proof.method));
    let mut all = Authentication { proofs: who.proofs.iter().chain(more).cloned().collect(), ..who.clone() };
    all.proofs.sort_by_key(|proof| proof.at);
    let remains = |old: &Proof| all.proofs.iter().any(|new| new.method == old.method && new.mark == old.mark);
    all.acr = all.acr.take().or_else(|| session.acr.clone().filter(|_| session.proofs.iter().all(remains)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{session::UserId, tenant::Tenant};

    #[test]
    fn a_session_keeps_its_acr_only_with_the_credentials_that_it_came_from() {
        let proof =
            |method: &str, at, mark: u8| Proof { method: method.into(), at, mark: Some([mark; 32]), elsewhere: None };
        let who = |proofs: &[Proof], acr: Option<&str>| Authentication {
            tenant: Tenant::parse("acme").unwrap(),
            user: UserId::parse("ada").unwrap(),
            generation: 0,
            proofs: proofs.to_vec(),
            acr: acr.map(Box::from),
        };
        let session = who(&[proof("password", 1, 1), proof("passkey", 2, 2)], Some("high"));
        for (method, mark, acr, expected) in [
            ("passkey", 2, None, Some("high")),
            ("passkey", 3, None, None),
            ("email", 3, None, Some("high")),
            ("passkey", 3, Some("own"), Some("own")),
        ] {
            let all = with_proofs_of(&who(&[proof(method, 9, mark)], acr), &session);
            assert_eq!(all.acr.as_deref(), expected, "{method} {mark}");
            assert_eq!(all.proofs.last(), Some(&proof(method, 9, mark)));
        }
    }
}
