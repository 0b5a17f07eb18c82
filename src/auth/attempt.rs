//! [`Attempt`]: a try that is counted until it proves right, or until it turns out that nobody can tell.

use super::{guard::Tried, problem::Problem, step::Entered, visit::Visit};
use crate::{
    event::EventKind,
    limit::Spend,
    login::{Call, Keyed},
    policy::Method,
    session::UserId,
    util::secret::Digest,
};

/// What is counted for one try: against the address that it comes from, what was submitted, the account that this leads
/// to, and the login. The first two refuse aloud.
pub(super) struct Attempt<'a> {
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
    pub(super) async fn begin(
        visit: &Visit<'_>,
        entered: &'a Entered,
        method: Method,
        submitted: Digest,
        keyed: &'a Keyed,
    ) -> Result<Self, Problem> {
        let running = visit.inner.running();
        let spend = match visit.known_address().map(|address| running.failures.check(&address, 1)) {
            None => None,
            Some(decision) if decision.is_admitted() => Some(decision.into_spend()),
            Some(decision) => return Err(entered.locked(visit, method, decision.wait(), keyed)),
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
        match running.guard.count(attempt.tried(), keyed).await {
            Ok(Ok(())) => Ok(attempt),
            Ok(Err(wait)) => {
                attempt.refund(visit);
                Err(entered.locked(visit, method, wait, keyed))
            }
            Err(error) => {
                attempt.refund(visit);
                Err(error.into())
            }
        }
    }

    /// Counts it in the login, for what takes time to check.
    pub(super) async fn count_in_login(&mut self, visit: &Visit<'_>) -> Result<(), Problem> {
        let counted = self.entered.step(visit, &Call::Try(self.method)).await?;
        counted.told(visit.inner.running().logins.now())?;
        self.in_login = true;
        Ok(())
    }

    /// Counts it against the account, or as much against nobody's; and says whether it may still be right.
    pub(super) async fn count_for(&mut self, visit: &Visit<'_>, account: Option<&UserId>) -> Result<bool, Problem> {
        self.account = account.cloned();
        let below_ceiling = visit.inner.running().guard.count_silently(self.tried(), self.keyed).await?;
        self.counted_for_account = below_ceiling;
        if !below_ceiling {
            let journal = visit.inner.journal();
            journal.tally_login(EventKind::LoginCeiling, &self.entered.login, Some(self.method), self.keyed);
        }
        Ok(below_ceiling)
    }

    /// It was right: failures in a row end here.
    pub(super) async fn succeeded(self, visit: &Visit<'_>) {
        visit.inner.running().guard.clear(self.tried(), self.keyed).await;
        self.refund(visit);
    }

    /// It could not be checked, and so it counts nowhere. Where even that fails, it is the store that is out of reach.
    pub(super) async fn take_back(self, visit: &Visit<'_>) {
        let running = visit.inner.running();
        if let Err(error) = running.guard.uncount(self.tried(), self.counted_for_account, self.keyed).await {
            crate::util::trace::warning!("a try that could not be checked stays counted: {error}");
        }
        if self.in_login
            && let Err(error) = running.logins.step(&self.entered.digest, &Call::TakeBack).await
        {
            crate::util::trace::warning!("a try that could not be checked stays counted: {error}");
        }
        self.refund(visit);
    }

    fn refund(self, visit: &Visit<'_>) {
        if let Some(spend) = self.spend {
            visit.inner.running().failures.refund(spend);
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
