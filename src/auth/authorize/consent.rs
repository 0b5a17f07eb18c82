//! The decision of a user about a third-party client, before it gets a code.

use std::{fmt, time::Duration};

use http::Response;

use super::{
    claims_parameter::OF_SCOPES,
    query::{Asked, Checked},
};
use crate::{
    auth::{
        context::RequestContext,
        http::problem::{Code, EndpointResult, Problem},
        pages::{
            built,
            consent::{Question, consent_page},
            page,
        },
        state::{
            accounts::{GenerationOf, shown_name},
            consents::Access,
            journal::EventSource,
        },
    },
    event::EventKind,
    http::body::Body,
    login::{Keyed, Wanted},
    session::{Authentication, UserId},
    store::StoreError,
    util::{
        clock::UnixTime,
        encoding::{base64url_of_32, base64url_to_32},
        secret::SecretDigest,
    },
};

/// How long a page can be answered, if its login or session lasts as long.
const ANSWERED_WITHIN: Duration = Duration::from_secs(600);

/// The user whose decision counts, as a browser has proved it.
pub(crate) struct Decider<'a> {
    pub(crate) who: &'a Authentication,
    /// The login or the session of the browser.
    pub(crate) proof: &'a [u8],
    pub(crate) has_session: bool,
}

impl<'a> Decider<'a> {
    fn user(&self) -> &'a UserId {
        &self.who.user
    }

    /// Returns whether the user has allowed this very request on the page.
    pub(crate) fn has_allowed(&self, asked: &Asked<'_>, keyed: &Keyed, now: UnixTime) -> bool {
        let ticket = asked.decision.as_ref().and_then(|decision| Ticket::parse(&decision.ticket));
        ticket.is_some_and(|ticket| ticket.fits(asked, self, keyed, now))
    }

    /// Returns whether the account may still log in and nothing has ended its login or session.
    async fn is_active(&self, cx: &RequestContext<'_>, keyed: &Keyed) -> Result<bool, StoreError> {
        Ok(cx.core.counting(self.who, GenerationOf::Account, keyed).await?.is_some())
    }
}

/// Checks that the user has consented to the request of a third-party client, and stores a decision that came with it. Returns
/// the consent page if the user has not decided yet.
///
/// A ticket binds the decision to this exact request, to the user, and to the login or session of the browser. A page that was
/// shown for another request or another user therefore decides nothing.
///
/// # Errors
///
/// Returns `access_denied` if the user may no longer log in, and `consent_required` if the request allows no page.
pub(crate) async fn require_consent(
    cx: &RequestContext<'_>,
    asked: &Asked<'_>,
    (checked, wanted): (&Checked, &Wanted),
    decider: &Decider<'_>,
) -> Result<Option<Response<Body>>, Problem> {
    let (core, client) = (cx.core, &*asked.to.client);
    if !client.is_third_party() {
        return Ok(None);
    }
    let access = Access::of_request(&checked.binding.scope, wanted, core.default_audience(client));
    let of_user = (client.tenant(), decider.user());
    let (now, keyed) = (core.logins.now(), core.keyed().await?);
    match decider.has_allowed(asked, keyed, now) {
        true => {
            let denied = || Problem::new(Code::AccessDenied, "the account is not allowed to log in");
            if !decider.is_active(cx, keyed).await? {
                return Err(denied());
            }
            let evicted = core.consents.give(of_user, client, &access).await?;
            if let Some(endpoints) = &core.tokens {
                for evicted in evicted {
                    endpoints.service.revoke_client(client.tenant(), decider.user(), &evicted).await?;
                }
            }
            // nothing may remain of a user who was forgotten in the meantime
            if !decider.is_active(cx, keyed).await? {
                let (tenant, user) = (client.tenant(), decider.user());
                if core.sessions.generations().current(tenant, user).wait().await? > decider.who.generation {
                    core.consents.forget(tenant, user).await?;
                }
                return Err(denied());
            }
            let source = EventSource::of_user(client.tenant(), decider.user());
            core.journal.tally_login(EventKind::ConsentGiven, source, (None, None), keyed);
            return Ok(None);
        }
        false if !checked.oidc.asks_consent && core.consents.allow(of_user, client, &access).await? => return Ok(None),
        false if checked.oidc.is_silent => {
            return Err(Problem::new(Code::ConsentRequired, "the user must allow it first"));
        }
        false => {}
    }
    let ticket = Ticket::issue(asked, decider, keyed, now + ANSWERED_WITHIN).to_string();
    question_page(cx, asked, &access, decider, &ticket).await.map(Some)
}

async fn question_page(
    cx: &RequestContext<'_>,
    asked: &Asked<'_>,
    access: &Access,
    decider: &Decider<'_>,
    ticket: &str,
) -> EndpointResult {
    let (core, client) = (cx.core, &*asked.to.client);
    let language = built::language(asked.query.value("ui_locales"), cx.parts);
    let account = core.users.by_id(client.tenant(), decider.user()).await?;
    let question = Question {
        client: client.display_name(),
        place: match asked.to.place() {
            ("site", host) => host.to_owned(),
            ("loopback", _) => core.pages.words.get(language, "login.on_program").to_owned(),
            _ => core.pages.words.get(language, "login.on_app").to_owned(),
        },
        user: account.as_ref().map_or(decider.user().as_str(), shown_name).to_owned(),
        has_session: decider.has_session,
        login_page: format!("{}?{}", page::url(core), asked.query.raw),
        access: access_lines(access, core.issuer.as_str()),
        has_account_page: cx.is_site_of(client.tenant()),
        fields: [("request", &asked.query.raw), ("ticket", ticket)],
        target: asked.to.redirect.policy_source(),
    };
    Ok(consent_page(&core.pages, language, &question))
}

/// Returns the scopes, claims and resources that a client requests, without duplicates: the key of a text, and the name in it.
/// The issuer is left out, because scopes and claims describe tokens for it.
fn access_lines<'a>(access: &'a Access, issuer: &str) -> Vec<(&'static str, &'a str)> {
    let of_scope = |name| match name {
        "openid" => ("login.scope_openid", name),
        "profile" => ("login.scope_profile", name),
        "email" => ("login.scope_email", name),
        "phone" => ("login.scope_phone", name),
        "address" => ("login.scope_address", name),
        "offline_access" => ("login.scope_offline_access", name),
        _ => ("consent.scope_other", name),
    };
    // a claim that is requested by name reads like the scope that includes it
    let of_claim = |name| match OF_SCOPES.iter().find(|(_, claims)| claims.contains(&name)) {
        Some((scope, _)) => of_scope(scope),
        None => ("consent.claim_other", name),
    };
    let claims = access.claims.iter().map(|name| of_claim(name.as_str()));
    let resources = access.resources.iter().filter(|name| *name != issuer);
    let resources = resources.map(|name| ("consent.resource", name.as_str()));
    let mut all = Vec::new();
    for line in access.scopes.iter().map(|name| of_scope(name.as_str())).chain(claims).chain(resources) {
        if !all.contains(&line) {
            all.push(line);
        }
    }
    all
}

/// Shows that this service has asked this user, in this browser, about this request.
struct Ticket {
    ends: u64,
    seal: SecretDigest,
}

impl Ticket {
    fn issue(asked: &Asked<'_>, decider: &Decider<'_>, keyed: &Keyed, ends: UnixTime) -> Self {
        let ends = ends.as_secs();
        let request = asked.query.raw.as_bytes();
        let tenant = asked.to.client.tenant().as_bytes();
        let parts = [request, tenant, decider.user().as_str().as_bytes(), decider.proof, &ends.to_be_bytes()];
        Self { ends, seal: keyed.hash("consent page", parts) }
    }

    fn parse(text: &str) -> Option<Self> {
        let (ends, seal) = text.split_once('.')?;
        let seal = SecretDigest::from_bytes(*base64url_to_32(seal.as_bytes())?);
        Some(Self { ends: ends.parse().ok()?, seal })
    }

    fn fits(&self, asked: &Asked<'_>, decider: &Decider<'_>, keyed: &Keyed, now: UnixTime) -> bool {
        let ends = UnixTime::from_secs(self.ends);
        now < ends && Self::issue(asked, decider, keyed, ends).seal.matches(&self.seal)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seal = base64url_of_32(self.seal.as_bytes());
        write!(f, "{}.{}", self.ends, std::str::from_utf8(&seal).unwrap_or_default())
    }
}
