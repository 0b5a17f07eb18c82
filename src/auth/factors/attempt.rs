//! Attempts to prove a step, and where they are counted.

use std::time::Duration;

use super::step::LoginStep;
use crate::{
    auth::{
        context::RequestContext,
        http::problem::Problem,
        state::{
            devices::DeviceOwner,
            guard::{AttemptDecision, AttemptKey, AttemptRow, Counted},
            logins::{LoginUpdate, ROUNDS},
        },
    },
    event::EventKind,
    limit::{AnyLimiter, Spend},
    login::{BoundUser, LoginCall, LoginError, OpenChallenge, Proved},
    policy::{EnrolledFactors, Method},
    session::UserId,
    store::{StoreError, StoreErrorKind, batch::Batch},
    util::{public_id::PublicId, secret::SecretDigest},
};

/// The user whose secret was right.
pub(crate) struct RightSecret {
    pub(crate) user: BoundUser,
    /// The mark of the proof.
    pub(crate) mark: Option<[u8; 32]>,
    pub(crate) factors: EnrolledFactors,
}

/// An attempt, counted before the check, and refunded or cleared on success.
///
/// It counts against the caller's address, what was submitted (a name or a passkey), the account behind it, and the login. Callers
/// never learn that the count of the account refuses an attempt. A browser that is trusted for the account takes the place of the name.
pub(crate) struct Attempt<'a> {
    step: &'a LoginStep<'a>,
    method: Method,
    submitted: SecretDigest,
    account: Option<UserId>,
    device: Option<PublicId>,
    spend: AddressSpend<'a>,
    /// The counts that were written.
    pub(crate) counted: Counted,
    in_login: bool,
}

impl<'a> Attempt<'a> {
    /// Counts the attempt for the address.
    ///
    /// # Errors
    ///
    /// Returns a problem with the time to wait after too many failures.
    pub(crate) async fn start_attempt(
        step: &'a LoginStep<'a>,
        method: Method,
        submitted: SecretDigest,
    ) -> Result<Self, Problem> {
        let spend = AddressSpend::spend_one(step.cx, &step.cx.core.limits.failures).await;
        let spend = spend.map_err(|wait| step.locked(method, wait))?;
        let (account, device, counted, in_login) = (None, None, Counted::default(), false);
        Ok(Self { step, method, submitted, account, device, spend, counted, in_login })
    }

    /// Counts the attempt for what was submitted, or for the trusted browser, and for the account. The work is the same
    /// without an account. Returns whether the attempt may still be right.
    ///
    /// # Errors
    ///
    /// Returns a problem with the time to wait after too many failures.
    pub(crate) async fn count_for(&mut self, owner: DeviceOwner<'_>) -> Result<bool, Problem> {
        self.set_owner(owner);
        let store = &self.step.cx.core.store;
        for _ in 0..ROUNDS {
            let ids = self.key().ids(self.step.keyed);
            let mut batch = Batch::without_user(store);
            let reads = batch.add_all(self.step.cx.core.guard.prepare_attempt_reads(&self.step.login.tenant, &ids)?);
            let read = batch.run().await?;
            let rows = ids.into_iter().zip(&reads).map(|(id, row)| Ok((id, read.row(row)?)));
            let rows = rows.collect::<Result<Vec<_>, StoreError>>()?;
            let decision = self.decide(&rows)?;
            let mut batch = Batch::without_user(store);
            let counts = batch.add_all(decision.counts.iter().cloned());
            if self.counted.note(&decision, (&counts, &batch.run().await?)) {
                return Ok(self.check_ceiling());
            }
        }
        Err(StoreError::from(StoreErrorKind::Busy).into())
    }

    /// Sets whose attempt it is.
    pub(crate) fn set_owner(&mut self, owner: DeviceOwner<'_>) {
        self.account = owner.account.map(|account| account.id().clone());
        self.device = self.step.device(owner);
    }

    /// Decides on the attempt.
    ///
    /// # Errors
    ///
    /// Returns a problem with the time to wait after too many failures.
    pub(crate) fn decide<'r>(&self, rows: &'r [AttemptRow]) -> Result<AttemptDecision<'r>, Problem>
    where
        'a: 'r,
    {
        let decision = self.step.cx.core.guard.decide_attempt(self.key(), (rows, self.counted))?;
        decision.map_err(|wait| self.step.locked(self.method, wait))
    }

    /// Returns whether the attempt may still be right, once it is counted, and records an event if not.
    pub(crate) fn check_ceiling(&self) -> bool {
        let below_ceiling = self.counted.below_ceiling.unwrap_or_default();
        if !below_ceiling {
            self.step.tally(EventKind::LoginCeiling, Some(self.method));
        }
        below_ceiling
    }

    /// Counts the attempt in the login, before a check that takes time.
    pub(crate) async fn count_in_login(&mut self) -> Result<(), Problem> {
        let counted = self.step.apply(&LoginCall::Attempt(self.method)).await?;
        counted.response_view(self.step.now())?;
        self.in_login = true;
        Ok(())
    }

    /// Takes the challenge for a passkey, which counts the attempt in the login. Only one of several attempts gets it.
    pub(crate) async fn take_challenge(&mut self, open: &OpenChallenge) -> Result<(), Problem> {
        let taken = self.step.apply(&LoginCall::TakePasskey(open)).await?;
        taken.response_view(self.step.now())?;
        self.in_login = true;
        Ok(())
    }

    /// Settles the step with the outcome of the check. An attempt that could not be checked is withdrawn.
    pub(crate) async fn settle(self, checked: Result<Option<RightSecret>, Problem>) -> Result<LoginUpdate, Problem> {
        let right = match checked {
            Ok(right) => right,
            Err(problem) => {
                self.withdraw().await;
                return Err(problem);
            }
        };
        let proved = right.as_ref().map(|RightSecret { user, mark, factors }| Proved {
            user,
            mark: *mark,
            elsewhere: None,
            factors: *factors,
        });
        let update = self.step.apply(&LoginCall::Settle(self.method, proved)).await?;
        // a right password counts even if it arrives a second time, because users click twice
        let came_second = self.method == Method::Password
            && matches!(update.answer, Err(LoginError::NoStepRemaining | LoginError::MethodNotAllowed));
        if right.is_some() && (update.answer.is_ok() || came_second) {
            self.succeeded().await;
        }
        Ok(update)
    }

    /// Removes the consecutive failures after a right secret.
    async fn succeeded(self) {
        let core = self.step.cx.core;
        if let Some((row, _)) = self.counted.row
            && let Err(error) = core.guard.clear(self.key(), row, self.step.keyed).await
        {
            crate::util::trace::failure!("failures before a successful step are still counted", &error);
            core.journal.store_failed();
        }
        self.refund();
    }

    /// Uncounts an attempt that could not be checked. If this fails too, the attempt stays counted.
    pub(crate) async fn withdraw(self) {
        let core = self.step.cx.core;
        if self.counted.is_any()
            && let Err(error) = core.guard.uncount(self.key(), self.counted, self.step.keyed).await
        {
            crate::util::trace::failure!("an attempt that could not be checked stays counted", &error);
            core.journal.store_failed();
        }
        if self.in_login && self.step.apply(&LoginCall::Withdraw).await.is_err() {
            crate::util::trace::warning!("an attempt that could not be checked stays counted in its login");
        }
        self.refund();
    }

    /// Refunds the attempt of the address.
    pub(crate) fn refund(self) {
        self.spend.refund();
    }

    /// Returns whose attempt it is, and at what.
    pub(crate) fn key(&self) -> AttemptKey<'_> {
        AttemptKey {
            tenant: &self.step.login.tenant,
            method: self.method,
            submitted: &self.submitted,
            account: self.account.as_ref(),
            device: self.device,
        }
    }
}

/// The units that a call has spent of a limit on the address of its client. None if the address is unknown.
pub(crate) struct AddressSpend<'a> {
    limit: &'a AnyLimiter,
    spend: Option<Spend>,
}

impl<'a> AddressSpend<'a> {
    /// Spends one of what the limit allows. Returns how long the client must wait if nothing is left.
    pub(crate) async fn spend_one(cx: &RequestContext<'_>, limit: &'a AnyLimiter) -> Result<Self, Duration> {
        let Some(address) = cx.address.clone() else { return Ok(Self { limit, spend: None }) };
        let decision = limit.check(&address, 1).await;
        match decision.is_admitted() {
            true => Ok(Self { limit, spend: Some(decision.into_spend()) }),
            false => Err(decision.retry_after()),
        }
    }

    pub(crate) fn refund(self) {
        if let Some(spend) = self.spend {
            self.limit.refund_later(spend);
        }
    }
}
