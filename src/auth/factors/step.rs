//! A step of a login: the call, the login that it is about, and what every method needs for it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    auth::{
        context::{RequestContext, stages::OwnLogin},
        http::{
            answer,
            fields::Fields,
            problem::{Code, EndpointResult, Problem},
        },
        state::{
            accounts::FoundAccount,
            devices::DeviceOwner,
            guard::submitted,
            journal::EventSource,
            logins::{LoginUpdate, ROUNDS, StoredLogin},
        },
    },
    event::EventKind,
    login::{BoundUser, Keyed, Login, LoginCall, LoginError, Subject, refusal},
    policy::{EnrolledFactors, Method},
    session::UserId,
    store::{
        StoreError, StoreErrorKind,
        batch::{Batch, Outcomes},
        table::{ReadRow, RowOperation, Value},
    },
    user::{Account, Identifier},
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// A call for a login that was started in the same browser and with the same parameters.
pub(crate) struct LoginStep<'a> {
    pub(crate) cx: &'a RequestContext<'a>,
    pub(crate) keyed: &'a Keyed,
    /// The digest of the login's secret.
    pub(crate) digest: SecretDigest,
    /// The login at the time of the call.
    pub(crate) login: Arc<Login>,
    /// The login as it was read or written last, so that a change needs no read.
    pub(crate) latest: Mutex<StoredLogin>,
    pub(crate) fields: Fields,
    /// The name that was typed in this step. Events of a login without a user show its hash.
    pub(crate) typed: Option<Identifier>,
}

/// Prepares a step, if the client parameters of the call equal those of the login's start. Changes nothing.
pub(crate) async fn prepare_login_step<'a>(own: &'a OwnLogin<'_>, fields: Fields) -> Result<LoginStep<'a>, Problem> {
    let keyed = own.cx.core.keyed().await?;
    let (login, latest) = (Arc::clone(&own.stored.value), Mutex::new(own.stored.clone()));
    let step = LoginStep { cx: &own.cx, keyed, digest: own.digest, login, latest, fields, typed: None };
    if step.login.has_ended(step.now()) {
        step.tally(EventKind::SessionUseAfterExpire, None);
        return Err(step.problem(Problem::denied(LoginError::Expired)));
    }
    if let Some(difference) = step.login.binding.mismatch(|name| step.fields.parameter(name)) {
        step.tally(EventKind::SequenceFailed, None);
        return Err(step.problem(Problem::invalid(difference)));
    }
    Ok(step)
}

impl LoginStep<'_> {
    pub(crate) fn now(&self) -> UnixTime {
        self.cx.core.logins.now()
    }

    /// Applies a call to the stored login.
    pub(crate) async fn apply(&self, call: &LoginCall<'_>) -> Result<LoginUpdate, Problem> {
        let update = self.cx.core.logins.apply(&self.digest, self.latest(), call).await?;
        Ok(self.applied(update.ok_or_else(|| Problem::denied(LoginError::Expired))?))
    }

    /// Applies a call to the stored login, and reads the generation of its user in the same call of the store. Returns `None` if
    /// it is higher than this one. The call must grant nothing before the generation is compared again.
    pub(crate) async fn apply_for(
        &self,
        (user, generation): (&UserId, u64),
        call: &LoginCall<'_>,
    ) -> Result<Option<LoginUpdate>, Problem> {
        let core = self.cx.core;
        for _ in 0..ROUNDS {
            let latest = self.latest();
            let prepared = core.logins.prepare(&self.digest, &latest, call)?;
            let mut batch = core.accounts.batch(&self.login.tenant, Some(user))?.generation_first();
            let write = prepared.write.clone().map(|write| batch.add(write));
            let Some(outcomes) = batch.run().await?.since(generation) else { return Ok(None) };
            let version = write.as_ref().and_then(|write| outcomes.version(write));
            if write.is_none() || version.is_some() {
                return Ok(Some(self.applied(prepared.update_after_write(version, latest))));
            }
            self.refresh().await?;
        }
        Err(StoreError::from(StoreErrorKind::Busy).into())
    }

    /// Returns the login as it was read or written last.
    pub(crate) fn latest(&self) -> StoredLogin {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers how a call has changed the login.
    pub(crate) fn applied(&self, update: LoginUpdate) -> LoginUpdate {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = update.stored.clone();
        update
    }

    /// Reads the login again after another call has changed it.
    pub(crate) async fn refresh(&self) -> Result<(), Problem> {
        let found = self.cx.core.logins.find(&self.digest).await?;
        let found = found.ok_or_else(|| Problem::denied(LoginError::Expired))?;
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    /// Returns an error if the login would refuse a call. Counts and changes nothing.
    pub(crate) fn preview(&self, call: &LoginCall<'_>) -> Result<(), Problem> {
        match refusal(&self.login, call, self.now()) {
            Some(error) => Err(self.problem(Problem::denied(error))),
            None => Ok(()),
        }
    }

    /// Adds the state of the login to a problem.
    pub(crate) fn problem(&self, problem: Problem) -> Problem {
        problem.with_login_view(self.login.to_login_view(self.now()))
    }

    /// Refuses a call that a login for a new password can't make.
    pub(crate) fn refuse_reset(&self) -> Result<(), Problem> {
        match self.login.wanted.is_reset {
            true => Err(self.problem(Problem::new(Code::MethodNotAllowed, "this login sets a new password"))),
            false => Ok(()),
        }
    }

    pub(crate) fn unsupported(&self, detail: &'static str) -> Problem {
        self.problem(Problem::new(Code::UnsupportedMethod, detail))
    }

    /// Refuses an attempt because of the failures before it.
    pub(crate) fn locked(&self, method: Method, wait: Duration) -> Problem {
        self.tally(EventKind::LoginLocked, Some(method));
        self.problem(Problem::new(Code::TooManyAttempts, "too many attempts; try again later")).retry_in(wait)
    }

    pub(crate) fn tally(&self, kind: EventKind, method: Option<Method>) {
        self.tally_of(&self.login, kind, method, None);
    }

    fn tally_of(&self, login: &Login, kind: EventKind, method: Option<Method>, reason: Option<&'static str>) {
        let source = EventSource::from(login).or_named(self.typed.as_ref());
        self.cx.core.journal.tally_login(kind, source, (method, reason), self.keyed);
    }

    /// Finds the account of the login. In a login without a user it is the one behind `typed`.
    ///
    /// # Errors
    ///
    /// Ends the login if the generation of its user was raised since the first proof. Without a proof it goes on, and only a
    /// right secret shows that it has ended.
    pub(crate) async fn account(&self, typed: Option<&Identifier>) -> Result<FoundAccount, Problem> {
        let account = self.account_of(typed).await?;
        let found = self.cx.core.accounts.with_generation(&self.login.tenant, account).await?;
        if found.generation() > self.newest_generation() {
            return Err(self.end().await?);
        }
        Ok(found)
    }

    /// Finds the account of the login like [`account`](Self::account), without the generation of its user.
    pub(crate) async fn account_of(&self, typed: Option<&Identifier>) -> Result<Option<Account>, StoreError> {
        let (tenant, accounts) = (&self.login.tenant, &self.cx.core.accounts);
        match (&self.login.subject, typed) {
            (Subject::Unbound, Some(typed)) => accounts.named(tenant, typed).await,
            (subject, _) => accounts.of_user(tenant, subject.user().map(|user| &user.id)).await,
        }
    }

    /// Returns the newest generation with which the login goes on: that of a user who has proved a step.
    fn newest_generation(&self) -> u64 {
        let user = self.login.subject.user().filter(|_| !self.login.proofs.is_empty());
        user.map_or(u64::MAX, |user| user.generation)
    }

    /// Prepares an account whose generation is read together with other rows, by [`read_with`](Self::read_with). Reads it at
    /// once if the request has a device cookie, whose signature covers it.
    pub(crate) async fn for_batch(&self, account: Option<Account>) -> Result<FoundAccount, StoreError> {
        let core = self.cx.core;
        match core.devices.are_presented(&self.cx.parts.headers) {
            true => core.accounts.with_generation(&self.login.tenant, account).await,
            false => Ok(FoundAccount::without_generation(account)),
        }
    }

    /// Reads these rows, and the generation of the account with them if that was not done yet.
    ///
    /// # Errors
    ///
    /// Ends a login like [`account`](Self::account).
    pub(crate) async fn read_with<T: Value>(
        &self,
        found: &mut FoundAccount,
        reads: Vec<RowOperation<'_, T>>,
    ) -> Result<Vec<ReadRow<T>>, Problem> {
        let (core, newest) = (self.cx.core, self.newest_generation());
        let (slots, read) = if found.generation.is_some() {
            let mut batch = Batch::without_user(&core.store);
            let slots = batch.add_all(reads);
            let outcomes = batch.run().await?;
            (slots, Some(outcomes).filter(|_| found.generation() <= newest))
        } else {
            let mut batch = core.accounts.batch(&self.login.tenant, found.id())?;
            let slots = batch.add_all(reads);
            let outcomes = batch.run().await?.since(newest);
            found.generation = outcomes.as_ref().and_then(Outcomes::generation);
            (slots, outcomes)
        };
        let Some(outcomes) = read else { return Err(self.end().await?) };
        Ok(slots.iter().map(|slot| outcomes.row(slot)).collect::<Result<_, _>>()?)
    }

    /// Returns the second factors that a user whose secret was right has enrolled, if the login depends on them.
    pub(crate) async fn enrolled_factors(&self, user: &BoundUser) -> Result<EnrolledFactors, StoreError> {
        let (core, Login { tenant, plan, .. }) = (self.cx.core, &*self.login);
        if self.login.wanted.is_reset {
            let reset = core.reset_demand(tenant, &user.id, self.login.proved()).await?;
            return Ok(EnrolledFactors { reset: Some(reset), ..EnrolledFactors::default() });
        }
        core.enrolled_factors((tenant, &user.id), plan, self.login.proved()).await
    }

    /// Ends the login, and returns what the caller sees.
    pub(crate) async fn end(&self) -> Result<Problem, Problem> {
        let update = self.apply(&LoginCall::End).await?;
        Ok(update.response_view(self.now()).err().unwrap_or_else(|| Problem::denied(LoginError::Expired)))
    }

    /// Returns whether a typed name belongs to the account of the login. Asks the same for known and unknown users.
    pub(crate) async fn is_named(&self, typed: &Identifier, found: &FoundAccount) -> Result<bool, StoreError> {
        let is_bound_by_name = self.login.subject == Subject::Unbound || self.login.identifier.as_ref() == Some(typed);
        if is_bound_by_name {
            return Ok(found.active().is_some());
        }
        let accounts = &self.cx.core.accounts;
        accounts.is_named(&self.login.tenant, typed, found.active()).await
    }

    /// Returns the user that this browser may be trusted for.
    pub(crate) fn device_owner<'b>(&'b self, found: &FoundAccount, account: Option<&'b Account>) -> DeviceOwner<'b> {
        DeviceOwner { tenant: &self.login.tenant, account, generation: found.generation() }
    }

    /// Returns the id of this browser if it is trusted for this user.
    pub(crate) fn device(&self, owner: DeviceOwner<'_>) -> Option<PublicId> {
        self.cx.core.devices.trusted(&self.cx.parts.headers, owner, self.keyed, self.now())
    }

    /// Returns the digest under which attempts with an address are counted.
    pub(crate) fn pair(&self, address: &SecretDigest) -> SecretDigest {
        let name = match (&self.login.identifier, self.login.subject.user()) {
            (Some(name), _) => submitted::name(name, self.keyed),
            (None, Some(user)) => submitted::user(&user.id, self.keyed),
            // the address is the name
            (None, None) => *address,
        };
        submitted::pair(&name, address, self.keyed)
    }

    /// Records how an attempt ended, and returns the response.
    pub(crate) fn conclude(&self, update: &LoginUpdate, method: Method) -> EndpointResult {
        self.conclude_with(update, method, None)
    }

    /// Records how an attempt ended, with the reason if it failed, and returns the response.
    pub(crate) fn conclude_with(
        &self,
        update: &LoginUpdate,
        method: Method,
        reason: Option<&'static str>,
    ) -> EndpointResult {
        let (journal, login) = (&self.cx.core.journal, &*update.stored.value);
        match update.answer {
            Ok(_) => journal.record(EventKind::LoginStepProved, login, Some(method), self.keyed),
            Err(LoginError::WrongSecret(_)) => self.tally_of(login, EventKind::LoginFailed, Some(method), reason),
            Err(LoginError::TooManyFailures) => self.tally_of(login, EventKind::LoginFailedMost, Some(method), reason),
            Err(_) => {}
        }
        update.response_view(self.now()).map(|view| answer::login_progress(view, ()))
    }
}
