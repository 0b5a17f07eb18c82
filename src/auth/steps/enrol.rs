//! `POST /authentication/enrol`: a user who has only one factor sets up a second one, which proves the second step.
//!
//! It is possible only after a fresh proof of the first of two steps, and only if the account has no second factor. That is
//! checked again when the credential is stored. A user who has two factors needs both on the account page, also for a third.

use http::{Response, StatusCode};
use serde::Serialize;

use super::enter::enter;
use crate::{
    auth::{
        authorize::signed_in::SignedIn,
        context::stages::OwnLogin,
        core::Core,
        enrolment::{
            factors::Factors,
            fresh_proofs::FreshProofs,
            new_credential::NewCredential,
            new_passkey,
            pending::{NewKey, PENDING_TOTP, PendingEnrolments},
        },
        http::{
            answer::{self, Counters},
            fields::Fields,
            problem::{Code, Problem},
        },
        methods::{LoginStep, attempt::Attempt},
        state::{accounts::shown_name, guard::submitted, proofs::strength},
    },
    credential::{Added, Credentials, Passkey, PendingTotp, Strength, TotpKey},
    http::body::Body,
    login::{Keyed, Login, LoginCall, LoginError, Proved},
    policy::{EnrolledFactors, Method, MethodSet},
    store::StoreError,
    user::Account,
    util::{clock::UnixTime, handle::Handle},
    webauthn::{CreationOptions, RegistrationResponse},
};

/// The methods that the user of a login can set up to prove the next step.
pub(super) struct EnrolmentOffer {
    pub(super) methods: MethodSet,
    /// Until when the first proof is young enough.
    pub(super) fresh_until: Option<UnixTime>,
    strength: Strength,
}

impl EnrolmentOffer {
    /// Returns the offer to the user of this login, if there is one. The proofs of the login must count.
    pub(super) fn of(
        core: &Core,
        login: &Login,
        (account, credentials): (&Account, Option<&Credentials>),
        keyed: &Keyed,
    ) -> Option<Self> {
        // an added step is for what the user has already
        let [first] = login.proofs.as_slice() else { return None };
        if login.plan.is_extended() {
            return None;
        }
        let proved = login.proved();
        if (Factors { core, tenant: &login.tenant, account, credentials, proved }).has_second() {
            return None;
        }
        let of_first = strength(credentials, first, keyed)?;
        let strength = Strength::of_proofs(2, proved, [of_first]);
        // false if the policy names methods that the first step did not prove
        let counts =
            |method: &Method| matches!(method, Method::Passkey | Method::Totp) && strength.counts_for(&login.plan);
        let next = login.plan.next(proved).intersection(core.enabled(&login.tenant));
        let methods: MethodSet = next.iter().filter(counts).collect();
        let fresh_until = FreshProofs::of([(first, of_first)].into_iter(), core.logins.now()).until(1);
        // to sign in there again would not help
        let can_be_fresh = fresh_until.is_some() || !first.has_unknown_age();
        (!methods.is_empty() && can_be_fresh).then_some(Self { methods, fresh_until, strength })
    }
}

/// The request of a call.
enum Sent {
    /// Nothing yet: a new key is requested.
    App,
    Code(String),
    /// Nothing yet: new options are requested.
    Passkey,
    Response(RegistrationResponse),
}

#[derive(Serialize)]
struct Begun<T> {
    #[serde(flatten)]
    login: Counters,
    #[serde(flatten)]
    new: T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewOptions {
    public_key: CreationOptions,
}

pub(crate) async fn enrol(own: &OwnLogin<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    let mut step = enter(own, fields).await?;
    let name = step.fields.method.as_deref().ok_or(Problem::invalid("method is missing"))?;
    let (code, response) = (step.fields.code.take(), step.fields.response.take());
    let (method, sent) = match (Method::from_name(name), code, response) {
        (Some(method @ Method::Totp), None, _) => (method, Sent::App),
        (Some(method @ Method::Totp), Some(typed), _) => (method, Sent::Code(typed.0.to_string())),
        (Some(method @ Method::Passkey), _, None) => (method, Sent::Passkey),
        (Some(method @ Method::Passkey), _, Some(sent)) => (method, Sent::Response(new_passkey::response(Some(sent))?)),
        _ => return Err(step.unsupported("this method cannot be set up here")),
    };
    let enrolment = Enrolment::of(&step, method).await?;
    match sent {
        Sent::App => enrolment.begin_totp().await,
        Sent::Passkey => enrolment.begin_passkey().await,
        Sent::Code(_) | Sent::Response(_) => enrolment.finish(&sent).await,
    }
}

/// An enrolment within a login that may go on.
struct Enrolment<'s, 'a> {
    step: &'s LoginStep<'a>,
    method: Method,
    account: Account,
    credentials: Option<Credentials>,
    strength: Strength,
}

impl<'s, 'a> Enrolment<'s, 'a> {
    /// Checks that the user of a login may set up this method now.
    async fn of(step: &'s LoginStep<'a>, method: Method) -> Result<Self, Problem> {
        let (core, login) = (step.cx.core, &*step.login);
        let expected = step.preview(&LoginCall::Attempt(method));
        if let Err(problem) = &expected
            && !problem.is_method_not_allowed()
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
        let offer = EnrolmentOffer::of(core, login, (&account, credentials.as_ref()), step.keyed);
        let offer = offer.filter(|offer| offer.methods.contains(method)).ok_or_else(|| not_offered(step))?;
        if offer.fresh_until.is_none() {
            let detail = "prove the first step again before you set up a second one";
            return Err(step.problem(Problem::new(Code::FreshLoginRequired, detail)));
        }
        Ok(Self { step, method, account, credentials, strength: offer.strength })
    }

    /// Creates a key for an authenticator app. It counts once the user confirms it with a code.
    async fn begin_totp(&self) -> Result<Response<Body>, Problem> {
        let core = self.step.cx.core;
        let owner = (&self.step.login.tenant, self.account.id());
        let new = core.enrolled_codes.new_totp(owner, shown_name(&self.account));
        let (new, pending) = new.ok_or_else(Problem::unavailable)?;
        PendingEnrolments::of(core, PENDING_TOTP).begin(self.place(), &pending).await?;
        Ok(self.begun(NewKey::from(&new)))
    }

    async fn begin_passkey(&self) -> Result<Response<Body>, Problem> {
        let owner = (&self.step.login.tenant, &self.account);
        let public_key = new_passkey::begin(self.step.cx.core, self.place(), owner, self.credentials.as_ref()).await?;
        Ok(self.begun(NewOptions { public_key }))
    }

    fn begun(&self, new: impl Serialize) -> Response<Body> {
        let login = Counters::from(self.step.login.view(self.step.now()));
        answer::json(StatusCode::OK, &Begun { login, new })
    }

    /// Stores the credential if the user has proved to have it, which is a step of the login. Attempts count like others.
    async fn finish(&self, sent: &Sent) -> Result<Response<Body>, Problem> {
        let (step, method) = (self.step, self.method);
        let submitted = submitted::user(self.account.id(), step.keyed);
        let mut attempt = Attempt::begin(step, method, submitted).await?;
        let enrolled = match self.check(&mut attempt, sent).await {
            Ok(enrolled) => enrolled,
            Err(problem) => {
                attempt.withdraw().await;
                return Err(problem);
            }
        };
        if let Some(new) = &enrolled {
            self.announce(new).await;
        }
        let proved = enrolled.as_ref().zip(step.login.subject.user());
        let proved = proved.map(|(new, user)| {
            let factors = EnrolledFactors::default();
            Proved { user, mark: Some(new.mark(step.keyed)), elsewhere: None, factors }
        });
        let update = step.apply(&LoginCall::Settle(method, proved)).await?;
        if proved.is_some() && update.answer.is_ok() {
            attempt.succeeded().await;
        }
        step.conclude(&update, method)
    }

    /// Counts the attempt, and stores the credential if the code or the passkey is right.
    async fn check(&self, attempt: &mut Attempt<'_>, sent: &Sent) -> Result<Option<NewCredential>, Problem> {
        let (step, core, account) = (self.step, self.step.cx.core, &self.account);
        let owner = (&step.login.tenant, account.id());
        let found = step.account(None).await?;
        let below_ceiling = attempt.count_for(step.device_owner(&found, Some(account))).await?;
        attempt.count_in_login().await?;
        let new = match sent {
            Sent::Code(typed) => self.confirmed(typed).await?.map(NewCredential::Totp),
            Sent::Response(response) => {
                let verdict = new_passkey::verify(core, self.place(), owner.0, response).await?;
                let name = new_passkey::unused_name(&step.cx.parts.headers, self.credentials.as_ref());
                let new = |verdict| Passkey::new(verdict, &name, step.now().as_secs(), self.strength.clone());
                verdict.ok().map(new).map(NewCredential::Passkey)
            }
            Sent::App | Sent::Passkey => None,
        };
        let Some(new) = new.filter(|_| below_ceiling) else { return Ok(None) };
        let (tenant, proved) = (owner.0, step.login.proved());
        let may = Factors { core, tenant, account, credentials: None, proved }.may_add_first();
        match new.store(&core.credentials, owner, may).await? {
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

    /// Returns the key that was begun in this login, if this is its current code. It can be used once.
    async fn confirmed(&self, typed: &str) -> Result<Option<TotpKey>, Problem> {
        let (core, owner) = (self.step.cx.core, (&self.step.login.tenant, self.account.id()));
        let rows = PendingEnrolments::<PendingTotp>::of(core, PENDING_TOTP);
        let nothing = || Problem::new(Code::NoPendingChallenge, "no authenticator app is being set up in this login");
        let pending = rows.find(self.place()).await?.ok_or_else(|| self.step.problem(nothing()))?;
        let key = core.enrolled_codes.confirm_totp(owner, &pending.value, typed, self.strength.clone());
        if key.is_some() && !rows.take_found(self.place(), &pending).await? {
            return Err(self.step.problem(nothing()));
        }
        Ok(key)
    }

    /// Records the change, and tells the user. The change is made, so failures are only logged.
    async fn announce(&self, new: &NewCredential) {
        let (core, login) = (self.step.cx.core, &*self.step.login);
        let announced = core.announce(login, (&login.tenant, &self.account), new.notice()).await;
        let ended = core.end_outdated(&login.tenant, self.account.id(), None).await;
        for error in [announced.err(), ended.err()].into_iter().flatten() {
            self.step.cx.log(&Problem::from(error));
        }
    }

    /// The id under which the enrolment is pending.
    fn place(&self) -> &Handle {
        &self.step.login.id
    }
}

/// Returns the account of the login if its proofs still count, and if the session that the login continues still lives.
async fn counting(step: &LoginStep<'_>) -> Result<Option<Account>, StoreError> {
    let Some(who) = step.login.authentication(None) else { return Ok(None) };
    if step.login.session.is_some() {
        let signed_in = SignedIn::at(step.cx, &step.login.tenant).await?;
        if !signed_in.is_some_and(|signed_in| signed_in.bears(&step.login)) {
            return Ok(None);
        }
    }
    step.cx.core.accounts.counting(&who, step.keyed).await
}

fn not_offered(step: &LoginStep<'_>) -> Problem {
    step.problem(Problem::denied(LoginError::MethodNotAllowed))
}
