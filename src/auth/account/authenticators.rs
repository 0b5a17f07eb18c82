//! Enrols and removes authenticator apps, recovery codes and linked accounts.

use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    call::{self, AccountCall, AccountFields},
    pending::PendingEnrolments,
};
use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer,
            problem::{Code, Problem},
        },
        state::proofs::enrolment_mark,
    },
    credential::{PendingTotp, Removed, SsoLink},
    delivery::NoticeKind,
    http::body::Body,
    login::Keyed,
    util::{handle::Handle, secret::Digest},
};

/// The table of keys that were not confirmed yet.
const PENDING: &str = "pending_totp";

#[derive(Serialize)]
struct NewKey<'a> {
    secret: &'a str,
    uri: &'a str,
    qr_svg: &'a str,
}

#[derive(Serialize)]
struct Enrolled {
    created_at: u64,
}

#[derive(Serialize)]
struct NewCodes {
    codes: Vec<String>,
}

/// Creates a key for an authenticator app. It counts once the user confirms it with a code.
pub(super) async fn begin_totp(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    check_enabled(cx)?;
    call.require_fresh(cx.core)?;
    let new = cx.core.authenticators.new_totp(call.owner(), &call.display_name());
    let (new, pending) = new.ok_or_else(Problem::unavailable)?;
    PendingEnrolments::of(cx.core, PENDING).begin(call.session(), &pending).await?;
    Ok(answer::json(StatusCode::OK, &NewKey { secret: &new.secret, uri: &new.uri, qr_svg: &new.qr_svg }))
}

/// Stores the key that was begun in this session, if the user has typed its current code.
pub(super) async fn confirm_totp(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    let typed = fields.code.as_ref().ok_or(Problem::invalid("code is missing"))?;
    check_enabled(cx)?;
    call.require_fresh(cx.core)?;
    let rows = PendingEnrolments::<PendingTotp>::of(cx.core, PENDING);
    let nothing = || Problem::new(Code::NoPendingChallenge, "no authenticator app is being set up in this session");
    let pending = rows.find(call.session()).await?.ok_or_else(nothing)?;
    let authenticators = &cx.core.authenticators;
    let key = authenticators.confirm_totp(call.owner(), &pending.value, &typed.0, call.strength());
    let key = key.ok_or(Problem::new(Code::InvalidOtp, "the code is wrong or expired"))?;
    if !rows.take(call.session(), &pending).await? {
        return Err(nothing());
    }
    authenticators.enrol_totp(call.owner(), &key).await?;
    call.keep(cx.core, cx.core.credentials.discard_enrolment(call.owner(), &key.enrolment)).await?;
    call.changed(cx, NoticeKind::TotpAdded).await;
    Ok(answer::json(StatusCode::CREATED, &Enrolled { created_at: key.created_at }))
}

/// Removes the key of the authenticator app.
pub(super) async fn delete_totp(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    call.require_fresh(cx.core)?;
    let removed = cx.core.credentials.remove_totp(call.owner(), call.may_change(cx.core)).await?;
    call::removed(removed, "this user has no authenticator app")?;
    call.changed(cx, NoticeKind::TotpRemoved).await;
    Ok(answer::no_content())
}

/// Creates recovery codes, which replace the old ones, and shows them once.
pub(super) async fn renew_codes(cx: &RequestContext<'_>, call: &AccountCall) -> Result<Response<Body>, Problem> {
    check_enabled(cx)?;
    call.require_fresh(cx.core)?;
    let keyed = cx.core.keyed().await?;
    let authenticators = &cx.core.authenticators;
    let (enrolment, codes) = authenticators.renew_recovery_codes(call.owner(), call.strength(), keyed).await?;
    call.keep(cx.core, cx.core.credentials.discard_enrolment(call.owner(), &enrolment)).await?;
    call.changed(cx, NoticeKind::RecoveryCodesRenewed).await;
    Ok(answer::json(StatusCode::CREATED, &NewCodes { codes }))
}

/// Unlinks an account at another identity provider.
pub(super) async fn delete_link(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &AccountFields,
) -> Result<Response<Body>, Problem> {
    let id = fields.id.as_deref().ok_or(Problem::invalid("id is missing"))?;
    call.require_fresh(cx.core)?;
    let keyed = cx.core.keyed().await?;
    let mut links = call.credentials.iter().flat_map(|row| &row.links);
    let link = links.find(|link| link_id(link, keyed) == id);
    let removed = match link {
        Some(link) => cx.core.credentials.remove_link(call.owner(), link, call.may_change(cx.core)).await?,
        None => Removed::Unknown,
    };
    call::removed(removed, "this user has no link with this id")?;
    call.changed(cx, NoticeKind::LinkRemoved).await;
    Ok(answer::no_content())
}

/// Returns the id of a link, which reveals neither the issuer nor the subject.
pub(super) fn link_id(link: &SsoLink, keyed: &Keyed) -> String {
    Handle::of(&Digest::from_bytes(enrolment_mark(&link.enrolment, keyed))).to_string()
}

fn check_enabled(cx: &RequestContext<'_>) -> Result<(), Problem> {
    match cx.core.authenticators.has_totp() {
        true => Ok(()),
        false => Err(Problem::new(Code::NotFound, "authenticator apps are not enabled here")),
    }
}
