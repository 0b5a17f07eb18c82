//! The checks that every call about the own account passes first.

use http::Response;
use serde::Deserialize;
use serde_json::Value;

use super::{
    factors::Factors,
    fresh_proofs::FreshProofs,
    freshness::{self, Freshness, can_sign_in, can_sign_in_at_all},
    new_credential::{NewCredential, Vouching},
};
use crate::{
    auth::{
        context::{RequestContext, stages::SiteCall},
        core::{Core, amr},
        factors::{
            credentials::{
                credential::Strength,
                row::Credentials,
                table::{Added, Removed, is_added},
            },
            signed_in::SignedIn,
        },
        http::{
            fields::Typed,
            problem::{Code, EndpointResult, Problem},
        },
        notices::event_of,
        state::accounts::GenerationOf,
    },
    delivery::NoticeKind,
    http::{body::Body, cookie::SetCookie},
    policy::{FactorClass, Method, MethodSet},
    session::{NewSession, Proof, Renewal, Session, UserId},
    store::StoreError,
    tenant::Tenant,
    user::Account,
    util::clock::UnixTime,
    words::Language,
};

/// A call of a signed-in user of this site about their own account.
pub(crate) struct AccountCall<'a> {
    pub(crate) cx: &'a RequestContext<'a>,
    pub(crate) fields: AccountFields,
    /// The session at the tenant of this site, and its account. All proofs of the session count.
    pub(crate) who: SignedIn,
    /// The enrolled credentials of the user.
    pub(crate) credentials: Option<Credentials>,
    fresh: FreshProofs,
    /// The fresh proofs that a change needs.
    pub(crate) required: Freshness,
}

/// The members of a body. Unknown members are ignored.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AccountFields {
    /// A session.
    pub(crate) sid: Option<String>,
    /// A credential.
    pub(crate) id: Option<String>,
    /// A client.
    pub(crate) client_id: Option<String>,
    /// The name of another identity provider.
    pub(crate) provider: Option<String>,
    /// The name of a passkey, or of the user.
    pub(crate) name: Option<String>,
    /// The answer of the browser for a new passkey.
    pub(crate) response: Option<Value>,
    /// A code of an authenticator app, or of a new contact.
    pub(crate) code: Option<Typed>,
    pub(crate) new_password: Option<Typed>,
    /// A new contact.
    pub(crate) email: Option<String>,
    pub(crate) phone_number: Option<String>,
    /// The contact that it replaces.
    pub(crate) contact_id: Option<String>,
    /// Whether the user has confirmed what cannot be undone.
    pub(crate) confirmed: Option<bool>,
}

impl<'a> AccountCall<'a> {
    /// Finds the session and the account of the caller.
    ///
    /// # Errors
    ///
    /// Returns `login_required` without a session.
    pub(crate) async fn require_caller(SiteCall { cx, client, .. }: &'a SiteCall<'a>) -> Result<Self, Problem> {
        Self::find_caller(cx, client.tenant(), cx.core.logins.now()).await?.ok_or_else(not_signed_in)
    }

    /// Finds the session and the account of a user of this tenant. The proofs that were fresh at this time count as fresh.
    ///
    /// A user who comes back from another identity provider has that site as the origin, so `state` must have shown that this
    /// session has sent the user there. Their proofs count as of the time when the user left.
    pub(crate) async fn find_caller(
        cx: &'a RequestContext<'a>,
        tenant: &Tenant,
        now: UnixTime,
    ) -> Result<Option<Self>, Problem> {
        let Some(who) = SignedIn::find_at_tenant(cx, tenant).await? else { return Ok(None) };
        let credentials = cx.core.credentials.get(tenant, who.session.user()).await?;
        let fresh = FreshProofs::from_proofs(who.strengths(), now);
        let required = Freshness::required_for(factors(cx.core, &who, credentials.as_ref()));
        Ok(Some(Self { cx, fields: AccountFields::default(), who, credentials, fresh, required }))
    }

    /// Reads the account and its credentials again. The proofs that were fresh at this time count as fresh.
    ///
    /// # Errors
    ///
    /// Returns `login_required` if the session has ended.
    pub(crate) async fn read_again(&self, now: UnixTime) -> Result<Self, Problem> {
        let again = Self::find_caller(self.cx, self.tenant(), now).await?;
        again.filter(|again| again.session().sid() == self.session().sid()).ok_or_else(not_signed_in)
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        self.who.session.tenant()
    }

    pub(crate) fn session(&self) -> &Session {
        &self.who.session
    }

    /// Returns the tenant and the user.
    pub(crate) fn owner(&self) -> (&Tenant, &UserId) {
        (self.tenant(), self.session().user())
    }

    pub(crate) fn account(&self) -> &Account {
        &self.who.account
    }

    /// Returns until when the user can change how they sign in, if they can.
    pub(crate) fn fresh_until(&self) -> Option<UnixTime> {
        self.required.until(&self.fresh)
    }

    /// Checks that the user has proved enough within the last five minutes. Must come before each change of how the user
    /// signs in.
    ///
    /// # Errors
    ///
    /// Returns `fresh_login_required` with the URL of a login after which the check succeeds.
    pub(crate) fn require_fresh(&self) -> Result<(), Problem> {
        match self.fresh_until() {
            Some(_) => Ok(()),
            None => Err(fresh_login_required(self.cx.core, self.required)),
        }
    }

    /// The proofs that a new contact needs besides [`require_fresh`](Self::require_fresh): the fresh proofs must also suffice without the
    /// contacts of its class. The first contact of a class counts for every policy. It needs proofs of two factors if a policy
    /// names methods or refuses factors that users enrol themselves.
    ///
    /// # Errors
    ///
    /// Returns `fresh_login_required` if other proofs are needed, and `second_factor_required` if the user can't sign in without
    /// these contacts or has proved too few factors.
    pub(crate) fn require_fresh_for_contact(&self, class: FactorClass) -> Result<(), Problem> {
        let core = self.cx.core;
        let all = factors(core, &self.who, self.credentials.as_ref());
        let has_class = all.usable(1).iter().any(|method| method.class() == class);
        if !has_class && freshness::needs_vouching(core, self.tenant()) {
            self.refuse_single_factor()?;
        }
        let rest = Factors { without: Some(class), ..all };
        if !can_sign_in_at_all(rest) {
            let detail = "add another way to sign in first: codes to a contact can't vouch for its replacement";
            return Err(Problem::new(Code::SecondFactorRequired, detail));
        }
        let required = Freshness::required_for(rest);
        match required.until(&self.fresh.without_class(class)) {
            Some(_) => Ok(()),
            None => {
                let url = required.login_url_besides(core, self.fresh.has_class(class), rest.has_enrolled());
                Err(fresh_login_required(core, required).login_url(url))
            }
        }
    }

    /// Returns whether the user can use codes as a second step: there is another factor that can be the first one.
    pub(crate) fn can_use_codes(&self) -> bool {
        let usable = factors(self.cx.core, &self.who, self.credentials.as_ref()).usable(2);
        !usable.that_can_be_first().is_empty()
    }

    /// Returns whether the user has two factors that count in logins of two steps, and needs both for a change.
    pub(crate) fn has_two_factors(&self) -> bool {
        self.required.proofs() > 1 && factors(self.cx.core, &self.who, self.credentials.as_ref()).has_two()
    }

    /// Checks that the user may add a credential for this method, and returns what vouches for it. The first second factor
    /// needs a fresh proof of the factor that the account has. Every other one needs as many as each change.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`require_fresh`](Self::require_fresh), and `second_factor_required` for codes that no login would
    /// accept, because only ever a second step uses them.
    pub(crate) fn vouching(&self, method: Method) -> Result<Vouching, Problem> {
        self.require_fresh()?;
        let strength = self.strength();
        if !strength.suffices_for(2)
            && !factors(self.cx.core, &self.who, self.credentials.as_ref()).has_two()
            && let Some(strength) = self.fresh.strength_of_first(method)
        {
            return Ok(Vouching { strength, is_first: true });
        }
        if !method.can_be_first() {
            self.refuse_single_factor()?;
        }
        Ok(Vouching { strength, is_first: false })
    }

    /// Checks that the user has freshly proved two factors. Must come before a change that adds a factor which counts at once in
    /// logins of two steps, and before the enrolment of codes that are only ever a second step: with one factor, no login would
    /// accept them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`require_fresh`](Self::require_fresh), and `second_factor_required` if the user has no second
    /// factor.
    pub(crate) fn require_second_factor(&self) -> Result<(), Problem> {
        self.require_fresh()?;
        self.refuse_single_factor()
    }

    fn refuse_single_factor(&self) -> Result<(), Problem> {
        if self.strength().suffices_for(2) {
            return Ok(());
        }
        let detail = "this change needs proofs of two different factors: sign in with a second one first";
        Err(Problem::new(Code::SecondFactorRequired, detail))
    }

    /// Returns the strength of a credential that is enrolled now, with the proofs of the last five minutes.
    pub(crate) fn strength(&self) -> Strength {
        self.fresh.strength()
    }

    /// Returns a check that refuses to remove the last way to sign in to this site.
    pub(crate) fn may_change(&self) -> impl Fn(&Credentials, &Credentials) -> bool + Send + Sync {
        move |before, after| {
            let can_sign_in = |row| can_sign_in(factors(self.cx.core, &self.who, Some(row)));
            can_sign_in(after) || !can_sign_in(before)
        }
    }

    /// Keeps a credential or contact that was just stored. If the user was ended or forgotten since the call began, `discard` removes it
    /// again. Otherwise it could survive [`forget_user`](crate::AuthService::forget_user).
    ///
    /// # Errors
    ///
    /// Returns `login_required` if the credential was removed.
    pub(crate) async fn keep<T>(
        &self,
        discard: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<(), Problem> {
        let (tenant, user) = self.owner();
        if self.cx.core.sessions.generations().current(tenant, user).wait().await? <= self.session().generation() {
            return Ok(());
        }
        discard.await?;
        Err(not_signed_in())
    }

    /// Checks that nothing has ended the user since the call began, and that all proofs of the session still count. Must come right
    /// before each change that isn't [kept](Self::keep) afterwards.
    ///
    /// # Errors
    ///
    /// Returns `login_required` if the user was ended, or if a proof no longer counts.
    pub(crate) async fn require_current(&self) -> Result<(), Problem> {
        let (core, who) = (self.cx.core, self.session().authentication());
        let counting = core.counting(&who, GenerationOf::Account, core.keyed().await?).await?;
        counting.map(|_| ()).ok_or_else(not_signed_in)
    }

    /// Stores a credential that the user has just proved to have. Proving it counts for this session if it is the first second
    /// factor, so that the user can go on: `response` gets the new cookie of the session in this case.
    ///
    /// # Errors
    ///
    /// Returns `fresh_login_required` if another enrolment has come first, and `login_required` if the user was ended.
    pub(crate) async fn enrol_credential<N: NewCredential>(
        &self,
        new: &N,
        is_first: bool,
        mut response: Response<Body>,
    ) -> EndpointResult {
        let (core, owner) = (self.cx.core, self.owner());
        let is_factor_proved = self.fresh.until_with_factor().is_some();
        let may_add_first = factors(core, &self.who, None).may_add_first(is_factor_proved);
        let stored = new.store(&core.credentials, owner, |row| !is_first || may_add_first(row)).await;
        self.announce_if_stored(is_added(&stored), N::ADDED).await;
        match stored? {
            Added::Done => {}
            Added::Taken => return Err(Problem::invalid("this passkey is already in use")),
            Added::Refused => return Err(Problem::invalid("this user has the maximum number of passkeys")),
            Added::Outdated => {
                let credentials = core.credentials.get(owner.0, owner.1).await?;
                let required = Freshness::required_for(factors(core, &self.who, credentials.as_ref()));
                return Err(fresh_login_required(core, required));
            }
        }
        self.keep(new.discard(&core.credentials, owner)).await?;
        if is_first {
            match self.with_proof(new).await {
                Ok(cookie) => cookie.into_iter().for_each(|cookie| cookie.append_to(response.headers_mut())),
                // the credential is stored: the user proves it once more
                Err(error) => self.cx.log(&Problem::from(error)),
            }
        }
        Ok(response)
    }

    /// Adds the proof by a new credential to the session.
    async fn with_proof(&self, new: &impl NewCredential) -> Result<Option<SetCookie>, StoreError> {
        let (session, mark) = (self.session(), Some(new.mark(self.cx.core.keyed().await?)));
        let mut who = session.authentication();
        who.proofs.push(Proof {
            method: new.method().as_str().into(),
            at: self.cx.core.logins.now().as_nanos(),
            mark,
            elsewhere: None,
        });
        let names = amr(&who.proofs);
        let renewed = NewSession::authenticated(who).device(session.device().map(str::to_owned));
        let renewed =
            renewed.clone().amr(names.iter().map(|name| &**name)).unwrap_or(renewed).auth_time(session.auth_time());
        let renewed = match session.client() {
            Some(client) => renewed.client(client),
            None => renewed,
        };
        let renewed = self.cx.core.sessions.renew(session, Renewal::StepUp(renewed)).await?;
        Ok(renewed.map(|(cookie, _)| cookie))
    }

    /// Announces a credential that was just stored, before anything else can fail. `is_stored` is `None` after an error of the
    /// store.
    pub(crate) async fn announce_if_stored(&self, is_stored: Option<bool>, added: NoticeKind) {
        let before = self.credentials.as_ref();
        if self.cx.core.credentials.may_be_stored(self.owner(), is_stored, before).await {
            self.changed(added).await;
        }
    }

    /// Announces a change of how the user signs in, and ends what needs the credentials before it. The session of this call
    /// lives. The change is made, so failures are only logged: sessions are checked again when their account is read next.
    pub(crate) async fn changed(&self, change: NoticeKind) {
        let (tenant, user) = self.owner();
        let who = self.session().authentication();
        let language = Language::accepted(&self.cx.parts.headers);
        let announced = self.cx.core.announce(&who, (tenant, self.account()), change, language).await;
        let (_, method, _) = event_of(change);
        let changed = method.map(|method| (self.session(), method));
        let ended = self.cx.core.end_outdated(tenant, user, changed).await;
        self.cx.log_failures([announced.err(), ended.err()]);
    }
}

/// Returns what the account of a signed-in user can prove with these credentials.
fn factors<'a>(core: &'a Core, who: &'a SignedIn, credentials: Option<&'a Credentials>) -> Factors<'a> {
    let proved = MethodSet::of_proofs(who.session.proofs());
    Factors { core, tenant: who.session.tenant(), account: &who.account, credentials, proved, without: None }
}

fn fresh_login_required(core: &Core, required: Freshness) -> Problem {
    let problem = Problem::new(Code::FreshLoginRequired, "sign in again to change how you sign in");
    problem.login_url(required.login_url(core))
}

fn not_signed_in() -> Problem {
    Problem::new(Code::LoginRequired, "no user is signed in to this site in this browser")
}

/// Reports why a credential was not removed.
pub(crate) fn removed(removed: Removed, unknown: &'static str) -> Result<(), Problem> {
    match removed {
        Removed::Done => Ok(()),
        Removed::Unknown => Err(Problem::new(Code::NotFound, unknown)),
        Removed::Refused => {
            Err(Problem::new(Code::LastSignInMethod, "this is the last way to sign in; add another one first"))
        }
    }
}
