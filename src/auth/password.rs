//! The method `password`.

use std::mem::take;

use http::Response;

use super::{guard::Tried, problem::Problem, step::Entered, visit::Visit};
use crate::{
    body::Body,
    event::EventKind,
    login::Call,
    password::{Password, PasswordHash, Verdict},
    policy::Method,
    session::UserId,
    user::Identifier,
};

const METHOD: Method = Method::Password;

/// One path for everybody: who is unknown, disabled, has no password, or is somebody else than the login was begun for is
/// looked up as often, counted as often, and checked against a hash of the same cost that nothing matches.
pub(super) async fn authenticate(visit: &mut Visit<'_>, mut entered: Entered) -> Result<Response<Body>, Problem> {
    let (username, mut typed) = match (entered.fields.username.take(), entered.fields.password.take()) {
        (Some(username), Some(typed)) if !typed.0.is_empty() => (username, typed),
        (None, _) => return Err(Problem::invalid("username is missing")),
        (Some(_), _) => return Err(Problem::invalid("password is missing")),
    };
    let username = Identifier::parse(&username).map_err(|_| Problem::invalid("username is malformed"))?;

    let keyed = visit.inner.keyed().await?;
    let tenant = entered.login.tenant.clone();
    let submitted = keyed.hash("submitted name", [tenant.as_str().as_bytes(), username.as_str().as_bytes()]);
    let tried = Tried { tenant: &tenant, method: METHOD, submitted: &submitted, account: None };
    let spend = entered.count(visit, tried, keyed).await?;
    let counted = entered.step(visit, &Call::Try(METHOD)).await?;
    counted.told(visit.inner.running().logins.now())?;

    let account = entered.account(visit).await?;
    let id = account.as_ref().map(|account| account.id().clone());
    let is_theirs = entered.leads_to(visit, &username, id.as_ref()).await?;
    let account = account.filter(|_| is_theirs);
    let id = id.filter(|_| is_theirs);
    let tried = Tried { account: id.as_ref(), ..tried };
    let guard = &visit.inner.running().guard;
    let below_ceiling = guard.count_silently(tried, keyed).await?;
    if !below_ceiling {
        visit.inner.journal().tally_login(EventKind::LoginCeiling, &entered.login, Some(METHOD), keyed);
    }
    let stored = account.as_ref().and_then(|account| account.password_hash()).filter(|_| below_ceiling).cloned();
    let verdict = visit.inner.config.passwords.verify(Password::new(take(&mut *typed.0)), stored.clone()).await;
    let Ok(verdict) = verdict else {
        guard.uncount(tried, below_ceiling, keyed).await?;
        visit.inner.running().failures.refund(spend);
        entered.step(visit, &Call::TakeBack).await?;
        return Err(Problem::unavailable());
    };

    let proved = match (&verdict, &id) {
        (Verdict::Right { .. }, Some(user)) => Some(user),
        _ => None,
    };
    let moved = entered.step(visit, &Call::Settle(METHOD, proved)).await?;
    if let (Ok(_), Some(user)) = (&moved.answer, proved) {
        guard.clear(tried, keyed).await;
        visit.inner.running().failures.refund(spend);
        upgrade(visit, &entered, user, stored.as_ref(), verdict).await;
    }
    Entered::conclude(visit, &moved, METHOD, keyed)
}

/// Puts a hash of today in the place of a weak one. That it fails harms nobody: the next login tries again.
async fn upgrade(visit: &Visit<'_>, entered: &Entered, user: &UserId, old: Option<&PasswordHash>, verdict: Verdict) {
    if let (Verdict::Right { rehashed: Some(new) }, Some(old)) = (verdict, old) {
        let users = &visit.inner.config.users;
        if let Err(error) = users.upgrade_password(&entered.login.tenant, user, old, new).await {
            crate::trace::warning!("a weak password hash could not be replaced: {error}");
        }
    }
}
