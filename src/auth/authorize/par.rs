//! `POST /par` (RFC 9126): a client pushes an authorization request.

use http::StatusCode;

use super::query::{self, Asked};
use crate::{
    auth::{
        context::{RequestContext, client_authentication, incoming::IncomingRequest},
        http::{
            answer,
            bodies::RequestBody,
            fields,
            problem::{Code, EndpointResult, Problem},
        },
        query::Query,
        state::pushed,
    },
    util::{clock::ceil_seconds, form, json_object::JsonObject},
};

/// The longest request that is stored.
const LONGEST: usize = 8 * 1024;

/// `POST /par`.
pub(crate) async fn push_request(request: &mut IncomingRequest<'_>, body: &mut RequestBody) -> EndpointResult {
    let body = fields::form(request.parts, body).await.and_then(|body| match body.len() {
        ..=LONGEST => Ok(body),
        _ => Err(Problem::new(Code::TooLarge, "the request is longer than 8 KiB")),
    });
    let body = request.or_charge(body).await?;
    let (cx, asked) = query::pushing(request, Query::parse(&body)).await?;
    let checked = asked.checked(&cx)?;
    if cx.core.redeemed_challenges.is_redeemed(&checked.binding).await? {
        return Err(Problem::invalid(query::REDEEMED));
    }
    // it was read as one
    let text = String::from_utf8(body.to_vec()).map_err(|_| Problem::invalid("the body is not a valid form"))?;
    let parameters = stored_parameters(&cx, &asked, text, checked.oidc.wanted.dpop_jkt.as_deref()).await?;
    let secret = cx.core.pushed.store_pushed_request(asked.to.client.id(), parameters).await?;
    let answer = JsonObject::new().text("request_uri", &pushed::request_uri(&secret));
    let answer = answer.number("expires_in", ceil_seconds(pushed::UNUSED)).end();
    Ok(answer::response_with_body(StatusCode::CREATED, answer::JSON, answer))
}

/// Returns the parameters to store: without the credentials of the client, and with the DPoP key that the request proves. The
/// code is then bound to this key (RFC 9449 §10.1).
async fn stored_parameters(
    cx: &RequestContext<'_>,
    asked: &Asked<'_>,
    text: String,
    named: Option<&str>,
) -> Result<String, Problem> {
    let proved = match cx.core.tokens {
        Some(_) => cx.spend_request_proof("/par").await?,
        None => None,
    };
    let added = match (&proved, named) {
        (Some(proved), Some(named)) if proved != named => {
            return Err(Problem::new(Code::InvalidDpopProof, "dpop_jkt does not match the key of the proof"));
        }
        (Some(proved), None) => Some(("dpop_jkt", &**proved)),
        _ => None,
    };
    if added.is_none() && !asked.to.client.is_confidential() {
        return Ok(text);
    }
    // the key takes the place of one that is empty
    let is_kept =
        |name: &str| !client_authentication::PARAMETERS.contains(&name) && added.is_none_or(|(own, _)| own != name);
    let kept = asked.query.pairs().filter(|(name, _)| is_kept(name));
    let written = form::encode_pairs(kept.chain(added));
    // it has to be read again, and can be longer now
    if written.len() > LONGEST || form::Form::parse(written.as_bytes()).is_err() {
        return Err(Problem::new(Code::TooLarge, "the request and its key are longer than 8 KiB"));
    }
    Ok(written)
}
