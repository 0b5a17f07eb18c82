//! The method `password`.

use std::mem::take;

use http::Response;

use super::{attempt::Attempt, fields::Typed, guard::submitted, problem::Problem, step::Entered, visit::Visit};
use crate::{
    http::body::Body,
    login::{Call, Denied, Keyed, Proof},
    password::{Password, PasswordHash, PasswordMark},
    policy::Method,
    session::UserId,
    tenant::Tenant,
    user::{Account, AnyUsers, Identifier, PasswordAttempt, PasswordCheck, PasswordUpgrade},
};

const METHOD: Method = Method::Password;

/// The outcome of a check: the user, if the password was right, and the keyed marks of the password.
#[derive(Default)]
struct Checked {
    user: Option<UserId>,
    marks: Vec<[u8; 32]>,
}

/// Returns what a login remembers of a password, to notice a change before the code is issued.
pub(super) fn mark(mark: &PasswordMark, keyed: &Keyed) -> [u8; 32] {
    *keyed.hash("password mark", [mark.as_bytes()]).as_bytes()
}

pub(super) async fn authenticate(visit: &mut Visit<'_>, mut entered: Entered) -> Result<Response<Body>, Problem> {
    let (username, typed) = match (entered.fields.username.take(), entered.fields.password.take()) {
        (Some(username), Some(typed)) if !typed.0.is_empty() => (username, typed),
        (None, _) => return Err(Problem::invalid("username is missing")),
        (Some(_), _) => return Err(Problem::invalid("password is missing")),
    };
    let username = Identifier::parse(&username).map_err(|_| Problem::invalid("username is malformed"))?;

    let keyed = visit.inner.keyed().await?;
    let submitted = submitted::name(&entered.login.tenant, &username, keyed);
    let mut attempt = Attempt::begin(visit, &entered, METHOD, submitted, keyed).await?;
    let checked = match check(visit, &entered, &mut attempt, &username, typed, keyed).await {
        Ok(checked) => checked,
        Err(problem) => {
            attempt.take_back(visit).await;
            return Err(problem);
        }
    };
    let proof = checked.user.as_ref().map(|user| Proof { user, marks: &checked.marks });
    let moved = entered.step(visit, &Call::Settle(METHOD, proof)).await?;
    // a right password is no failure, even if a second click of the same user came first
    let came_second = matches!(moved.answer, Err(Denied::NoStepRemaining | Denied::MethodNotAllowed));
    if proof.is_some() && (moved.answer.is_ok() || came_second) {
        attempt.succeeded(visit).await;
    }
    Entered::conclude(visit, &moved, METHOD, keyed)
}

/// Checks the password with the same work in every case. An unknown or disabled user, one without a password, and one
/// whom the login was not started for, cost as many look-ups, count as often, and run the same check.
async fn check(
    visit: &Visit<'_>,
    entered: &Entered,
    attempt: &mut Attempt<'_>,
    username: &Identifier,
    mut typed: Typed,
    keyed: &Keyed,
) -> Result<Checked, Problem> {
    attempt.count_in_login(visit).await?;
    let account = entered.account(visit).await?;
    let is_theirs = entered.leads_to(visit, username, account.as_ref().map(Account::id)).await?;
    let account = account.filter(|_| is_theirs);
    let below_ceiling = attempt.count_for(visit, account.as_ref().map(Account::id)).await?;
    let account = account.filter(|_| below_ceiling);
    let (users, tenant) = (&visit.inner.config.users, &entered.login.tenant);
    let password = Password::new(take(&mut *typed.0));
    let attempt = PasswordAttempt::new(tenant, account.as_ref(), password, &visit.inner.config.passwords);
    let (mark, upgraded) = match (users.verify_password(attempt).await?, &account) {
        (PasswordCheck::Right { mark, upgrade: None }, Some(_)) => (mark, None),
        (PasswordCheck::Right { mark, upgrade: Some(better) }, Some(account)) => {
            match upgrade(users, tenant, account, better).await {
                Some(upgraded) => (mark, upgraded.current_password_mark()),
                None => return Ok(Checked::default()),
            }
        }
        (PasswordCheck::Right { .. } | PasswordCheck::Wrong, _) => return Ok(Checked::default()),
        (PasswordCheck::Busy, _) => return Err(Problem::unavailable()),
    };
    let mut marks: Vec<_> = mark.into_iter().chain(upgraded).map(|mark| self::mark(&mark, keyed)).collect();
    marks.dedup();
    Ok(Checked { user: account.map(|account| account.id().clone()), marks })
}

/// Replaces a weak hash with a new one of the same password, and returns the account as it is then. Returns `None` if
/// the password was changed in the meantime. If the upgrade fails, the next login tries again.
async fn upgrade(users: &AnyUsers, tenant: &Tenant, account: &Account, better: PasswordHash) -> Option<Account> {
    match users.upgrade_password(tenant, account, better.clone()).await {
        Ok(PasswordUpgrade::PasswordChanged) => return None,
        Ok(PasswordUpgrade::NotSupported) => return Some(account.clone()),
        Ok(PasswordUpgrade::Replaced) => {}
        Err(error) => crate::util::trace::warning!("a weak password hash could not be replaced: {error}"),
    }
    // after an error the new hash may be in place, or not: both marks are of this password
    Some(account.clone().password(better))
}
