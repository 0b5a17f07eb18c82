//! `GET /account/credentials`: how the user signs in, and where they are signed in.

use http::StatusCode;
use serde::Serialize;

use super::contacts::{self, ContactShown};
use crate::{
    auth::{
        factors::{self, Enrolled, enrolment::call::AccountCall},
        http::{
            answer::{self, OfferedProvider},
            problem::EndpointResult,
        },
        state::consents::Consent,
    },
    policy::{FactorClass, Method},
    session::Session,
    user::OfferedChange,
    util::clock::UnixTime,
};

#[derive(Serialize)]
struct Overview<'a> {
    user: &'a str,
    display_name: String,
    /// Until when the user can change how they sign in without a new login.
    fresh_until: Option<u64>,
    required_proofs: usize,
    /// A sign-in after which they can.
    fresh_login_url: String,
    /// Whether codes of an authenticator app would count.
    can_use_codes: bool,
    /// Whether the user has two factors, so that recovery codes can stand in for one of them.
    has_two_factors: bool,
    /// Whether each sign-in to this site needs a passkey or an authenticator app once the user has one.
    asks_factor: bool,
    #[serde(flatten)]
    enrolled: Enrolled<'a>,
    available: Available,
    /// The changes of the account itself that are offered here.
    changes: Changes,
    has_password: bool,
    /// The minimum number of characters of a new password.
    least_password: usize,
    name: Option<&'a str>,
    contacts: Vec<ContactShown>,
    sessions: Vec<SessionShown>,
    /// The third-party clients to which the user has consented, newest first.
    consents: Vec<Consent>,
}

#[derive(Serialize)]
struct Changes {
    password: bool,
    name: bool,
    email: bool,
    phone: bool,
    delete: bool,
}

/// The kinds of credentials that can be enrolled here.
#[derive(Serialize)]
struct Available {
    passkey: bool,
    totp: bool,
    /// The identity providers to which the user has no link yet.
    providers: Vec<OfferedProvider>,
}

#[derive(Serialize)]
struct SessionShown {
    sid: String,
    current: bool,
    device: Option<String>,
    created_at: u64,
    last_used_at: u64,
}

pub(super) async fn list_credentials(call: &AccountCall<'_>) -> EndpointResult {
    let core = call.cx.core;
    let own = call.session().sid();
    let shown = |session: &Session| SessionShown {
        sid: session.sid().to_string(),
        current: session.sid() == own,
        device: session.device().map(str::to_owned),
        created_at: session.created().as_secs(),
        last_used_at: session.last_use().as_secs(),
    };
    let sessions = core.sessions.list(call.tenant(), call.session().user()).await?;
    let consents = core.shown_consents(call.tenant(), call.session().user()).await?;
    let keyed = core.keyed().await?;
    let enabled = core.enabled(call.tenant());
    let offers = |change| core.users.offers(change);
    let proves = |class| offers(OfferedChange::SetContact) && core.channel_to(class).is_some();
    let overview = Overview {
        user: call.session().user().as_str(),
        display_name: call.who.display_name(),
        fresh_until: call.fresh_until().map(UnixTime::as_secs),
        required_proofs: call.required.proofs(),
        fresh_login_url: call.required.login_url(core),
        can_use_codes: call.can_use_codes(),
        has_two_factors: call.has_two_factors(),
        asks_factor: core.asks_enrolled(call.tenant()),
        enrolled: Enrolled { call, keyed },
        available: Available {
            passkey: enabled.contains(Method::Passkey),
            totp: enabled.contains(Method::Totp),
            providers: factors::unlinked_providers(core, call.tenant(), call.credentials.as_ref()),
        },
        changes: Changes {
            password: offers(OfferedChange::SetPassword),
            name: offers(OfferedChange::SetName),
            email: proves(FactorClass::Mailbox),
            phone: proves(FactorClass::Phone),
            delete: offers(OfferedChange::Remove),
        },
        has_password: call.account().has_password(),
        least_password: core.least_password(call.tenant()),
        name: call.account().display_name(),
        contacts: contacts::list_contacts(call, keyed),
        sessions: sessions.iter().map(shown).collect(),
        consents,
    };
    Ok(answer::json(StatusCode::OK, &overview))
}
