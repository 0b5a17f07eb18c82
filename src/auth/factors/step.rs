//! A login step in progress, with everything that methods need for it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Response, StatusCode};

use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer::{self, Counters},
            fields::Fields,
            problem::{Code, Problem},
        },
        state::{
            accounts::FoundAccount,
            devices::DeviceOwner,
            guard::submitted,
            journal::EventSource,
            logins::{LoginUpdate, StoredLogin},
        },
    },
    event::EventKind,
    http::body::Body,
    login::{BoundUser, Keyed, Login, LoginCall, LoginError, Subject, refusal},
    policy::{EnrolledFactors, Method},
    store::{Operation, OperationOutcome, StoreError},
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

/// An account whose generation is read together with other rows.
pub(crate) struct Ungenerated {
    pub(crate) found: FoundAccount,
    read: Option<Operation>,
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

    /// Applies a call to the stored login, and reads something before it in the same call of the store.
    pub(crate) async fn apply_after(
        &self,
        read: Operation,
        call: &LoginCall<'_>,
    ) -> Result<(Option<OperationOutcome>, LoginUpdate), Problem> {
        let latest = self.latest();
        let prepared = self.cx.core.logins.prepare(&self.digest, &latest, call)?;
        let operations = std::iter::once(read).chain(prepared.write.clone()).collect();
        let mut outcomes = self.cx.core.store.run(operations).await?.into_iter();
        let read = outcomes.next();
        let version = outcomes.next().and_then(|written| written.version());
        let update = match prepared.write.is_some() && version.is_none() {
            true => self.apply(call).await?,
            false => self.applied(prepared.update_after_write(version, latest)),
        };
        Ok((read, update))
    }

    /// Returns the login as it was read or written last.
    pub(crate) fn latest(&self) -> StoredLogin {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes how a call has changed the login.
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
    /// Ends a login in which the user proved a step before their generation was raised. Before the first proof, only a
    /// right secret reveals that the login has ended: strangers must not see it.
    pub(crate) async fn account(&self, typed: Option<&Identifier>) -> Result<FoundAccount, Problem> {
        let (tenant, accounts) = (&self.login.tenant, &self.cx.core.accounts);
        let found = match (&self.login.subject, typed) {
            (Subject::Unbound, Some(typed)) => accounts.named(tenant, typed).await?,
            (subject, _) => accounts.of_user(tenant, subject.user().map(|user| &user.id)).await?,
        };
        self.check_generation(&found).await?;
        Ok(found)
    }

    /// Ends a login in which the user proved a step before their generation was raised.
    pub(crate) async fn check_generation(&self, found: &FoundAccount) -> Result<(), Problem> {
        let is_older = |user: &BoundUser| user.generation < found.generation();
        if !self.login.proofs.is_empty() && self.login.subject.user().is_some_and(is_older) {
            return Err(self.end().await?);
        }
        Ok(())
    }

    /// Finds the account of the login like [`account`](Self::account), without the generation of its user.
    pub(crate) async fn account_without_generation(
        &self,
        typed: Option<&Identifier>,
    ) -> Result<Ungenerated, StoreError> {
        let (tenant, accounts) = (&self.login.tenant, &self.cx.core.accounts);
        let account = match (&self.login.subject, typed) {
            (Subject::Unbound, Some(typed)) => accounts.named_without_generation(tenant, typed).await?,
            (subject, _) => accounts.without_generation(tenant, subject.user().map(|user| &user.id)).await?,
        };
        self.ungenerated(account).await
    }

    /// Prepares to read the generation of an account together with other rows. Reads it at once if the request has a
    /// device cookie, whose signature covers it.
    pub(crate) async fn ungenerated(&self, account: Option<Account>) -> Result<Ungenerated, StoreError> {
        let core = self.cx.core;
        let read = core.accounts.reading_generation(&self.login.tenant, account.as_ref().map(Account::id))?;
        if !core.devices.are_presented(&self.cx.parts.headers) {
            return Ok(Ungenerated { found: FoundAccount::new(account, 0), read: Some(read) });
        }
        let outcome = core.store.run(vec![read]).await?.pop();
        let found = FoundAccount::new(account, core.accounts.generation(outcome)?);
        Ok(Ungenerated { found, read: None })
    }

    /// Executes these reads, and reads the generation of the account before them if that was not done yet. Returns the
    /// other outcomes.
    ///
    /// # Errors
    ///
    /// Ends a login like [`account`](Self::account).
    pub(crate) async fn read_with(
        &self,
        account: &mut Ungenerated,
        reads: Vec<Operation>,
    ) -> Result<Vec<OperationOutcome>, Problem> {
        let core = self.cx.core;
        let generation = account.read.take();
        let has_generation = generation.is_some();
        let mut outcomes = core.store.run(generation.into_iter().chain(reads).collect()).await?;
        if has_generation && !outcomes.is_empty() {
            account.found.generate(core.accounts.generation(Some(outcomes.remove(0)))?);
        }
        self.check_generation(&account.found).await?;
        Ok(outcomes)
    }

    /// Returns the second factors that a user whose secret was right has enrolled, if the login depends on them.
    pub(crate) async fn enrolled_factors(&self, proved: Option<&BoundUser>) -> Result<EnrolledFactors, StoreError> {
        match proved {
            Some(user) => {
                let Login { tenant, plan, .. } = &*self.login;
                self.cx.core.enrolled_factors((tenant, &user.id), plan, self.login.proved()).await
            }
            None => Ok(EnrolledFactors::default()),
        }
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

    /// The user that this browser may be trusted for.
    pub(crate) fn device_owner<'b>(&'b self, found: &FoundAccount, account: Option<&'b Account>) -> DeviceOwner<'b> {
        DeviceOwner { tenant: &self.login.tenant, account, generation: found.generation() }
    }

    /// Returns the id of this browser if it is trusted for this user.
    pub(crate) fn device(&self, owner: DeviceOwner<'_>) -> Option<PublicId> {
        self.cx.core.devices.trusted(&self.cx.parts.headers, owner, self.keyed, self.now())
    }

    /// The digest under which attempts with an address are counted.
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
    pub(crate) fn conclude(&self, update: &LoginUpdate, method: Method) -> Result<Response<Body>, Problem> {
        self.conclude_with(update, method, None)
    }

    /// Records how an attempt ended, with the reason if it failed, and returns the response.
    pub(crate) fn conclude_with(
        &self,
        update: &LoginUpdate,
        method: Method,
        reason: Option<&'static str>,
    ) -> Result<Response<Body>, Problem> {
        let (journal, login) = (&self.cx.core.journal, &*update.stored.value);
        match update.answer {
            Ok(_) => journal.record(EventKind::LoginStepProved, login, Some(method), self.keyed),
            Err(LoginError::WrongSecret(_)) => self.tally_of(login, EventKind::LoginFailed, Some(method), reason),
            Err(LoginError::TooManyFailures) => self.tally_of(login, EventKind::LoginFailedMost, Some(method), reason),
            Err(_) => {}
        }
        update.response_view(self.now()).map(|view| answer::json(StatusCode::OK, &Counters::from(view)))
    }
}
