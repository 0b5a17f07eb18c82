//! A completed login of this browser: how it is found, spent and answered.

use std::sync::Arc;

use http::Response;

use crate::{
    auth::{
        context::RequestContext,
        factors::{credentials::row::is_of_credential, signed_in::SignedIn},
        http::{
            cookies::PresentedLogin,
            problem::{Code, Problem},
        },
        state::{
            accounts::GenerationOf,
            logins::{PreparedCall, StoredLogin},
        },
    },
    client::Client,
    event::EventKind,
    http::{body::Body, cookie::SetCookie},
    login::{Binding, Keyed, Login, LoginCall},
    policy::LoginPlan,
    session::{Authentication, Session, UserId},
    store::{
        StoreError, Version,
        batch::Batch,
        table::{ReadRow, Stored},
    },
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// A completed login, and the cookie that it was found by.
pub(crate) struct CompletedLogin<'c> {
    stored: StoredLogin,
    cookie: &'c PresentedLogin<'c>,
    /// All login cookies of the browser.
    presented: &'c [PresentedLogin<'c>],
}

/// The logins of a browser, in the order of their cookies.
pub(crate) type FoundLogins = Vec<Option<StoredLogin>>;

/// A session that another login of this browser began or updated.
pub(crate) struct SessionOfOtherTab {
    pub(crate) sid: PublicId,
    pub(crate) user: UserId,
    /// The other login was spent first.
    pub(crate) came_first: bool,
}

impl<'c> CompletedLogin<'c> {
    /// Reads the logins of this browser, and whether the challenge of a request was redeemed, in one call of the store.
    pub(crate) async fn read_logins(
        cx: &RequestContext<'_>,
        request: Option<&Binding>,
        presented: &[PresentedLogin<'_>],
    ) -> Result<(bool, FoundLogins), StoreError> {
        let (core, mut batch) = (cx.core, Batch::without_user(&cx.core.store));
        let challenge = request.map(|binding| core.redeemed_challenges.prepare_challenge_read(binding)).transpose()?;
        let challenge = challenge.map(|read| batch.add(read));
        let reads = presented.iter().map(|cookie| core.logins.prepare_login_read(&cookie.digest));
        let logins = batch.add_all(reads.collect::<Result<Vec<_>, _>>()?);
        let outcomes = batch.run().await?;
        let redeemed = challenge.map(|read| outcomes.row(&read)).transpose()?;
        let logins = logins.iter().map(|read| Ok(outcomes.row(read)?.live.map(|login| login.map(Arc::new))));
        Ok((redeemed.is_some_and(|row| row.live.is_some()), logins.collect::<Result<_, StoreError>>()?))
    }

    /// Finds the newest login of this browser that is completed at the client's tenant, meets the plan and is `wanted`.
    pub(crate) fn newest(
        cx: &RequestContext<'_>,
        client: &Client,
        plan: &LoginPlan,
        (presented, logins, signed_in): (&'c [PresentedLogin<'c>], FoundLogins, Option<&SignedIn>),
        wanted: impl Fn(&Login) -> bool,
    ) -> Option<Self> {
        let mut newest: Option<Self> = None;
        for (cookie, stored) in presented.iter().zip(logins) {
            let Some(stored) = stored else { continue };
            let login = &stored.value;
            let answers = login.is_completed(cx.core.logins.now())
                && !login.wanted.is_reset
                && login.tenant == *client.tenant()
                && cookie.name == cx.core.cookies.name_of(&login.id)
                // a login that continues a session counts as long as the session does
                && (login.session.is_none() || signed_in.is_some_and(|it| it.bears(login)))
                && plan.is_met_by(login.proved())
                // a credential that counted in the login counts for this plan, too
                && (login.plan.is_no_weaker_than(plan) || !login.proofs.iter().any(is_of_credential))
                // a second factor that this plan demands was asked for, too
                && login.plan.asks_as_much_as(plan, login.proved())
                && wanted(login);
            if answers && newest.as_ref().is_none_or(|other| other.login().began < login.began) {
                newest = Some(Self { stored, cookie, presented });
            }
        }
        newest
    }

    /// Returns whether the browser has no other login.
    pub(crate) fn is_alone(&self) -> bool {
        self.presented.len() == 1
    }

    /// Returns the id of the session that the login begins. It is the same for each request that tries, so that repeated
    /// failures do not list ever more sessions.
    pub(crate) fn new_session(&self) -> PublicId {
        PublicId::of_digest(&SecretDigest::of_secret(
            [b"tollgate session of a login:", &self.cookie.digest.as_bytes()[..]].concat(),
        ))
    }

    pub(crate) fn login(&self) -> &Login {
        &self.stored.value
    }

    /// Returns who logged in. The account of a login of its own is checked when its session has begun, by
    /// [`confirm`](Self::confirm).
    ///
    /// # Errors
    ///
    /// Returns `access_denied` if the account of a login that builds on a session may not log in any more, or if one of the
    /// proofs stopped counting.
    pub(crate) async fn authentication(
        &self,
        cx: &RequestContext<'_>,
        acr: Option<&str>,
    ) -> Result<Option<Authentication>, Problem> {
        let keyed = cx.core.keyed().await?;
        let Some(who) = self.login().authentication(acr) else { return Ok(None) };
        if self.login().session.is_some() && cx.core.counting(&who, GenerationOf::Account, keyed).await?.is_none() {
            return Err(self.denied(cx, keyed));
        }
        Ok(Some(who))
    }

    /// Returns whether the account may log in and each proof of a session that has just begun counts for it. If not, ends
    /// the session. Its cookie must not be sent before.
    ///
    /// The account is read after the session was written, so that a change of the account either sees the session or is
    /// seen here. So is a call of [`end_everything`](crate::AuthService::end_everything) since the login began.
    pub(crate) async fn confirm(&self, cx: &RequestContext<'_>, session: &Session) -> Result<bool, StoreError> {
        let (core, keyed) = (cx.core, cx.core.keyed().await?);
        let account = core.counting(&session.authentication(), GenerationOf::Batch, keyed).await?;
        let has_ended = UnixTime::from_nanos(self.login().began) < core.store.cutoff().wait().await?;
        let counts = account.is_some() && !has_ended;
        if !counts {
            core.sessions.revoke(session).await?;
        }
        Ok(counts)
    }

    /// Returns an error if the reason why no session could begin is the account, which was ended or closed.
    pub(crate) async fn check_account(&self, cx: &RequestContext<'_>, who: &Authentication) -> Result<(), Problem> {
        let keyed = cx.core.keyed().await?;
        match cx.core.counting(who, GenerationOf::Account, keyed).await? {
            Some(_) => Ok(()),
            None => Err(self.denied(cx, keyed)),
        }
    }

    fn denied(&self, cx: &RequestContext<'_>, keyed: &Keyed) -> Problem {
        cx.core.journal.tally_login(EventKind::LoginFailed, self.login(), (None, None), keyed);
        Problem::new(Code::AccessDenied, "the account is not allowed to log in")
    }

    /// Returns the call that spends the login for this session, with the operation that stores it.
    pub(crate) fn prepare_spend<'x>(
        &self,
        cx: &'x RequestContext<'_>,
        session: &PublicId,
    ) -> Result<PreparedCall<'x>, StoreError> {
        cx.core.logins.prepare(&self.cookie.digest, &self.stored, &LoginCall::Consume(session))
    }

    /// Notes that the login was spent.
    pub(crate) fn spent(&mut self, prepared: PreparedCall<'_>, version: Version) {
        self.stored = prepared.update_after_write(Some(version), self.stored.clone()).stored;
    }

    /// Notes that another call has changed the login. Returns `false` if it is gone.
    pub(crate) fn changed(&mut self, row: ReadRow<Login>) -> bool {
        let found = row.live.map(|login| login.map(Arc::new));
        found.map(|login| self.stored = login).is_some()
    }

    /// Spends the login for the session that it begins or updates. Returns `false` if it was spent before.
    pub(crate) async fn spend(&mut self, cx: &RequestContext<'_>, session: &PublicId) -> Result<bool, StoreError> {
        let spend = LoginCall::Consume(session);
        let Some(update) = cx.core.logins.apply(&self.cookie.digest, self.stored.clone(), &spend).await? else {
            return Ok(false);
        };
        self.stored = update.stored;
        Ok(update.answer.is_ok())
    }

    /// Notes that the login, which was spent for another session, joined this one.
    pub(crate) async fn note_joined_session(
        &self,
        cx: &RequestContext<'_>,
        session: &PublicId,
    ) -> Result<(), StoreError> {
        cx.core.logins.apply(&self.cookie.digest, self.stored.clone(), &LoginCall::Join(session)).await.map(drop)
    }

    /// Returns the sessions of other logins at the same tenant that this browser has spent, newest first.
    ///
    /// Two tabs can finish their logins at the same time. Then neither request has the session cookie of the other, but
    /// both have the cookies of both logins.
    pub(crate) async fn sessions_of_other_tabs(
        &self,
        cx: &RequestContext<'_>,
    ) -> Result<Vec<SessionOfOtherTab>, StoreError> {
        let mut found = Vec::new();
        for cookie in self.presented.iter().filter(|cookie| !cookie.digest.matches(&self.cookie.digest)) {
            let Some(Stored { value: login, .. }) = cx.core.logins.find(&cookie.digest).await? else { continue };
            if let (Some(sid), Some(user)) = (login.spent_for(), login.subject.user())
                && login.tenant == self.login().tenant
                && cookie.name == cx.core.cookies.name_of(&login.id)
            {
                let came_first = login.was_touched_before(self.login());
                found.push((login.touched, SessionOfOtherTab { sid, user: user.id.clone(), came_first }));
            }
        }
        found.sort_by_key(|(touched, _)| std::cmp::Reverse(*touched));
        Ok(found.into_iter().map(|(_, session)| session).collect())
    }

    /// Sets the cookies of the session and removes the cookie of the login.
    pub(crate) fn finish(
        &self,
        cx: &RequestContext<'_>,
        cookies: Vec<SetCookie>,
        mut response: Response<Body>,
    ) -> Response<Body> {
        let removal = cx.core.cookies.removal(self.cookie.name);
        for cookie in cookies.into_iter().chain(removal) {
            cookie.append_to(response.headers_mut());
        }
        response
    }
}
