//! Enrols authenticator apps, on the account page and within a login, and removes them.

use http::StatusCode;
use serde::Serialize;

use super::{key::TotpKey, settings::Totp};
use crate::{
    auth::{
        context::RequestContext,
        core::Core,
        factors::{
            credentials::{
                credential::Strength,
                row::Credentials,
                table::{Added, CredentialTable},
            },
            enrolment::{
                call::{self, AccountCall},
                in_login::Enrolment,
                new_credential::NewCredential,
                pending::PendingEnrolments,
            },
            step::LoginStep,
        },
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
            route::TotpChange,
        },
        state::accounts::shown_name,
    },
    delivery::NoticeKind,
    policy::Method,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    util::public_id::PublicId,
};

/// The table of keys that were not confirmed yet.
const PENDING: &str = "pending_totp";

/// An authenticator app, as the account page shows it.
#[derive(Serialize)]
pub(crate) struct TotpShown {
    created_at: u64,
}

impl TotpShown {
    pub(crate) fn from_totp_row(row: &Credentials) -> Option<Self> {
        row.totp.as_ref().map(|key| Self { created_at: key.created_at })
    }
}

/// Serves the calls about authenticator apps.
pub(crate) async fn serve_totp_change(change: TotpChange, call: &AccountCall<'_>) -> EndpointResult {
    match change {
        TotpChange::Begin => begin_totp(call).await,
        TotpChange::Confirm => confirm_totp(call).await,
        TotpChange::Delete => delete_totp(call).await,
    }
}

/// Creates a key for an authenticator app. It counts once the user confirms it with a code.
async fn begin_totp(call: &AccountCall<'_>) -> EndpointResult {
    let settings = settings(call.cx)?;
    call.vouching(Method::Totp)?;
    let new = TotpKey::new(settings, call.owner(), &call.who.display_name());
    let (new, pending) = new.ok_or_else(Problem::unavailable)?;
    pending_keys(call.cx.core).start_enrolment(&call.session().sid(), &pending).await?;
    Ok(answer::json(StatusCode::OK, &new))
}

/// Stores the key that was begun in this session, if the user has typed its current code.
async fn confirm_totp(call: &AccountCall<'_>) -> EndpointResult {
    let typed = call.fields.code.as_ref().ok_or(Problem::invalid("code is missing"))?;
    settings(call.cx)?;
    let vouching = call.vouching(Method::Totp)?;
    let nothing = Problem::new(Code::NoPendingChallenge, "no authenticator app is being set up in this session");
    let key = confirmed(call.cx, (&call.session().sid(), call.owner()), &typed.0, vouching.strength, nothing).await?;
    let key = key.ok_or(Problem::new(Code::InvalidOtp, "the code is wrong or expired"))?;
    let shown = answer::json(StatusCode::CREATED, &TotpShown { created_at: key.created_at });
    call.enrol_credential(&key, vouching.is_first, shown).await
}

/// Removes the key of the authenticator app.
async fn delete_totp(call: &AccountCall<'_>) -> EndpointResult {
    call.require_fresh()?;
    call.require_current().await?;
    let credentials = &call.cx.core.credentials;
    let removed = credentials.remove_if(call.owner(), |row| row.totp.take().is_some(), call.may_change()).await?;
    call::removed(removed, "this user has no authenticator app")?;
    call.changed(NoticeKind::TotpRemoved).await;
    Ok(answer::no_content())
}

/// Sets up an app within a login: creates a key, or confirms it with the code in the request.
pub(crate) async fn set_up_totp_in_login(mut step: LoginStep<'_>) -> EndpointResult {
    let typed = step.fields.code.take().map(|typed| typed.0);
    let enrolment = Enrolment::of_login_step(&step, Method::Totp).await?;
    let owner = (&step.login.tenant, enrolment.account.id());
    match typed {
        Some(typed) => {
            let nothing = Problem::new(Code::NoPendingChallenge, "no authenticator app is being set up in this login");
            let (place, strength) = ((&step.login.id, owner), enrolment.strength.clone());
            enrolment.finish(confirmed(step.cx, place, &typed, strength, step.problem(nothing))).await
        }
        None => {
            let new = TotpKey::new(settings(step.cx)?, owner, shown_name(&enrolment.account));
            let (new, pending) = new.ok_or_else(Problem::unavailable)?;
            pending_keys(step.cx.core).start_enrolment(&enrolment.step.login.id, &pending).await?;
            Ok(enrolment.begun(new))
        }
    }
}

/// Returns the key that was begun in this session or login, if this is its current code. It can be used once. If none was begun,
/// it returns the problem `nothing`.
async fn confirmed(
    cx: &RequestContext<'_>,
    (place, owner): (&PublicId, (&Tenant, &UserId)),
    typed: &str,
    strength: Strength,
    nothing: Problem,
) -> Result<Option<TotpKey>, Problem> {
    let rows = pending_keys(cx.core);
    let Some(pending) = rows.find(place).await? else { return Err(nothing) };
    let vouched = (strength, cx.core.logins.now());
    let key = pending.value.clone().confirm(owner, typed, vouched, &settings(cx)?.seal);
    match key.is_none() || rows.take_found(place, &pending).await? {
        true => Ok(key),
        false => Err(nothing),
    }
}

fn pending_keys(core: &Core) -> PendingEnrolments<TotpKey> {
    PendingEnrolments::of_table(core, PENDING)
}

fn settings<'c>(cx: &RequestContext<'c>) -> Result<&'c Totp, Problem> {
    let settings = cx.core.factors.totp.as_ref();
    settings.ok_or(Problem::new(Code::NotFound, "authenticator apps are not enabled here"))
}

impl NewCredential for TotpKey {
    const ADDED: NoticeKind = NoticeKind::TotpAdded;

    async fn store(
        &self,
        credentials: &CredentialTable,
        (tenant, user): (&Tenant, &UserId),
        may: impl Fn(&Credentials) -> bool + Send + Sync,
    ) -> Result<Added, StoreError> {
        // in place of an earlier key
        let put = |row: &mut Credentials| {
            if !may(row) {
                return Added::Outdated;
            }
            row.totp = Some(self.clone());
            Added::Done
        };
        credentials.update(tenant, user, put).await
    }

    async fn discard(
        &self,
        credentials: &CredentialTable,
        (tenant, user): (&Tenant, &UserId),
    ) -> Result<(), StoreError> {
        let discard = |row: &mut Credentials| {
            row.totp.take_if(|key| key.enrolment == self.enrolment);
        };
        credentials.update(tenant, user, discard).await
    }
}
