//! Enrols and removes authenticator apps and recovery codes.

use http::{Response, StatusCode};
use serde::Serialize;

use super::code::PendingTotp;
use crate::{
    auth::{
        context::RequestContext,
        factors::enrolment::{
            call::{self, AccountCall, AccountFields, with_cookie},
            new_credential::NewCredential,
            pending::{NewKey, PENDING_TOTP, PendingEnrolments},
        },
        http::{
            answer,
            problem::{Code, Problem},
        },
    },
    delivery::NoticeKind,
    http::body::Body,
    policy::Method,
};

#[derive(Serialize)]
struct Enrolled {
    created_at: u64,
}

#[derive(Serialize)]
struct NewCodes {
    codes: Vec<String>,
}

/// Creates a key for an authenticator app. It counts once the user confirms it with a code.
pub(crate) async fn begin_totp(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    check_enabled(cx)?;
    call.vouching(cx.core, Method::Totp)?;
    let new = cx.core.enrolled_codes.new_totp(call.owner(), &call.display_name());
    let (new, pending) = new.ok_or_else(Problem::unavailable)?;
    PendingEnrolments::of(cx.core, PENDING_TOTP).begin(&call.place(), &pending).await?;
    Ok(answer::json(StatusCode::OK, &NewKey::from(&new)))
}

/// Stores the key that was begun in this session, if the user has typed its current code.
pub(crate) async fn confirm_totp(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    let typed = fields.code.as_ref().ok_or(Problem::invalid("code is missing"))?;
    check_enabled(cx)?;
    let vouching = call.vouching(cx.core, Method::Totp)?;
    let rows = PendingEnrolments::<PendingTotp>::of(cx.core, PENDING_TOTP);
    let nothing = || Problem::new(Code::NoPendingChallenge, "no authenticator app is being set up in this session");
    let pending = rows.find(&call.place()).await?.ok_or_else(nothing)?;
    let key = cx.core.enrolled_codes.confirm_totp(call.owner(), &pending.value, &typed.0, vouching.strength);
    let key = key.ok_or(Problem::new(Code::InvalidOtp, "the code is wrong or expired"))?;
    if !rows.take_found(&call.place(), &pending).await? {
        return Err(nothing());
    }
    let created_at = key.created_at;
    let cookie = call.enrol(cx, &NewCredential::Totp(key), vouching.is_first).await?;
    Ok(with_cookie(answer::json(StatusCode::CREATED, &Enrolled { created_at }), cookie))
}

/// Removes the key of the authenticator app.
pub(crate) async fn delete_totp(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    call.require_fresh(cx.core)?;
    let removed = cx.core.credentials.remove_totp(call.owner(), call.may_change(cx.core)).await?;
    call::removed(removed, "this user has no authenticator app")?;
    call.changed(cx, NoticeKind::TotpRemoved).await;
    Ok(answer::no_content())
}

/// Creates recovery codes, which replace the old ones, and shows them once.
pub(crate) async fn renew_codes(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    check_enabled(cx)?;
    call.require_second_factor(cx.core)?;
    let keyed = cx.core.keyed().await?;
    let enrolled = &cx.core.enrolled_codes;
    let (enrolment, codes) = enrolled.renew_recovery_codes(call.owner(), call.strength(), keyed).await?;
    call.keep(cx.core, cx.core.credentials.discard_enrolment(call.owner(), &enrolment)).await?;
    call.changed(cx, NoticeKind::RecoveryCodesRenewed).await;
    Ok(answer::json(StatusCode::CREATED, &NewCodes { codes }))
}

fn check_enabled(cx: &RequestContext<'_>) -> Result<(), Problem> {
    match cx.core.enrolled_codes.has_totp() {
        true => Ok(()),
        false => Err(Problem::new(Code::NotFound, "authenticator apps are not enabled here")),
    }
}
