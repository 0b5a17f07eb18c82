//! Attempts to prove a step, and where they are counted.

use crate::{
    auth::{http::problem::Problem, methods::step::LoginStep, state::guard::AttemptKey},
    event::EventKind,
    limit::Spend,
    login::LoginCall,
    policy::Method,
    session::UserId,
    util::secret::Digest,
};

/// An attempt, counted up front and refunded on success.
///
/// It counts against the caller's address, the submitted name, the account behind that name, and the login. Only the first
/// two refuse an attempt visibly.
pub(crate) struct Attempt<'a> {
    step: &'a LoginStep<'a>,
    method: Method,
    submitted: Digest,
    account: Option<UserId>,
    spend: Option<Spend>,
    in_login: bool,
    counted_for_account: bool,
}

impl<'a> Attempt<'a> {
    /// Counts the attempt for the address and for what was submitted.
    ///
    /// # Errors
    ///
    /// Returns a problem with the time to wait after too many failures.
    pub(crate) async fn begin(step: &'a LoginStep<'a>, method: Method, submitted: Digest) -> Result<Self, Problem> {
        let core = step.cx.core;
        let spend = match step.cx.known_address().map(|address| core.limits.failures.check(&address, 1)) {
            None => None,
            Some(decision) if decision.is_admitted() => Some(decision.into_spend()),
            Some(decision) => return Err(step.locked(method, decision.wait())),
        };
        let (account, in_login, counted_for_account) = (None, false, false);
        let attempt = Self { step, method, submitted, account, spend, in_login, counted_for_account };
        match core.guard.count(attempt.key(), step.keyed).await {
            Ok(Ok(())) => Ok(attempt),
            Ok(Err(wait)) => {
                attempt.refund();
                Err(step.locked(method, wait))
            }
            Err(error) => {
                attempt.refund();
                Err(error.into())
            }
        }
    }

    /// Counts the attempt in the login, before a check that takes time.
    pub(crate) async fn count_in_login(&mut self) -> Result<(), Problem> {
        let counted = self.step.apply(&LoginCall::Attempt(self.method)).await?;
        counted.view(self.step.now())?;
        self.in_login = true;
        Ok(())
    }

    /// Counts the attempt for the account, or with the same work for none. Returns whether it may still be right.
    pub(crate) async fn count_for(&mut self, account: Option<&UserId>) -> Result<bool, Problem> {
        self.account = account.cloned();
        let guard = &self.step.cx.core.guard;
        let below_ceiling = guard.count_hidden(self.key(), self.step.keyed).await?;
        self.counted_for_account = below_ceiling;
        if !below_ceiling {
            self.step.tally(EventKind::LoginCeiling, Some(self.method));
        }
        Ok(below_ceiling)
    }

    /// Removes the failures in a row after a right secret.
    pub(crate) async fn succeeded(self) {
        let core = self.step.cx.core;
        if let Err(error) = core.guard.clear(self.key(), self.step.keyed).await {
            crate::util::trace::warning!("failures before a successful step are still counted: {error}");
            core.journal.store_failed();
        }
        self.refund();
    }

    /// Uncounts an attempt that could not be checked. If this fails too, the attempt stays counted.
    pub(crate) async fn withdraw(self) {
        let core = self.step.cx.core;
        if let Err(error) = core.guard.uncount(self.key(), self.counted_for_account, self.step.keyed).await {
            crate::util::trace::warning!("an attempt that could not be checked stays counted: {error}");
            core.journal.store_failed();
        }
        if self.in_login
            && let Err(error) = core.logins.apply(&self.step.digest, &LoginCall::Withdraw).await
        {
            crate::util::trace::warning!("an attempt that could not be checked stays counted: {error}");
            core.journal.store_failed();
        }
        self.refund();
    }

    fn refund(self) {
        if let Some(spend) = self.spend {
            self.step.cx.core.limits.failures.refund(spend);
        }
    }

    fn key(&self) -> AttemptKey<'_> {
        AttemptKey {
            tenant: &self.step.login.tenant,
            method: self.method,
            submitted: &self.submitted,
            account: self.account.as_ref(),
        }
    }
}
