//! [`Attempt`]: a try that is counted until it proves right, or until it turns out that nobody can tell.

use crate::{
    auth::{context::RequestContext, http::problem::Problem, state::guard::Tried, steps::step::Entered},
    event::EventKind,
    limit::{Decision, Spend},
    login::{Call, Keyed},
    policy::Method,
    session::UserId,
    util::secret::Digest,
};

/// What is counted for one try: against the address that it comes from, what was submitted, the account that this leads
/// to, and the login. The first two refuse aloud.
pub(crate) struct Attempt<'a> {
    entered: &'a Entered,
    keyed: &'a Keyed,
    method: Method,
    submitted: Digest,
    account: Option<UserId>,
    spend: Option<Spend>,
    in_login: bool,
    counted_for_account: bool,
}

impl<'a> Attempt<'a> {
    /// Counts it against address and submission; or says how long to wait.
    pub(crate) async fn begin(
        cx: &RequestContext<'_>,
        entered: &'a Entered,
        method: Method,
        submitted: Digest,
        keyed: &'a Keyed,
    ) -> Result<Self, Problem> {
        let core = cx.core;
        let spend = match cx.known_address().map(|address| core.limits.failures.check(&address, 1)) {
            None => None,
            Some(Decision::Admitted(admission)) => Some(admission.spend),
            Some(Decision::Refused(refusal)) => {
                return Err(entered.locked(cx, method, refusal.wait(), keyed));
            }
        };
        let attempt = Self {
            entered,
            keyed,
            method,
            submitted,
            account: None,
            spend,
            in_login: false,
            counted_for_account: false,
        };
        match core.guard.count(attempt.tried(), keyed).await {
            Ok(Ok(())) => Ok(attempt),
            Ok(Err(wait)) => {
                attempt.refund(cx);
                Err(entered.locked(cx, method, wait, keyed))
            }
            Err(error) => {
                attempt.refund(cx);
                Err(error.into())
            }
        }
    }

    /// Counts it in the login, for what takes time to check.
    pub(crate) async fn count_in_login(&mut self, cx: &RequestContext<'_>) -> Result<(), Problem> {
        let counted = self.entered.step(cx, &Call::Try(self.method)).await?;
        counted.told(cx.core.logins.now())?;
        self.in_login = true;
        Ok(())
    }

    /// Counts it against the account, or as much against nobody's; and says whether it may still be right.
    pub(crate) async fn count_for(
        &mut self,
        cx: &RequestContext<'_>,
        account: Option<&UserId>,
    ) -> Result<bool, Problem> {
        self.account = account.cloned();
        let below_ceiling = cx.core.guard.count_silently(self.tried(), self.keyed).await?;
        self.counted_for_account = below_ceiling;
        if !below_ceiling {
            let journal = &cx.core.journal;
            journal.tally_login(EventKind::LoginCeiling, &self.entered.login, Some(self.method), self.keyed);
        }
        Ok(below_ceiling)
    }

    /// It was right: failures in a row end here.
    pub(crate) async fn succeeded(self, cx: &RequestContext<'_>) {
        cx.core.guard.clear(self.tried(), self.keyed).await;
        self.refund(cx);
    }

    /// It could not be checked, and so it counts nowhere. Where even that fails, it is the store that is out of reach.
    pub(crate) async fn take_back(self, cx: &RequestContext<'_>) {
        let core = cx.core;
        if let Err(error) = core.guard.uncount(self.tried(), self.counted_for_account, self.keyed).await {
            crate::util::trace::warning!("a try that could not be checked stays counted: {error}");
        }
        if self.in_login
            && let Err(error) = core.logins.step(&self.entered.digest, &Call::TakeBack).await
        {
            crate::util::trace::warning!("a try that could not be checked stays counted: {error}");
        }
        self.refund(cx);
    }

    fn refund(self, cx: &RequestContext<'_>) {
        if let Some(spend) = self.spend {
            cx.core.limits.failures.refund(spend);
        }
    }

    fn tried(&self) -> Tried<'_> {
        Tried {
            tenant: &self.entered.login.tenant,
            method: self.method,
            submitted: &self.submitted,
            account: self.account.as_ref(),
        }
    }
}
