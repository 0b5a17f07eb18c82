//! The method `password`.

pub(super) mod new_password;

use std::mem::take;

use crate::{
    auth::{
        factors::{
            attempt::{Attempt, RightSecret},
            step::LoginStep,
        },
        http::{
            fields::Typed,
            problem::{EndpointResult, Problem},
        },
        state::guard::submitted,
    },
    login::Keyed,
    password::{Password, PasswordHash, PasswordMark},
    policy::Method,
    user::{Account, Identifier, PasswordAttempt, PasswordCheck, PasswordUpgrade},
};

const METHOD: Method = Method::Password;

/// Returns the mark of a proof by password. It changes with the password, and not when the password is hashed again.
fn password_mark(mark: &PasswordMark, keyed: &Keyed) -> [u8; 32] {
    *keyed.hash("password mark", [mark.as_bytes()]).as_bytes()
}

/// Returns the mark that a proof by the password of this account has now.
pub(crate) fn current_mark(account: &Account, keyed: &Keyed) -> Option<[u8; 32]> {
    account.current_password_mark().map(|mark| password_mark(&mark, keyed))
}

/// Checks the name and the password in the request.
pub(crate) async fn prove_by_password(mut step: LoginStep<'_>) -> EndpointResult {
    // a login that began with a session knows its user, and no name
    let is_named = step.login.identifier.is_some() || step.login.subject.user().is_none();
    let (username, typed) = match (step.fields.username.take(), step.fields.password.take()) {
        (None, _) if is_named => return Err(Problem::invalid("username is missing")),
        (username, Some(typed)) if !typed.0.is_empty() => (username, typed),
        _ => return Err(Problem::invalid("password is missing")),
    };
    let username = username.map(Identifier::parse).transpose();
    let username = username.map_err(|_| Problem::invalid("username is malformed"))?;

    step.typed.clone_from(&username);
    let (step, keyed) = (&step, step.keyed);
    let submitted = match (&username, step.login.subject.user()) {
        (Some(name), _) => submitted::name(name, keyed),
        (None, Some(user)) => submitted::user(&user.id, keyed),
        (None, None) => return Err(Problem::invalid("username is missing")),
    };
    let mut attempt = Attempt::start_attempt(step, METHOD, submitted).await?;
    let right = check_password(step, &mut attempt, username.as_ref(), typed).await;
    step.conclude(&attempt.settle(right).await?, METHOD)
}

/// Checks a password with the same work for all users. The lookups, counts and hashes are also the same for unknown and
/// disabled users, users without a password, and users that the login was not started for.
async fn check_password(
    step: &LoginStep<'_>,
    attempt: &mut Attempt<'_>,
    username: Option<&Identifier>,
    mut typed: Typed,
) -> Result<Option<RightSecret>, Problem> {
    let found = step.account(username).await?;
    let is_theirs = match username {
        Some(username) => step.is_named(username, &found).await?,
        None => true,
    };
    let account = found.active().filter(|_| is_theirs);
    let below_ceiling = attempt.count_for(step.device_owner(&found, account)).await?;
    attempt.count_in_login().await?;
    let account = account.filter(|_| below_ceiling);
    let core = step.cx.core;
    let password = Password::new(take(&mut *typed.0));
    let checked = PasswordAttempt::new(&step.login.tenant, account, password, &core.passwords);
    let right = match (core.users.verify_password(checked).await?, account, found.user()) {
        (PasswordCheck::Right { mark, upgrade: None }, Some(_), Some(user)) => Some((user, mark)),
        (PasswordCheck::Right { mark, upgrade: Some(new) }, Some(account), Some(user)) => {
            upgrade(step, account, mark, new).await.map(|mark| (user, mark))
        }
        (PasswordCheck::Busy, ..) => return Err(Problem::unavailable()),
        _ => None,
    };
    let Some((user, mark)) = right else { return Ok(None) };
    let factors = step.enrolled_factors(&user).await?;
    Ok(Some(RightSecret { user, mark: mark.map(|mark| password_mark(&mark, step.keyed)), factors }))
}

/// Replaces a weak hash and returns the version of the password after that, or `None` if the password was changed since it
/// was checked. Other failures are harmless: the next login tries again.
async fn upgrade(
    step: &LoginStep<'_>,
    account: &Account,
    mark: Option<PasswordMark>,
    new: PasswordHash,
) -> Option<Option<PasswordMark>> {
    // an account without an explicit mark is marked by its hash
    let after = account.clone().password(new.clone()).current_password_mark();
    let users = &step.cx.core.users;
    match users.upgrade_password(&step.login.tenant, account, new).await {
        Ok(PasswordUpgrade::PasswordChanged) => None,
        Ok(PasswordUpgrade::Replaced) => Some(after),
        Ok(_) => Some(mark),
        Err(error) => {
            crate::util::trace::failure!("a weak password hash could not be replaced", &error);
            Some(mark)
        }
    }
}
