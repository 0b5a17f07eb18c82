//! Removes accounts at other identity providers from the account of the user who calls.

use http::Response;

use crate::{
    auth::{
        context::RequestContext,
        factors::{
            credentials::{row::SsoLink, table::Removed},
            enrolment::call::{self, AccountCall, AccountFields},
            proofs::enrolment_mark,
        },
        http::{answer, problem::Problem},
    },
    delivery::NoticeKind,
    http::body::Body,
    login::Keyed,
    policy::Method,
    session::{Proof, Session},
    util::{handle::Handle, secret::Digest},
};

/// Unlinks an account at another identity provider.
pub(crate) async fn delete(
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
pub(crate) fn link_id(link: &SsoLink, keyed: &Keyed) -> String {
    Handle::of(&Digest::from_bytes(enrolment_mark(&link.enrolment, keyed))).to_string()
}

/// Returns whether a session ends if this link is removed in it, because no other proof is left that can stand alone.
pub(crate) fn ends_with(session: &Session, link: &SsoLink, keyed: &Keyed) -> bool {
    let mark = Some(enrolment_mark(&link.enrolment, keyed));
    let stands_alone = |proof: &Proof| Method::from_name(&proof.method).is_none_or(Method::can_be_first);
    let mut rest = session.proofs().iter().filter(|proof| proof.mark != mark);
    !session.proofs().is_empty() && !rest.any(stands_alone)
}
