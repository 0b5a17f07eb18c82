//! `GET /account/credentials`: how the user signs in, and where they are signed in.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::{
    auth::{
        context::RequestContext,
        factors::{
            self, OfferedProvider,
            credentials::row::Passkey,
            enrolment::call::AccountCall,
            provider_label,
            sso::links::{ends_with, link_id},
        },
        http::{answer, problem::Problem},
    },
    http::body::Body,
    policy::Method,
    session::Session,
    util::clock::UnixTime,
};

#[derive(Serialize)]
struct Overview<'a> {
    user: &'a str,
    display_name: String,
    /// Until when the user can change how they sign in without a new login.
    fresh_until: Option<u64>,
    required_proofs: usize,
    /// Whether codes of an authenticator app would count.
    can_use_codes: bool,
    passkeys: Vec<PasskeyShown<'a>>,
    totp: Option<TotpShown>,
    recovery_codes: Option<CodesShown>,
    links: Vec<LinkShown<'a>>,
    available: Available,
    sessions: Vec<SessionShown>,
}

#[derive(Serialize)]
pub(crate) struct PasskeyShown<'a> {
    id: String,
    name: &'a str,
    created_at: u64,
    last_used_at: Option<u64>,
    backed_up: bool,
}

#[derive(Serialize)]
struct TotpShown {
    created_at: u64,
}

#[derive(Serialize)]
struct CodesShown {
    remaining: usize,
    created_at: u64,
}

#[derive(Serialize)]
struct LinkShown<'a> {
    id: String,
    provider: &'a str,
    label: &'a str,
    name: &'a str,
    created_at: u64,
    /// Whether this session ends when the link is removed.
    ends_session: bool,
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

impl<'a> From<&'a Passkey> for PasskeyShown<'a> {
    fn from(passkey: &'a Passkey) -> Self {
        Self {
            id: URL_SAFE_NO_PAD.encode(&passkey.id),
            name: &passkey.name,
            created_at: passkey.created_at,
            last_used_at: passkey.last_used_at,
            backed_up: passkey.backed_up,
        }
    }
}

pub(super) async fn list(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    let own = call.session().sid();
    let shown = |session: &Session| SessionShown {
        sid: session.sid().to_string(),
        current: session.sid() == own,
        device: session.device().map(str::to_owned),
        created_at: session.created().as_secs(),
        last_used_at: session.last_use().as_secs(),
    };
    let sessions = cx.core.sessions.list(call.tenant(), call.session().user()).await?;
    let keyed = cx.core.keyed().await?;
    let row = call.credentials.as_ref();
    let overview = Overview {
        user: call.session().user().as_str(),
        display_name: call.display_name(),
        fresh_until: call.fresh_until().map(UnixTime::as_secs),
        required_proofs: call.required,
        can_use_codes: call.can_use_codes(cx.core),
        passkeys: row.into_iter().flat_map(|row| &row.passkeys).map(PasskeyShown::from).collect(),
        totp: row.and_then(|row| row.totp.as_ref()).map(|key| TotpShown { created_at: key.created_at }),
        recovery_codes: row
            .and_then(|row| row.recovery.as_ref())
            .map(|codes| CodesShown { remaining: codes.unused.len(), created_at: codes.created_at }),
        links: row
            .into_iter()
            .flat_map(|row| &row.links)
            .map(|link| LinkShown {
                id: link_id(link, keyed),
                provider: &link.provider,
                label: provider_label(cx.core, call.tenant(), &link.provider).unwrap_or(&link.provider),
                name: &link.name,
                created_at: link.created_at,
                ends_session: ends_with(call.session(), link, keyed),
            })
            .collect(),
        available: Available {
            passkey: cx.core.enabled(call.tenant()).contains(Method::Passkey),
            totp: cx.core.enrolled_codes.has_totp(),
            providers: factors::unlinked_providers(cx.core, call.tenant(), row),
        },
        sessions: sessions.iter().map(shown).collect(),
    };
    Ok(answer::json(StatusCode::OK, &overview))
}
