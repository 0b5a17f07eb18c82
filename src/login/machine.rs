//! The table of a login: from what, by which call, under which condition, to what.
//!
//! It is a pure function. What it says is stored by one compare-and-swap, and only then answered: so of calls that race
//! one comes first, and the others meet what it left.

use std::time::Duration;

use super::{
    keyed::Keyed,
    state::{FAILURES, Login, OpenCode, Phase, SENDS, View},
};
use crate::{clock::UnixTime, policy::Method, secret::Digest, session::UserId};

/// What somebody wants of a login.
#[derive(Clone, Debug)]
pub(crate) enum Call<'a> {
    /// A secret is about to be checked, which takes time: the try is counted first.
    Try(Method),
    /// It was checked; whose it is, if it was right.
    Settle(Method, Option<&'a UserId>),
    /// It could not be checked: as if it had not been tried.
    TakeBack,
    /// A code goes out, which closes the one before.
    Open(&'a OpenCode),
    /// A code comes back; who may be proved by it, if anybody.
    Verify { guess: &'a str, keyed: &'a Keyed, owner: Option<&'a UserId> },
    /// All steps are done: they are confirmed.
    Complete,
    /// The code of this digest is issued for it.
    Consume(&'a Digest),
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Expired,
    SessionFailed,
    NoStepRemaining,
    StepsRemaining,
    MethodNotAllowed,
    NoPendingChallenge,
    NotCompleted,
    /// The last tries are under way, and nobody knows yet how they end.
    LastTries,
    /// No more codes are sent in this login; so long until another can be begun in its place.
    SendsSpent(Duration),
    /// What was tried is wrong.
    Wrong(Method),
}

/// What becomes of a login, and what is answered.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What it is from now on; `None` where nothing changes.
    pub(crate) next: Option<Login>,
    pub(crate) answer: Result<View, Denied>,
}

/// The table.
pub(crate) fn step(login: &Login, call: &Call<'_>, now: UnixTime) -> Step {
    let proved = login.proved();
    match (login.phase, call) {
        _ if login.has_ended(now) => denied(Denied::Expired),
        (Phase::Failed, _) => denied(Denied::SessionFailed),

        (Phase::Completed(_), Call::Complete) => Step { next: None, answer: Ok(login.view(now)) },
        (Phase::Completed(_), Call::Consume(code)) => {
            to(login, now, |next| next.phase = Phase::Consumed(*code.as_bytes()))
        }
        (_, Call::Consume(_)) => denied(Denied::NotCompleted),
        (_, Call::Complete) if login.remaining() > 0 => denied(Denied::StepsRemaining),
        (_, Call::Complete) => to(login, now, |next| next.phase = Phase::Completed(now.as_nanos())),

        (_, Call::Verify { .. }) if login.open.is_none() => denied(Denied::NoPendingChallenge),
        _ if login.remaining() == 0 => denied(Denied::NoStepRemaining),
        (_, Call::TakeBack) => to(login, now, |next| next.failures = next.failures.saturating_sub(1)),
        (_, Call::Try(method) | Call::Settle(method, _) | Call::Open(OpenCode { method, .. }))
            if !login.plan.allows(proved, *method) =>
        {
            denied(Denied::MethodNotAllowed)
        }

        (_, Call::Settle(method, Some(user))) if login.is_of(user) => {
            let right = Login { failures: login.failures.saturating_sub(1), ..login.clone() };
            success(&right, *method, user, now)
        }
        (_, Call::Settle(method, _)) => wrong(login, *method, now),

        (_, Call::Try(_) | Call::Verify { .. }) if login.failures >= FAILURES => denied(Denied::LastTries),
        (_, Call::Try(_)) => to(login, now, |next| next.failures += 1),

        (_, Call::Open(_)) if login.sends >= SENDS => {
            denied(Denied::SendsSpent(Duration::from_nanos(login.ends_at().as_nanos().saturating_sub(now.as_nanos()))))
        }
        (_, Call::Open(code)) => to(login, now, |next| {
            next.sends += 1;
            next.open = Some((*code).clone());
            next.phase = Phase::Pending;
        }),
        (_, Call::Verify { guess, keyed, owner }) => verify(login, guess, keyed, *owner, now),
    }
}

/// A code is tried: counted and compared in one step.
fn verify(login: &Login, guess: &str, keyed: &Keyed, owner: Option<&UserId>, now: UnixTime) -> Step {
    let Some(open) = &login.open else { return denied(Denied::NoPendingChallenge) };
    let is_code = open.is(guess, &login.id, keyed, now);
    match owner {
        Some(owner) if is_code && open.owner.as_ref() == Some(owner) && login.is_of(owner) => {
            success(login, open.method, owner, now)
        }
        _ => {
            let mut tried = login.clone();
            tried.failures += 1;
            tried.open = open.tried();
            wrong(&tried, open.method, now).or(tried, now)
        }
    }
}

/// A step is proved.
fn success(login: &Login, method: Method, user: &UserId, now: UnixTime) -> Step {
    to(login, now, |next| {
        next.proved.push((method, now.as_nanos()));
        next.user = Some(user.clone());
        next.open = None;
        next.phase = Phase::Success;
    })
}

/// What was tried, and is counted already, is wrong.
fn wrong(login: &Login, method: Method, now: UnixTime) -> Step {
    if login.failures < FAILURES {
        return denied(Denied::Wrong(method));
    }
    let failed = to(login, now, |next| {
        next.open = None;
        next.phase = Phase::Failed;
    });
    Step { answer: Err(Denied::SessionFailed), ..failed }
}

fn to(login: &Login, now: UnixTime, change: impl FnOnce(&mut Login)) -> Step {
    let mut next = login.clone();
    next.touched = now.as_nanos().max(login.touched);
    change(&mut next);
    let answer = Ok(next.view(now));
    Step { next: Some(next), answer }
}

fn denied(why: Denied) -> Step {
    Step { next: None, answer: Err(why) }
}

impl Step {
    /// Where nothing else is to be stored, this is.
    fn or(self, mut login: Login, now: UnixTime) -> Self {
        login.touched = now.as_nanos().max(login.touched);
        Self { next: self.next.or(Some(login)), ..self }
    }
}

impl Login {
    /// Whether this user may go on with it: anybody at first, and then only who proved the first step.
    fn is_of(&self, user: &UserId) -> bool {
        self.user.as_ref().is_none_or(|own| own == user)
    }
}
