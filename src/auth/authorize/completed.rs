//! A completed login of this browser: how it is found, spent and answered.

use http::Response;

use crate::{
    auth::{
        authorize::signed_in::SignedIn,
        context::RequestContext,
        http::{
            cookies::PresentedLogin,
            problem::{Code, Problem},
        },
    },
    client::Client,
    event::EventKind,
    http::{body::Body, cookie::SetCookie},
    login::{Login, LoginCall},
    policy::LoginPlan,
    session::{Authentication, UserId},
    store::{StoreError, table::Stored},
    util::handle::Handle,
};

/// A completed login, and the cookie that it was found by.
pub(crate) struct CompletedLogin<'c> {
    stored: Stored<Login>,
    cookie: &'c PresentedLogin<'c>,
    /// All login cookies of the browser.
    presented: &'c [PresentedLogin<'c>],
}

/// A session that another login of this browser began or updated.
pub(crate) struct SessionOfOtherTab {
    pub(crate) sid: Handle,
    pub(crate) user: UserId,
    /// The other login was spent first.
    pub(crate) came_first: bool,
}

impl<'c> CompletedLogin<'c> {
    /// Finds the newest login of this browser that is completed at the client's tenant, meets the plan and is `wanted`.
    pub(crate) async fn newest(
        cx: &RequestContext<'_>,
        client: &Client,
        plan: &LoginPlan,
        (presented, signed_in): (&'c [PresentedLogin<'c>], Option<&SignedIn>),
        wanted: impl Fn(&Login) -> bool,
    ) -> Result<Option<Self>, StoreError> {
        let logins = &cx.core.logins;
        let mut newest: Option<Self> = None;
        for cookie in presented {
            let Some(stored) = logins.find(&cookie.digest).await? else { continue };
            let login = &stored.value;
            let answers = login.is_completed(logins.now())
                && login.tenant == *client.tenant()
                && cookie.name == cx.core.cookies.name_of(&login.id)
                // proofs of a session count as long as the session does
                && (login.carried == 0 || signed_in.is_some_and(|it| it.bears(login)))
                && plan.is_met_by(login.proved())
                && wanted(login);
            if answers && newest.as_ref().is_none_or(|other| other.login().began < login.began) {
                newest = Some(Self { stored, cookie, presented });
            }
        }
        Ok(newest)
    }

    pub(crate) fn login(&self) -> &Login {
        &self.stored.value
    }

    /// Returns who logged in.
    ///
    /// # Errors
    ///
    /// Returns `access_denied` if the account may not log in any more, or if one of the proofs stopped counting.
    pub(crate) async fn authentication(
        &self,
        cx: &RequestContext<'_>,
        acr: Option<&str>,
    ) -> Result<Option<Authentication>, Problem> {
        let keyed = cx.core.keyed().await?;
        let Some(who) = self.login().authentication(acr) else { return Ok(None) };
        if cx.core.accounts.counting(&who, keyed).await?.is_none() {
            cx.core.journal.tally_login(EventKind::LoginFailed, self.login(), None, keyed);
            return Err(Problem::new(Code::AccessDenied, "the account is not allowed to log in"));
        }
        Ok(Some(who))
    }

    /// Spends the login for the session that it begins or updates. Returns `false` if it was spent before.
    pub(crate) async fn spend(&mut self, cx: &RequestContext<'_>, session: &Handle) -> Result<bool, StoreError> {
        let spend = LoginCall::Consume(session);
        let Some(update) = cx.core.logins.apply(&self.cookie.digest, self.stored.clone(), &spend).await? else {
            return Ok(false);
        };
        self.stored = update.stored;
        Ok(update.answer.is_ok())
    }

    /// Notes that the login, which was spent for another session, joined this one.
    pub(crate) async fn join(&self, cx: &RequestContext<'_>, session: &Handle) -> Result<(), StoreError> {
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
