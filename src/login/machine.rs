//! The transition table of a login.
//!
//! [`transition`] is a pure function. The caller stores its result with one compare-and-swap before it answers, so calls
//! that race are decided one after the other.

use std::time::Duration;

use super::{
    keyed::Keyed,
    one_time_code::OpenCode,
    state::{Challenge, Login, LoginPhase, LoginView, MAX_FAILURES, MAX_SENDS, OpenChallenge},
    subject::{BoundUser, Subject},
};
use crate::{
    policy::{EnrolledFactors, Method},
    session::Proof,
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// One call that changes a login.
#[derive(Clone, Debug)]
pub(crate) enum LoginCall<'a> {
    /// Counts an attempt before a secret is checked, because checking takes time.
    Attempt(Method),
    /// Ends a counted attempt, with the proof if the secret was right.
    Settle(Method, Option<Proved<'a>>),
    /// Removes a counted attempt whose secret could not be checked.
    Withdraw,
    /// Asks whether a challenge could be opened. Changes nothing.
    MayOpen(Method),
    /// Opens a challenge, which closes the one before.
    Open(&'a Challenge),
    /// Compares a guess with the open code. `of` is the code that the attempt was counted for. `owner` is its owner with
    /// the current generation, or `None` if no guess may count. `factors` are what the owner has enrolled.
    Verify {
        of: Option<&'a OpenCode>,
        guess: &'a str,
        keyed: &'a Keyed,
        owner: Option<&'a BoundUser>,
        factors: EnrolledFactors,
    },
    /// Closes the challenge that this provider answers, and counts an attempt until its outcome is known.
    Redeem { provider: &'a str, state: &'a SecretDigest },
    /// Opens a challenge for a passkey, which closes the one before.
    OpenPasskey(&'a OpenChallenge),
    /// Closes this challenge and counts an attempt to answer it. Only one call gets each challenge.
    TakePasskey(&'a OpenChallenge),
    /// Binds a login without proofs to the user whose account was created in it, with what was proved for the account.
    SignUp(Option<(&'a BoundUser, &'a [Proof])>),
    /// Binds a login with a user to this generation of the user, which the caller has raised.
    Rebind(u64),
    /// Notes that the user is active, so that the login doesn't time out.
    Touch,
    /// Confirms that all steps are done.
    Complete,
    /// Ends the login because its user or a proof no longer counts.
    End,
    /// Uses the login up for this session.
    Consume(&'a PublicId),
    /// Notes that a login that was used up joined the session of another tab instead.
    Join(&'a PublicId),
}

/// The user whose secret was right, with the current generation, and the mark of the secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proved<'a> {
    pub(crate) user: &'a BoundUser,
    pub(crate) mark: Option<[u8; 32]>,
    /// When the user authenticated at another provider. Zero if the provider did not say.
    pub(crate) elsewhere: Option<u64>,
    /// The second factors that the user has enrolled.
    pub(crate) factors: EnrolledFactors,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginError {
    Expired,
    TooManyFailures,
    NoStepRemaining,
    StepsRemaining,
    MethodNotAllowed,
    NoPendingChallenge,
    NotCompleted,
    /// The last allowed attempts are still in progress.
    AttemptsUnderWay,
    /// This login sends no more codes. It ends after this time.
    NoSendsLeft(Duration),
    WrongSecret(Method),
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(crate) struct Transition {
    /// The changed login, or `None` if nothing changes.
    pub(crate) next: Option<Login>,
    pub(crate) answer: Result<LoginView, LoginError>,
}

/// Applies a call to a login.
pub(crate) fn transition(login: &Login, call: &LoginCall<'_>, now: UnixTime) -> Transition {
    if let (LoginCall::Join(session), LoginPhase::Consumed(_)) = (call, login.phase) {
        // still in the order in which the logins were used up
        let next = Login { phase: LoginPhase::Consumed(**session), ..login.clone() };
        return Transition { answer: Ok(next.to_login_view(now)), next: Some(next) };
    }
    if let Some(error) = refusal(login, call, now) {
        return Transition { next: refund(login, call, error), answer: Err(error) };
    }
    match call {
        LoginCall::Attempt(_) => change(login, now, |next| next.failures += 1),
        LoginCall::Settle(method, Some(proved)) if login.subject.accepts(&proved.user.id) => {
            success(&without_failure(login), *method, *proved, now)
        }
        LoginCall::Settle(method, _) => wrong(login, *method, now),
        LoginCall::Withdraw => change(login, now, |next| next.failures = next.failures.saturating_sub(1)),
        LoginCall::MayOpen(_) | LoginCall::SignUp(None) => unchanged(login, now),
        LoginCall::Open(challenge) => change(login, now, |next| {
            next.sends += u8::from(challenge.code().is_some());
            next.open = Some((*challenge).clone());
            next.phase = LoginPhase::Pending;
        }),
        LoginCall::OpenPasskey(challenge) => change(login, now, |next| {
            next.passkey = Some((*challenge).clone());
            next.phase = LoginPhase::Pending;
        }),
        LoginCall::TakePasskey(_) => change(login, now, |next| {
            next.passkey = None;
            next.failures += 1;
        }),
        LoginCall::Verify { guess, keyed, owner, factors, .. } => verify(login, guess, keyed, (*owner, *factors), now),
        LoginCall::Redeem { .. } => change(login, now, |next| {
            next.failures += 1;
            next.open = None;
        }),
        LoginCall::SignUp(Some((user, proofs))) => change(login, now, |next| {
            next.subject = Subject::User((*user).clone());
            next.proofs = proofs.to_vec();
            (next.open, next.passkey) = (None, None);
            next.phase = if proofs.is_empty() { LoginPhase::Pending } else { LoginPhase::Success };
        }),
        LoginCall::Rebind(generation) => change(login, now, |next| {
            if let Subject::User(user) = &mut next.subject {
                user.generation = *generation;
            }
        }),
        LoginCall::Touch => change(login, now, |_| {}),
        LoginCall::Complete if matches!(login.phase, LoginPhase::Completed(_)) => unchanged(login, now),
        LoginCall::Complete => change(login, now, |next| next.phase = LoginPhase::Completed(now.as_nanos())),
        LoginCall::End => end(login, now),
        LoginCall::Consume(session) => change(login, now, |next| next.phase = LoginPhase::Consumed(**session)),
        LoginCall::Join(_) => denied(LoginError::NotCompleted),
    }
}

/// Returns why a call is refused in this state, if it is, without comparing secrets.
pub(crate) fn refusal(login: &Login, call: &LoginCall<'_>, now: UnixTime) -> Option<LoginError> {
    if login.has_ended(now) {
        return Some(LoginError::Expired);
    }
    if login.has_failed(now) {
        return Some(LoginError::TooManyFailures);
    }
    let unfit = match call {
        LoginCall::Attempt(method) | LoginCall::Settle(method, _) | LoginCall::MayOpen(method) => {
            not_expected(login, *method)
        }
        LoginCall::Open(challenge) => not_expected(login, challenge.method()),
        LoginCall::OpenPasskey(_) => not_expected(login, Method::Passkey),
        LoginCall::TakePasskey(open) => not_expected(login, Method::Passkey)
            .or_else(|| (!login.waits_for_passkey(open, now)).then_some(LoginError::NoPendingChallenge)),
        LoginCall::Verify { of, .. } if !login.waits_for(*of) => Some(LoginError::NoPendingChallenge),
        LoginCall::Redeem { provider, state } if !login.waits_for_provider(provider, state, now) => {
            Some(LoginError::NoPendingChallenge)
        }
        LoginCall::SignUp(_) if !login.proofs.is_empty() || login.subject != Subject::Unbound => {
            Some(LoginError::MethodNotAllowed)
        }
        LoginCall::Complete if login.remaining() > 0 => Some(LoginError::StepsRemaining),
        LoginCall::Consume(_) if !matches!(login.phase, LoginPhase::Completed(_)) => Some(LoginError::NotCompleted),
        LoginCall::Withdraw if login.remaining() == 0 => Some(LoginError::NoStepRemaining),
        _ => None,
    };
    let spent = match call {
        LoginCall::Attempt(_)
        | LoginCall::Verify { .. }
        | LoginCall::Redeem { .. }
        | LoginCall::MayOpen(_)
        | LoginCall::Open(_)
        | LoginCall::OpenPasskey(_)
        | LoginCall::TakePasskey(_)
            if login.failures >= MAX_FAILURES =>
        {
            Some(LoginError::AttemptsUnderWay)
        }
        LoginCall::MayOpen(_) | LoginCall::Open(Challenge::Code(_)) if login.sends >= MAX_SENDS => {
            let left = login.ends_at().as_nanos().saturating_sub(now.as_nanos());
            Some(LoginError::NoSendsLeft(Duration::from_nanos(left)))
        }
        _ => None,
    };
    unfit.or(spent)
}

/// Returns why the login does not expect a step by this method, if it does not.
fn not_expected(login: &Login, method: Method) -> Option<LoginError> {
    if login.remaining() == 0 {
        return Some(LoginError::NoStepRemaining);
    }
    (!login.plan.allows(login.proved(), method)).then_some(LoginError::MethodNotAllowed)
}

/// Returns the login without a failure that was none: a right secret that arrives a second time, because a user clicked twice.
fn refund(login: &Login, call: &LoginCall<'_>, error: LoginError) -> Option<Login> {
    match (call, error) {
        (LoginCall::Settle(_, Some(proved)), LoginError::NoStepRemaining | LoginError::MethodNotAllowed)
            if login.subject.accepts(&proved.user.id) =>
        {
            Some(without_failure(login))
        }
        _ => None,
    }
}

fn without_failure(login: &Login) -> Login {
    Login { failures: login.failures.saturating_sub(1), ..login.clone() }
}

fn unchanged(login: &Login, now: UnixTime) -> Transition {
    Transition { next: None, answer: Ok(login.to_login_view(now)) }
}

/// Counts and compares a guess in one step.
fn verify(
    login: &Login,
    guess: &str,
    keyed: &Keyed,
    (owner, factors): (Option<&BoundUser>, EnrolledFactors),
    now: UnixTime,
) -> Transition {
    let Some(Challenge::Code(open)) = &login.open else { return denied(LoginError::NoPendingChallenge) };
    let is_code = open.is(guess, &login.id, keyed, now);
    if let (true, Some(sent_to), Some(owner)) = (is_code, &open.owner, owner)
        && sent_to.id == owner.id
        && login.subject.accepts(&owner.id)
    {
        if sent_to.generation < owner.generation {
            return end(login, now);
        }
        let proved = Proved { user: owner, mark: Some(open.contact), elsewhere: None, factors };
        return success(login, open.method, proved, now);
    }
    let mut guessed = login.clone();
    guessed.failures += 1;
    guessed.open = open.after_wrong_guess().map(Challenge::Code);
    guessed.touched = now.as_nanos().max(login.touched);
    let transition = wrong(&guessed, open.method, now);
    Transition { next: transition.next.or(Some(guessed)), ..transition }
}

/// Adds a proof. The first one binds the login, and may add a step for a second factor of its user. If `end_user` has raised the
/// generation since the login was bound, the login ends instead.
fn success(login: &Login, method: Method, proved: Proved<'_>, now: UnixTime) -> Transition {
    if let Some(user) = login.subject.user()
        && user.generation < proved.user.generation
    {
        return end(login, now);
    }
    change(login, now, |next| {
        let Proved { mark, elsewhere, factors, .. } = proved;
        next.proofs.push(Proof { method: method.as_str().into(), at: now.as_nanos(), mark, elsewhere });
        if next.subject == Subject::Unbound {
            next.subject = Subject::User(proved.user.clone());
        }
        next.plan.demand_factor(next.proved(), factors);
        (next.open, next.passkey) = (None, None);
        next.phase = LoginPhase::Success;
    })
}

/// Refuses a wrong secret, which is counted already. The last allowed failure ends the login.
fn wrong(login: &Login, method: Method, now: UnixTime) -> Transition {
    if login.failures < MAX_FAILURES {
        return denied(LoginError::WrongSecret(method));
    }
    let failed = change(login, now, |next| {
        (next.open, next.passkey) = (None, None);
        next.phase = LoginPhase::Failed;
    });
    Transition { answer: Err(LoginError::TooManyFailures), ..failed }
}

fn end(login: &Login, now: UnixTime) -> Transition {
    let ended = change(login, now, |next| {
        (next.open, next.passkey) = (None, None);
        next.phase = LoginPhase::Ended;
    });
    Transition { answer: Err(LoginError::Expired), ..ended }
}

fn change(login: &Login, now: UnixTime, change: impl FnOnce(&mut Login)) -> Transition {
    let mut next = login.clone();
    next.touched = now.as_nanos().max(login.touched);
    change(&mut next);
    let answer = Ok(next.to_login_view(now));
    Transition { next: Some(next), answer }
}

fn denied(error: LoginError) -> Transition {
    Transition { next: None, answer: Err(error) }
}

impl Login {
    /// Returns whether the user is at this provider, and comes back with this state.
    fn waits_for_provider(&self, provider: &str, state: &SecretDigest, now: UnixTime) -> bool {
        matches!(&self.open, Some(Challenge::Redirect(open)) if open.is_for(provider, state, now))
    }

    /// Returns whether this code is open, and no newer one.
    fn waits_for(&self, code: Option<&OpenCode>) -> bool {
        matches!((code, &self.open), (Some(code), Some(Challenge::Code(open))) if open.is_same(code))
    }

    /// Returns whether this challenge is open, and no newer one.
    fn waits_for_passkey(&self, challenge: &OpenChallenge, now: UnixTime) -> bool {
        self.passkey.as_ref().is_some_and(|open| open.is_same(challenge) && !open.has_expired(now))
    }
}
