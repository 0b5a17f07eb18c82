//! `GET /authentication/choices`: what the user of a login can use for the next step.
//!
//! It answers only after a proved step, or to the signed-in user whose session the login continues, because it shows what
//! the account has. It changes nothing.

use serde::Serialize;

use crate::{
    auth::{
        context::stages::OwnLogin,
        factors::{self, credentials::credential::Strength, enrolment::in_login::EnrolmentOffer, signed_in::SignedIn},
        http::{
            answer::{self, ContactChoice, OfferedProvider},
            problem::{Code, EndpointResult, Problem},
        },
        state::accounts::GenerationOf,
    },
    login::LoginError,
    policy::Method,
    util::clock::UnixTime,
};

#[derive(Serialize)]
struct Choices {
    methods: Vec<&'static str>,
    contacts: Vec<ContactChoice>,
    providers: Vec<OfferedProvider>,
    /// What a user who has only one factor can set up to prove this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    enrol: Option<Enrollable>,
    /// Whether the user could set something up if there were no passkey or app, which is too weak for this login and has to be
    /// proved on the account page.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    weak_factor: bool,
}

#[derive(Serialize)]
struct Enrollable {
    methods: Vec<&'static str>,
    /// Until when this is possible. Afterwards, the first step has to be proved again.
    fresh_until: Option<u64>,
}

pub(crate) async fn list_choices(OwnLogin { cx, stored, .. }: &OwnLogin<'_>) -> EndpointResult {
    let (core, login) = (cx.core, &stored.value);
    let now = core.logins.now();
    let view = login.to_login_view(now);
    let refused = |problem: Problem| Err(problem.with_login_view(view));
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
        (Some(who), _) => core.counting(&who, GenerationOf::Account, keyed).await?,
        (None, Some(_)) => {
            let signed_in = SignedIn::find_at_tenant(cx, &login.tenant).await?;
            signed_in.filter(|signed_in| signed_in.bears(login)).map(|signed_in| signed_in.account)
        }
        (None, None) => return refused(Problem::new(Code::StepRequired, "prove a step first")),
    };
    // a closed account, a password that was changed since, or a session that ended: no step can complete this login
    let Some(account) = account else { return refused(Problem::denied(LoginError::Expired)) };
    let credentials = core.credentials.get(&login.tenant, account.id()).await?;
    let next = login.plan.next(login.proved()).intersection(core.enabled(&login.tenant));
    let providers = match next.contains(Method::Sso) {
        true => factors::usable_providers(core, login, &account, credentials.as_ref()),
        false => Vec::new(),
    };
    let offer = EnrolmentOffer::offer_for_login(core, login, (&account, credentials.as_ref()), keyed);
    let weak_factor = offer.as_ref().is_some_and(|offer| offer.needs_weak_factor);
    let counts = |strength: &Strength| strength.counts_as_factor(&login.plan);
    let has = |method: &Method| match method {
        Method::Sso => !providers.is_empty(),
        method => core.can_prove(&login.tenant, *method, (&account, credentials.as_ref()), counts),
    };
    let choices = Choices {
        methods: next.iter().filter(has).map(Method::as_str).collect(),
        contacts: factors::contact_choices(&account, next, login, keyed),
        providers,
        enrol: offer.filter(|_| !weak_factor).map(|offer| Enrollable {
            methods: offer.methods.iter().map(Method::as_str).collect(),
            fresh_until: offer.fresh_until.map(UnixTime::as_secs),
        }),
        weak_factor,
    };
    Ok(answer::login_progress(view, choices))
}
