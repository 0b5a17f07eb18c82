//! `GET /authentication/choices`: what the user of a login can use for the next step.
//!
//! It answers only after a proved step, or to the signed-in user whose session the login continues, because it shows what
//! the account has. It changes nothing.

use http::{Response, StatusCode};
use serde::Serialize;

use super::enrol::EnrolmentOffer;
use crate::{
    auth::{
        authorize::signed_in::SignedIn,
        context::stages::OwnLogin,
        http::{
            answer::{self, Counters},
            problem::{Code, Problem},
        },
        methods::{
            self, OfferedProvider,
            contacts::{contact_id, masked, reachable},
        },
    },
    credential::Credentials,
    http::body::Body,
    login::{Keyed, Login, LoginError},
    policy::{Method, MethodSet},
    user::Account,
    util::clock::UnixTime,
};

#[derive(Serialize)]
struct Choices {
    #[serde(flatten)]
    login: Counters,
    methods: Vec<&'static str>,
    contacts: Vec<ContactChoice>,
    providers: Vec<OfferedProvider>,
    /// What a user who has only one factor can set up to prove this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    enrol: Option<Enrollable>,
}

#[derive(Serialize)]
struct Enrollable {
    methods: Vec<&'static str>,
    /// Until when this is possible. Afterwards, the first step has to be proved again.
    fresh_until: Option<u64>,
}

impl From<EnrolmentOffer> for Enrollable {
    fn from(offer: EnrolmentOffer) -> Self {
        let methods = offer.methods.iter().map(Method::as_str).collect();
        Self { methods, fresh_until: offer.fresh_until.map(UnixTime::as_secs) }
    }
}

#[derive(Serialize)]
struct ContactChoice {
    contact_id: String,
    method: &'static str,
    masked: String,
}

pub(crate) async fn choices(OwnLogin { cx, stored, .. }: &OwnLogin<'_>) -> Result<Response<Body>, Problem> {
    let (core, login) = (cx.core, &stored.value);
    let now = core.logins.now();
    let view = login.view(now);
    let refused = |problem: Problem| Err(problem.of(view));
    if login.has_ended(now) {
        return refused(Problem::denied(LoginError::Expired));
    }
    if login.has_failed(now) {
        return refused(Problem::denied(LoginError::TooManyFailures));
    }
    if login.remaining() == 0 {
        return refused(Problem::denied(LoginError::NoStepRemaining));
    }
    let keyed = core.keyed().await?;
    let account = match (login.authentication(None), login.session) {
        (Some(who), _) => core.accounts.counting(&who, keyed).await?,
        (None, Some(_)) => {
            let signed_in = SignedIn::at(cx, &login.tenant).await?;
            signed_in.filter(|signed_in| signed_in.bears(login)).map(|signed_in| signed_in.account)
        }
        (None, None) => return refused(Problem::new(Code::StepRequired, "prove a step first")),
    };
    // a closed account, a password that was changed since, or a session that ended: no step can complete this login
    let Some(account) = account else { return refused(Problem::denied(LoginError::Expired)) };
    let credentials = core.credentials.get(&login.tenant, account.id()).await?;
    let next = login.plan.next(login.proved()).intersection(core.enabled(&login.tenant));
    let usable = Usable { login, account: &account, credentials: credentials.as_ref() };
    let providers = match next.contains(Method::Sso) {
        true => methods::usable_providers(core, login, &account, credentials.as_ref()),
        false => Vec::new(),
    };
    let has = |method: &Method| if *method == Method::Sso { !providers.is_empty() } else { usable.has(*method) };
    let choices = Choices {
        login: Counters::from(view),
        methods: next.iter().filter(has).map(Method::as_str).collect(),
        contacts: usable.contacts(next, keyed),
        providers,
        enrol: EnrolmentOffer::of(core, login, (&account, credentials.as_ref()), keyed).map(Enrollable::from),
    };
    Ok(answer::json(StatusCode::OK, &choices))
}

/// The means of a user to prove the steps of a login.
struct Usable<'a> {
    login: &'a Login,
    account: &'a Account,
    credentials: Option<&'a Credentials>,
}

impl Usable<'_> {
    /// Returns whether the user can prove a step by this method, other than at a provider.
    fn has(&self, method: Method) -> bool {
        match method {
            Method::Password => self.account.has_password(),
            Method::Sms | Method::Email | Method::Whatsapp => reachable(self.account, method).next().is_some(),
            Method::Passkey | Method::Totp | Method::RecoveryCode | Method::Sso => self
                .credentials
                .is_some_and(|row| row.can_prove(method, |strength| strength.counts_as_factor(&self.login.plan))),
        }
    }

    fn contacts(&self, next: MethodSet, keyed: &Keyed) -> Vec<ContactChoice> {
        let of = |method: Method| {
            reachable(self.account, method).map(move |contact| ContactChoice {
                contact_id: contact_id(contact, self.login, keyed),
                method: method.as_str(),
                masked: masked(contact),
            })
        };
        next.iter().flat_map(of).collect()
    }
}
