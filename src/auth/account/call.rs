//! The checks that every call about the own account passes first.

use http::Method as HttpMethod;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    auth::{
        account::freshness::{self, FRESH, FreshProofs},
        authorize::signed_in::SignedIn,
        context::{RequestContext, foreign_origin},
        core::Core,
        first_party::sign_in::of_this_site,
        http::{
            bodies::RequestBody,
            fields::{self, Typed},
            problem::{Code, Problem},
            route::{ACCOUNT_PAGE, SIGN_IN},
        },
        notices::event_of,
    },
    credential::{Credentials, Removed, Strength},
    delivery::NoticeKind,
    event::EventKind,
    session::{Session, UserId},
    store::StoreError,
    tenant::Tenant,
    user::Account,
    util::{clock::UnixTime, form},
};

/// A call of a signed-in user of this site about their own account.
pub(crate) struct AccountCall {
    /// The session at the tenant of this site, and its account. All proofs of the session count.
    who: SignedIn,
    /// The enrolled credentials of the user.
    pub(crate) credentials: Option<Credentials>,
    fresh: FreshProofs,
    /// How many factor classes must be freshly proved before a change.
    pub(crate) required: usize,
}

/// The members of a body. Unknown members are ignored.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AccountFields {
    /// A session.
    pub(crate) sid: Option<String>,
    /// A credential.
    pub(crate) id: Option<String>,
    /// The name of another identity provider.
    #[cfg_attr(not(feature = "sso"), allow(dead_code, reason = "there are no providers"))]
    pub(crate) provider: Option<String>,
    /// The name of a passkey.
    pub(crate) name: Option<String>,
    /// The answer of the browser for a new passkey.
    pub(crate) response: Option<Value>,
    /// A code of an authenticator app.
    pub(crate) code: Option<Typed>,
}

/// Reads the body of a call.
pub(crate) async fn fields(cx: &RequestContext<'_>, body: &mut RequestBody) -> Result<AccountFields, Problem> {
    fields::json(&cx.parts.headers, body).await
}

impl AccountCall {
    /// Charges the request to the tenant of this site, and finds the session and the account of the caller.
    ///
    /// # Errors
    ///
    /// Returns `origin_not_allowed` to pages of other sites, and `login_required` without a session.
    pub(crate) async fn enter(cx: &mut RequestContext<'_>) -> Result<Self, Problem> {
        let (_, client) = of_this_site(cx).await?;
        let tenant = client.tenant();
        if cx.parts.method == HttpMethod::POST {
            if !cx.is_of_own_page() {
                cx.core.journal.tally(EventKind::ForeignOrigin, Some(tenant), None);
                return Err(foreign_origin());
            }
        } else {
            cx.check_origin(Some(&client))?;
        }
        Self::of(cx, tenant, cx.core.logins.now()).await?.ok_or_else(not_signed_in)
    }

    /// Finds the session and the account of a user of this tenant who comes back from another identity provider. The browser
    /// names that site as the origin, so `state` must have shown that this session has sent the user there. The proofs that
    /// were fresh at the time `left_at` count as fresh.
    #[cfg(feature = "sso")]
    pub(super) async fn returning(
        cx: &RequestContext<'_>,
        tenant: &Tenant,
        left_at: UnixTime,
    ) -> Result<Option<Self>, Problem> {
        Self::of(cx, tenant, left_at).await
    }

    async fn of(cx: &RequestContext<'_>, tenant: &Tenant, now: UnixTime) -> Result<Option<Self>, Problem> {
        let Some(who) = SignedIn::at(cx, tenant).await? else { return Ok(None) };
        let credentials = cx.core.credentials.get(tenant, who.session.user()).await?;
        let fresh = FreshProofs::of(&who, now);
        let required = freshness::required(cx.core, &who, credentials.as_ref());
        Ok(Some(Self { who, credentials, fresh, required }))
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

    /// Returns a name of the user to show.
    pub(crate) fn display_name(&self) -> String {
        self.who.display_name()
    }

    pub(crate) fn account(&self) -> &Account {
        &self.who.account
    }

    /// Returns until when the user can change how they sign in, if they can.
    pub(crate) fn fresh_until(&self) -> Option<UnixTime> {
        self.fresh.until(self.required)
    }

    /// Checks that the user has proved enough within the last five minutes. Must come before each change of how the user
    /// signs in.
    ///
    /// # Errors
    ///
    /// Returns `fresh_login_required` with the URL of a login after which the check succeeds.
    pub(crate) fn require_fresh(&self, core: &Core) -> Result<(), Problem> {
        match self.fresh_until() {
            Some(_) => Ok(()),
            None => {
                let problem = Problem::new(Code::FreshLoginRequired, "sign in again to change how you sign in");
                Err(problem.login_url(login_url(core, Some(self.required))))
            }
        }
    }

    /// Checks that the user has freshly proved two factors. Must come before the enrolment of codes that are only ever a second
    /// step: with one factor, no login would accept them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`require_fresh`](Self::require_fresh), and `second_factor_required` if the user has no second
    /// factor.
    pub(crate) fn require_second_factor(&self, core: &Core) -> Result<(), Problem> {
        self.require_fresh(core)?;
        if self.strength().suffices_for(2) {
            return Ok(());
        }
        let detail = "prove a second factor first: codes that are enrolled with one factor would never be accepted";
        Err(Problem::new(Code::SecondFactorRequired, detail))
    }

    /// Returns the strength of a credential that is enrolled now, with the proofs of the last five minutes.
    pub(crate) fn strength(&self) -> Strength {
        self.fresh.strength()
    }

    /// Returns a check that refuses to remove the last way to sign in to this site.
    pub(crate) fn may_change(&self, core: &Core) -> impl Fn(&Credentials, &Credentials) -> bool + Send + Sync {
        move |before, after| {
            let can_sign_in = |row| freshness::can_sign_in(core, &self.who, row);
            can_sign_in(after) || !can_sign_in(before)
        }
    }

    /// Keeps a credential that was just stored. If the user was ended or forgotten since the call began, `discard` removes it
    /// again. Otherwise it could survive [`forget_user`](crate::AuthService::forget_user).
    ///
    /// # Errors
    ///
    /// Returns `login_required` if the credential was removed.
    pub(crate) async fn keep<T>(
        &self,
        core: &Core,
        discard: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<(), Problem> {
        let (tenant, user) = self.owner();
        if core.sessions.generations().current(tenant, user).wait().await? <= self.session().generation() {
            return Ok(());
        }
        discard.await?;
        Err(not_signed_in())
    }

    /// Announces a change of how the user signs in, and ends what needs the credentials before it. The session of this call
    /// lives. The change is made, so failures are only logged: sessions are checked again when their account is read next.
    pub(crate) async fn changed(&self, cx: &RequestContext<'_>, change: NoticeKind) {
        let (tenant, user) = self.owner();
        let announced = cx.core.announce(&self.session().authentication(), (tenant, self.account()), change).await;
        let (_, method) = event_of(change);
        let ended = cx.core.end_outdated(tenant, user, Some((self.session(), method))).await;
        for error in [announced.err(), ended.err()].into_iter().flatten() {
            cx.log(&Problem::from(error));
        }
    }
}

fn not_signed_in() -> Problem {
    Problem::new(Code::LoginRequired, "no user is signed in to this site in this browser")
}

/// Reports why a credential was not removed.
pub(super) fn removed(removed: Removed, unknown: &'static str) -> Result<(), Problem> {
    match removed {
        Removed::Done => Ok(()),
        Removed::Unknown => Err(Problem::new(Code::NotFound, unknown)),
        Removed::Refused => {
            Err(Problem::new(Code::LastSignInMethod, "this is the last way to sign in; add another one first"))
        }
    }
}

/// Returns the URL of a sign-in that leads back to the account page: with at least this many fresh proofs, or with any. Proofs
/// of the session that are fresh count there.
pub(crate) fn login_url(core: &Core, fresh_steps: Option<usize>) -> String {
    let base = core.issuer.path();
    let (page, steps) = (format!("{base}{ACCOUNT_PAGE}"), fresh_steps.map(|steps| steps.to_string()));
    // a proof of this age is still accepted there, and must then be fresh here
    let age = FRESH.as_secs().saturating_sub(1).to_string();
    let fresh = steps.as_deref().map(|steps| [("max_age", age.as_str()), ("steps", steps)]);
    let pairs = [("return_to", page.as_str())].into_iter().chain(fresh.into_iter().flatten());
    format!("{base}{SIGN_IN}?{}", form::written(pairs))
}
