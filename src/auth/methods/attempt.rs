//! Attempts to prove a step, and where they are counted.

use crate::{
    auth::{
        http::problem::Problem,
        methods::step::LoginStep,
        state::{
            devices::DeviceOwner,
            guard::{AttemptCount, AttemptKey},
        },
    },
    event::EventKind,
    limit::Spend,
    login::{LoginCall, PasskeyChallenge},
    policy::Method,
    session::UserId,
    util::{handle::Handle, secret::Digest},
};

/// An attempt, counted up front and refunded on success.
///
/// It counts against the caller's address, the submitted name, the account behind that name, and the login. Only the first
/// two refuse an attempt visibly. In a browser that is trusted for the account, the browser takes the place of the name.
pub(crate) struct Attempt<'a> {
    step: &'a LoginStep<'a>,
    method: Method,
    submitted: Digest,
    account: Option<UserId>,
    device: Option<Handle>,
    spend: Option<Spend>,
    /// The row of the name or of the trusted browser, once it has counted the attempt.
    row: Option<Digest>,
    in_login: bool,
    counted_for_account: bool,
}

impl<'a> Attempt<'a> {
    /// Counts the attempt for the address.
    ///
    /// # Errors
    ///
    /// Returns a problem with the time to wait after too many failures.
    pub(crate) async fn begin(step: &'a LoginStep<'a>, method: Method, submitted: Digest) -> Result<Self, Problem> {
        let core = step.cx.core;
        let spend = match step.cx.known_address() {
            None => None,
            Some(address) => {
                let decision = core.limits.failures.check(&address, 1).await;
                if !decision.is_admitted() {
                    return Err(step.locked(method, decision.wait()));
                }
                Some(decision.into_spend())
            }
        };
        let (account, device, row) = (None, None, None);
        let (in_login, counted_for_account) = (false, false);
        Ok(Self { step, method, submitted, account, device, spend, row, in_login, counted_for_account })
    }

    /// Counts the attempt for what was submitted, or for the trusted browser, and for the account. The work is the same
    /// without an account. Returns whether the attempt may still be right.
    ///
    /// # Errors
    ///
    /// Returns a problem with the time to wait after too many failures.
    pub(crate) async fn count_for(&mut self, owner: DeviceOwner<'_>) -> Result<bool, Problem> {
        let (core, keyed) = (self.step.cx.core, self.step.keyed);
        self.account = owner.account.map(|account| account.id().clone());
        self.device = self.step.device(owner);
        match core.guard.count(self.key(), keyed).await? {
            AttemptCount::Counted(row) => self.row = Some(row),
            AttemptCount::MustWait(wait) => return Err(self.step.locked(self.method, wait)),
        }
        let below_ceiling = core.guard.count_hidden(self.key(), keyed).await?;
        self.counted_for_account = below_ceiling;
        if !below_ceiling {
            self.step.tally(EventKind::LoginCeiling, Some(self.method));
        }
        Ok(below_ceiling)
    }

    /// Counts the attempt in the login, before a check that takes time.
    pub(crate) async fn count_in_login(&mut self) -> Result<(), Problem> {
        let counted = self.step.apply(&LoginCall::Attempt(self.method)).await?;
        counted.view(self.step.now())?;
        self.in_login = true;
        Ok(())
    }

    /// Takes the challenge for a passkey, which counts the attempt in the login. Only one of several attempts gets it.
    pub(crate) async fn take_challenge(&mut self, open: &PasskeyChallenge) -> Result<(), Problem> {
        let taken = self.step.apply(&LoginCall::TakePasskey(open)).await?;
        taken.view(self.step.now())?;
        self.in_login = true;
        Ok(())
    }

    /// Removes the failures in a row after a right secret.
    pub(crate) async fn succeeded(self) {
        let core = self.step.cx.core;
        if let Some(row) = self.row
            && let Err(error) = core.guard.clear(self.key(), row, self.step.keyed).await
        {
            crate::util::trace::warning!("failures before a successful step are still counted: {error}");
            core.journal.store_failed();
        }
        self.refund();
    }

    /// Uncounts an attempt that could not be checked. If this fails too, the attempt stays counted.
    pub(crate) async fn withdraw(self) {
        let core = self.step.cx.core;
        if let Some(row) = self.row
            && let Err(error) = core.guard.uncount(self.key(), row, self.counted_for_account, self.step.keyed).await
        {
            crate::util::trace::warning!("an attempt that could not be checked stays counted: {error}");
            core.journal.store_failed();
        }
        if self.in_login && self.step.apply(&LoginCall::Withdraw).await.is_err() {
            crate::util::trace::warning!("an attempt that could not be checked stays counted in its login");
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
            device: self.device,
        }
    }
}
