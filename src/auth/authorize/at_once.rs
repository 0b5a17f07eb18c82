//! The usual end of a login: it is spent, its session begins, and its code is issued, in one call of the store.

use crate::{
    auth::{
        authorize::{
            completed::CompletedLogin,
            session::{self, BegunSession, TargetSession},
        },
        context::RequestContext,
        state::codes::AuthorizationCode,
    },
    session::Authentication,
    store::{OperationOutcome, StoreError, StoreErrorKind},
    util::secret::SecretDigest,
};

/// How often the session is listed again because others change the list.
const ROUNDS: usize = 4;

/// How a login was spent.
pub(crate) enum AtOnce {
    /// The session has begun, and the code is issued if there is one.
    Begun(BegunSession),
    /// The login was spent before, a sign-out came first, or the account may not log in.
    Refused,
    /// The session has to be renewed, joined or listed in another way. Nothing was written.
    NotPossible,
}

/// Spends a login for a new session. The writes have this order: the session is listed before it begins, because that can fail
/// if the user has others, and a list with a session that never begins is of no consequence. The login is spent before the
/// session begins and the code is issued, so that a failure after it costs a login and never yields two codes. The generation is
/// read last. The account is read after them.
///
/// A store that executes all of them at once, or none, never spends a login in vain.
pub(crate) async fn begin(
    cx: &RequestContext<'_>,
    completed: &mut CompletedLogin<'_>,
    target: &TargetSession,
    who: &Authentication,
    code: Option<(&SecretDigest, &AuthorizationCode)>,
) -> Result<AtOnce, StoreError> {
    let (core, sid) = (cx.core, target.sid);
    if completed.login().session.is_some() || target.current.is_some() || !completed.is_alone() {
        return Ok(AtOnce::NotPossible);
    }
    let mut opening = core.sessions.opening(sid, session::described(cx, completed.login(), who.clone()));
    for _ in 0..ROUNDS {
        let Some([list, open]) = core.sessions.opening_writes(&opening)? else { break };
        let spend = completed.prepare_spend(cx, &sid)?;
        let (Ok(_), Some(write)) = (&spend.answer, &spend.write) else { return Ok(AtOnce::Refused) };
        let mut operations = vec![list, write.clone(), open];
        if let Some((code, row)) = code {
            operations.push(core.codes.issuing(code, row)?);
        }
        operations.push(core.accounts.reading_generation(&who.tenant, Some(&who.user))?);
        let mut outcomes = core.store.run(operations).await?.into_iter();
        let listed = outcomes.next();
        if listed.as_ref().and_then(OperationOutcome::version).is_none() {
            core.sessions.relist(&mut opening, listed)?;
            continue;
        }
        match outcomes.next().and_then(|written| written.version()) {
            Some(version) => completed.spent(spend, version),
            // another request was faster
            None => break,
        }
        if outcomes.next().and_then(|written| written.version()).is_none() {
            // a sign-out has ended it before it began
            return Ok(AtOnce::Refused);
        }
        if code.is_some() && outcomes.next().and_then(|written| written.version()).is_none() {
            // the code is new, so this cannot happen
            return Err(StoreErrorKind::Busy.into());
        }
        let generation = core.accounts.generation(outcomes.next())?;
        let Some((cookie, session)) = core.sessions.finish_opening(opening, generation).await? else {
            return Ok(AtOnce::Refused);
        };
        if !completed.confirm(cx, &session).await? {
            return Ok(AtOnce::Refused);
        }
        let mut cookies = vec![cookie];
        cookies.extend(core.sessions.end_replaced(&cx.parts.headers, &session).await?);
        return Ok(AtOnce::Begun(BegunSession { sid, cookies }));
    }
    Ok(AtOnce::NotPossible)
}
