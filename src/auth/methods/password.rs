//! The method `password`.

use std::mem::take;

use http::Response;

use crate::{
    auth::{
        context::RequestContext,
        http::{fields::Typed, problem::Problem},
        methods::attempt::Attempt,
        state::guard::submitted,
        steps::step::Entered,
    },
    http::body::Body,
    login::{Call, Denied, Keyed, Proof},
    password::{Password, PasswordHash, Verdict},
    policy::Method,
    session::UserId,
    user::{Account, Identifier},
};

const METHOD: Method = Method::Password;

/// A password that was checked: whose it is, if it was right, and marks of the hashes that stood for it then.
struct Checked {
    user: Option<UserId>,
    marks: Vec<[u8; 32]>,
}

/// What a login remembers of a hash, to see whether the password was changed before the code is issued.
pub(crate) fn mark(hash: &PasswordHash, keyed: &Keyed) -> [u8; 32] {
    *keyed.hash("password mark", [hash.as_str().as_bytes()]).as_bytes()
}

pub(crate) async fn authenticate(cx: &mut RequestContext<'_>, mut entered: Entered) -> Result<Response<Body>, Problem> {
    let (username, typed) = match (entered.fields.username.take(), entered.fields.password.take()) {
        (Some(username), Some(typed)) if !typed.0.is_empty() => (username, typed),
        (None, _) => return Err(Problem::invalid("username is missing")),
        (Some(_), _) => return Err(Problem::invalid("password is missing")),
    };
    let username = Identifier::parse(&username).map_err(|_| Problem::invalid("username is malformed"))?;

    let keyed = cx.core.keyed().await?;
    let submitted = submitted::name(&entered.login.tenant, &username, keyed);
    let mut attempt = Attempt::begin(cx, &entered, METHOD, submitted, keyed).await?;
    let checked = match check(cx, &entered, &mut attempt, &username, typed, keyed).await {
        Ok(checked) => checked,
        Err(problem) => {
            attempt.take_back(cx).await;
            return Err(problem);
        }
    };
    let proof = checked.user.as_ref().map(|user| Proof { user, marks: &checked.marks });
    let moved = entered.step(cx, &Call::Settle(METHOD, proof)).await?;
    // right is right, also for who clicked twice and came second
    let came_second = matches!(moved.answer, Err(Denied::NoStepRemaining | Denied::MethodNotAllowed));
    if proof.is_some() && (moved.answer.is_ok() || came_second) {
        attempt.succeeded(cx).await;
    }
    Entered::conclude(cx, &moved, METHOD, keyed)
}

/// One path for everybody: who is unknown, disabled, has no password, or is somebody else than the login was begun for is
/// looked up as often, counted as often, and checked against a hash of the same cost that nothing matches.
async fn check(
    cx: &RequestContext<'_>,
    entered: &Entered,
    attempt: &mut Attempt<'_>,
    username: &Identifier,
    mut typed: Typed,
    keyed: &Keyed,
) -> Result<Checked, Problem> {
    attempt.count_in_login(cx).await?;
    let account = entered.account(cx).await?;
    let is_theirs = entered.leads_to(cx, username, account.as_ref().map(Account::id)).await?;
    let account = account.filter(|_| is_theirs);
    let user = account.as_ref().map(|account| account.id().clone());
    let below_ceiling = attempt.count_for(cx, user.as_ref()).await?;
    let stored = account.as_ref().and_then(Account::password_hash).filter(|_| below_ceiling).cloned();
    let password = Password::new(take(&mut *typed.0));
    match (cx.core.passwords.verify(password, stored.clone()).await, stored, user) {
        (Ok(Verdict::Right { rehashed, .. }), Some(stored), Some(user)) => {
            let mut marks = vec![mark(&stored, keyed)];
            if let Some(better) = rehashed {
                marks.extend(upgrade(cx, entered, &user, &stored, better, keyed).await);
            }
            Ok(Checked { user: Some(user), marks })
        }
        (Ok(_), ..) => Ok(Checked { user: None, marks: Vec::new() }),
        (Err(_), ..) => Err(Problem::unavailable()),
    }
}

/// Puts a hash of today in the place of a weak one, and marks what stands there then: of two logins at once one was first,
/// and some `Users` keep what they have. That it fails harms nobody: the next login tries again.
async fn upgrade(
    cx: &RequestContext<'_>,
    entered: &Entered,
    user: &UserId,
    old: &PasswordHash,
    new: PasswordHash,
    keyed: &Keyed,
) -> Option<[u8; 32]> {
    let users = &cx.core.users;
    if let Err(error) = users.upgrade_password(&entered.login.tenant, user, old, new).await {
        crate::util::trace::warning!("a weak password hash could not be replaced: {error}");
    }
    let account = entered.account(cx).await.ok()??;
    account.password_hash().filter(|_| account.id() == user).map(|hash| mark(hash, keyed))
}
