//! The table of a login: from what, by which call, under which condition, to what.
//!
//! It is a pure function. What it says is stored by one compare-and-swap, and only then answered: so of calls that race
//! one comes first, and the others meet what it left.

use std::time::Duration;

use super::{
    keyed::Keyed,
    state::{Challenge, FAILURES, Login, OpenCode, Phase, SENDS, View},
};
use crate::{
    policy::Method,
    session::UserId,
    util::{clock::UnixTime, secret::Digest},
};

/// What somebody wants of a login.
#[derive(Clone, Debug)]
pub(crate) enum Call<'a> {
    /// A secret is about to be checked, which takes time: the try is counted first.
    Try(Method),
    /// It was checked; what that proves, if it was right.
    Settle(Method, Option<Proof<'a>>),
    /// It could not be checked: as if it had not been tried.
    TakeBack,
    /// A challenge would be opened: whether it may.
    MayOpen(Method),
    /// A challenge is opened, which closes the one before.
    Open(&'a Challenge),
    /// A code comes back, for the challenge that the try was counted for; who may be proved by it, if anybody.
    Verify { of: Option<&'a OpenCode>, guess: &'a str, keyed: &'a Keyed, owner: Option<&'a UserId> },
    /// All steps are done: they are confirmed.
    Complete,
    /// The code of this digest is issued for it.
    Consume(&'a Digest),
}

/// Whose a secret is, and marks of what it was checked against: one of them must still stand there when the code is
/// issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof<'a> {
    pub(crate) user: &'a UserId,
    pub(crate) marks: &'a [[u8; 32]],
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
    /// No more codes are sent in this login, which lasts so long yet.
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
    if let Some(why) = refused(login, call, now) {
        return Step { next: given_back(login, call, why), answer: Err(why) };
    }
    match call {
        Call::Try(_) => to(login, now, |next| next.failures += 1),
        Call::Settle(method, Some(proof)) if login.is_of(proof.user) => {
            success(&uncounted(login), *method, *proof, now)
        }
        Call::Settle(method, _) => wrong(login, *method, now),
        Call::TakeBack => to(login, now, |next| next.failures = next.failures.saturating_sub(1)),
        Call::MayOpen(_) => same(login, now),
        Call::Open(challenge) => to(login, now, |next| {
            next.sends += 1;
            next.open = Some((*challenge).clone());
            next.phase = Phase::Pending;
        }),
        Call::Verify { guess, keyed, owner, .. } => verify(login, guess, keyed, *owner, now),
        Call::Complete if matches!(login.phase, Phase::Completed(_)) => same(login, now),
        Call::Complete => to(login, now, |next| next.phase = Phase::Completed(now.as_nanos())),
        Call::Consume(code) => to(login, now, |next| next.phase = Phase::Consumed(*code.as_bytes())),
    }
}

/// The guards: why a call can't be made at all, from what it finds.
fn refused(login: &Login, call: &Call<'_>, now: UnixTime) -> Option<Denied> {
    if login.has_ended(now) {
        return Some(Denied::Expired);
    }
    if login.has_failed(now) {
        return Some(Denied::SessionFailed);
    }
    let unfit = match call {
        Call::Try(method) | Call::Settle(method, _) | Call::MayOpen(method) => unasked(login, *method),
        Call::Open(challenge) => unasked(login, challenge.method()),
        Call::Verify { of, .. } if !login.waits_for(*of) => Some(Denied::NoPendingChallenge),
        Call::Complete if login.remaining() > 0 => Some(Denied::StepsRemaining),
        Call::Consume(_) if !matches!(login.phase, Phase::Completed(_)) => Some(Denied::NotCompleted),
        Call::TakeBack if login.remaining() == 0 => Some(Denied::NoStepRemaining),
        _ => None,
    };
    let spent = match call {
        Call::Try(_) | Call::Verify { .. } | Call::MayOpen(_) | Call::Open(_) if login.failures >= FAILURES => {
            Some(Denied::LastTries)
        }
        Call::MayOpen(_) | Call::Open(_) if login.sends >= SENDS => {
            let left = login.ends_at().as_nanos().saturating_sub(now.as_nanos());
            Some(Denied::SendsSpent(Duration::from_nanos(left)))
        }
        _ => None,
    };
    unfit.or(spent)
}

/// Why no step by this method is asked for, if none is.
fn unasked(login: &Login, method: Method) -> Option<Denied> {
    if login.remaining() == 0 {
        return Some(Denied::NoStepRemaining);
    }
    (!login.plan.allows(login.proved(), method)).then_some(Denied::MethodNotAllowed)
}

/// What was right and came second is no failure: as when somebody clicks twice.
fn given_back(login: &Login, call: &Call<'_>, why: Denied) -> Option<Login> {
    match (call, why) {
        (Call::Settle(_, Some(proof)), Denied::NoStepRemaining | Denied::MethodNotAllowed)
            if login.is_of(proof.user) =>
        {
            Some(uncounted(login))
        }
        _ => None,
    }
}

fn uncounted(login: &Login) -> Login {
    Login { failures: login.failures.saturating_sub(1), ..login.clone() }
}

fn same(login: &Login, now: UnixTime) -> Step {
    Step { next: None, answer: Ok(login.view(now)) }
}

/// A code is tried: counted and compared in one step.
fn verify(login: &Login, guess: &str, keyed: &Keyed, owner: Option<&UserId>, now: UnixTime) -> Step {
    let Some(Challenge::Code(open)) = &login.open else { return denied(Denied::NoPendingChallenge) };
    let is_code = open.is(guess, &login.id, keyed, now);
    match owner {
        Some(owner) if is_code && open.owner.as_ref() == Some(owner) && login.is_of(owner) => {
            success(login, open.method, Proof { user: owner, marks: &[] }, now)
        }
        _ => {
            let mut tried = login.clone();
            tried.failures += 1;
            tried.open = open.tried().map(Challenge::Code);
            wrong(&tried, open.method, now).or(tried, now)
        }
    }
}

/// A step is proved.
fn success(login: &Login, method: Method, proof: Proof<'_>, now: UnixTime) -> Step {
    to(login, now, |next| {
        next.proved.push((method, now.as_nanos()));
        next.user = Some(proof.user.clone());
        next.marks.extend_from_slice(proof.marks);
        next.open = None;
        next.phase = Phase::Success;
    })
}

/// What was tried, and is counted already, is wrong. At the last count the login ends, whatever else is under way.
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
    /// Whether this is the code that is waited for, and no other that was sent since.
    fn waits_for(&self, code: Option<&OpenCode>) -> bool {
        matches!((code, &self.open), (Some(code), Some(Challenge::Code(open))) if open.is_same(code))
    }

    /// Whether this user may go on with it: anybody at first, and then only who proved the first step.
    fn is_of(&self, user: &UserId) -> bool {
        self.user.as_ref().is_none_or(|own| own == user)
    }
}
