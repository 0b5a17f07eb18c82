//! Enrols a credential within a login, for `POST /authentication/enrol`: a user who has only one factor sets up a second one, which proves the second step.
//!
//! It is possible only after a fresh proof of the first of two steps, and only if the account has no second factor. That is
//! checked again when the credential is stored. A user who has two factors needs both on the account page, also for a third.

use http::Response;
use serde::Serialize;

use super::{factors::Factors, fresh_proofs::FreshProofs, new_credential::NewCredential};
use crate::{
    auth::{
        core::Core,
        factors::{
            attempt::{Attempt, RightSecret},
            credentials::{
                credential::Strength,
                row::{Credentials, strength},
                table::{Added, is_added},
            },
            signed_in::SignedIn,
            step::LoginStep,
        },
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
        },
        state::{accounts::GenerationOf, guard::submitted},
    },
    delivery::NoticeKind,
    http::body::Body,
    login::{Keyed, Login, LoginCall, LoginError},
    policy::{EnrolledFactors, Method, MethodSet},
    store::StoreError,
    user::Account,
    util::clock::UnixTime,
};

/// The methods that the user of a login can set up to prove the next step.
pub(crate) struct EnrolmentOffer {
    pub(crate) methods: MethodSet,
    /// Until when the first proof is young enough.
    pub(crate) fresh_until: Option<UnixTime>,
    /// Whether the user has to prove a passkey or an app first that does not count in this login. The account page asks for it.
    pub(crate) needs_weak_factor: bool,
    strength: Strength,
}

impl EnrolmentOffer {
    /// Returns the offer to the user of this login, if there is one. The proofs of the login must count.
    pub(crate) fn offer_for_login(
        core: &Core,
        login: &Login,
        (account, credentials): (&Account, Option<&Credentials>),
        keyed: &Keyed,
    ) -> Option<Self> {
        // an added step is for what the user has already
        let [first] = login.proofs.as_slice() else { return None };
        if login.plan.is_extended || login.wanted.is_reset {
            return None;
        }
        let proved = login.proved();
        let factors = Factors { core, tenant: &login.tenant, account, credentials, proved, without: None };
        if factors.has_two() {
            return None;
        }
        let of_first = strength(credentials, first, keyed)?;
        let strength = Strength::of_proofs(2, proved, [of_first]);
        // false if the policy names methods that the first step did not prove
        let counts =
            |method: &Method| matches!(method, Method::Passkey | Method::Totp) && strength.counts_for(&login.plan);
        let next = login.plan.next(proved).intersection(core.enabled(&login.tenant));
        let methods: MethodSet = next.iter().filter(counts).collect();
        let fresh_until = FreshProofs::from_proofs([(first, of_first)].into_iter(), core.logins.now()).until(1);
        // to sign in there again would not help
        let can_be_fresh = fresh_until.is_some() || !first.has_unknown_age();
        (!methods.is_empty() && can_be_fresh).then_some(Self {
            methods,
            fresh_until,
            needs_weak_factor: factors.has_enrolled(),
            strength,
        })
    }
}

/// An enrolment within a login that may go on.
pub(crate) struct Enrolment<'s, 'a> {
    pub(crate) step: &'s LoginStep<'a>,
    method: Method,
    pub(crate) account: Account,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) strength: Strength,
}

impl<'s, 'a> Enrolment<'s, 'a> {
    /// Checks that the user of a login may set up this method now.
    pub(crate) async fn of_login_step(step: &'s LoginStep<'a>, method: Method) -> Result<Self, Problem> {
        let (core, login) = (step.cx.core, &*step.login);
        let expected = step.preview(&LoginCall::Attempt(method));
        if let Err(problem) = &expected
            && problem.code != Code::MethodNotAllowed
        {
            return Err(problem.clone());
        }
        // the same for all accounts, and without one
        if login.proofs.is_empty() {
            return Err(step.problem(Problem::new(Code::StepRequired, "prove a step first")));
        }
        expected?;
        let Some(account) = counting(step).await? else { return Err(step.end().await?) };
        let credentials = core.credentials.get(&login.tenant, account.id()).await?;
        let offer = EnrolmentOffer::offer_for_login(core, login, (&account, credentials.as_ref()), step.keyed);
        let offer = offer.filter(|offer| offer.methods.contains(method) && !offer.needs_weak_factor);
        let offer = offer.ok_or_else(|| not_offered(step))?;
        if offer.fresh_until.is_none() {
            let detail = "prove the first step again before you set up a second one";
            return Err(step.problem(Problem::new(Code::FreshLoginRequired, detail)));
        }
        Ok(Self { step, method, account, credentials, strength: offer.strength })
    }

    /// Answers that something new waits for the user to confirm it.
    pub(crate) fn begun(&self, new: impl Serialize) -> Response<Body> {
        answer::login_progress(self.step.login.to_login_view(self.step.now()), new)
    }

    /// Stores the credential if the user has proved to have it, which is a step of the login. Attempts count like others.
    /// `verified` checks the code or the passkey, once the attempt is counted.
    pub(crate) async fn finish<N: NewCredential>(
        &self,
        verified: impl Future<Output = Result<Option<N>, Problem>>,
    ) -> EndpointResult {
        let (step, method) = (self.step, self.method);
        let submitted = submitted::user(self.account.id(), step.keyed);
        let mut attempt = Attempt::start_attempt(step, method, submitted).await?;
        let enrolled = self.check(&mut attempt, verified).await;
        let right = |new: N| {
            let (user, mark) = (step.login.subject.user()?.clone(), Some(new.mark(step.keyed)));
            Some(RightSecret { user, mark, factors: EnrolledFactors::default() })
        };
        let update = attempt.settle(enrolled.map(|new| new.and_then(right))).await?;
        step.conclude(&update, method)
    }

    /// Counts the attempt, and stores the credential if the code or the passkey is right.
    async fn check<N: NewCredential>(
        &self,
        attempt: &mut Attempt<'_>,
        verified: impl Future<Output = Result<Option<N>, Problem>>,
    ) -> Result<Option<N>, Problem> {
        let (step, core, account) = (self.step, self.step.cx.core, &self.account);
        let owner = (&step.login.tenant, account.id());
        let found = step.account(None).await?;
        let below_ceiling = attempt.count_for(step.device_owner(&found, Some(account))).await?;
        attempt.count_in_login().await?;
        let new = verified.await?;
        let Some(new) = new.filter(|_| below_ceiling) else { return Ok(None) };
        let (tenant, proved) = (owner.0, step.login.proved());
        let may = Factors { core, tenant, account, credentials: None, proved, without: None }.may_add_first(false);
        let stored = new.store(&core.credentials, owner, may).await;
        // before anything else can fail
        if core.credentials.may_be_stored(owner, is_added(&stored), self.credentials.as_ref()).await {
            self.announce(N::ADDED).await;
        }
        match stored? {
            Added::Done => {}
            Added::Taken => return Err(Problem::invalid("this passkey is already in use")),
            // another enrolment has come first
            Added::Refused | Added::Outdated => return Err(not_offered(step)),
        }
        // the user was ended, or the first proof was replaced, while the credential was stored
        if counting(step).await?.is_none() {
            new.discard(&core.credentials, owner).await?;
            return Err(step.end().await?);
        }
        Ok(Some(new))
    }

    /// Records the change, and tells the user. The change is made, so failures are only logged.
    async fn announce(&self, added: NoticeKind) {
        let (core, login) = (self.step.cx.core, &*self.step.login);
        let language = self.step.cx.language(login);
        let announced = core.announce(login, (&login.tenant, &self.account), added, language).await;
        let ended = core.end_outdated(&login.tenant, self.account.id(), None).await;
        self.step.cx.log_failures([announced.err(), ended.err()]);
    }
}

/// Returns the account of the login if its proofs still count, and if the session that the login continues still lives.
async fn counting(step: &LoginStep<'_>) -> Result<Option<Account>, StoreError> {
    let Some(who) = step.login.authentication(None) else { return Ok(None) };
    if step.login.session.is_some() {
        let signed_in = SignedIn::find_at_tenant(step.cx, &step.login.tenant).await?;
        if !signed_in.is_some_and(|signed_in| signed_in.bears(&step.login)) {
            return Ok(None);
        }
    }
    step.cx.core.counting(&who, GenerationOf::Account, step.keyed).await
}

fn not_offered(step: &LoginStep<'_>) -> Problem {
    step.problem(Problem::denied(LoginError::MethodNotAllowed))
}
