//! Builds requests to gateways.

use http::{HeaderValue, Method, Request, Uri, header};
use serde::Serialize;

use super::sign::WebhookSigner;
use crate::{
    delivery::{error::SendError, message::Message},
    http::body::Body,
    util::clock::UnixTime,
};

#[derive(Serialize)]
struct Payload<'a> {
    id: &'a str,
    channel: &'a str,
    tenant: &'a str,
    to: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<SentLink<'a>>,
    language: &'a str,
    text: &'a str,
    expires_at: u64,
}

#[derive(Serialize)]
struct SentLink<'a> {
    kind: &'a str,
    url: &'a str,
}

pub(super) fn build_webhook_request(
    url: &Uri,
    signer: &WebhookSigner,
    message: &Message,
    text: &str,
    now: UnixTime,
) -> Result<Request<Body>, SendError> {
    let payload = Payload {
        id: message.id(),
        channel: message.channel().as_str(),
        tenant: message.tenant().as_str(),
        to: message.to(),
        code: (message.notice().is_none() && message.link().is_none()).then(|| message.code()),
        notice: message.notice().map(|notice| notice.kind().as_str()),
        link: message.link().map(|link| SentLink { kind: link.kind().as_str(), url: link.url() }),
        language: message.language().as_str(),
        text,
        expires_at: message.expires_at().as_secs(),
    };
    let body = serde_json::to_vec(&payload).map_err(SendError::permanent)?;
    let signature = signer.sign(message.id(), now.as_secs(), &body);
    Request::builder()
        .method(Method::POST)
        .uri(url.clone())
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(header::USER_AGENT, HeaderValue::from_static("tollgate"))
        .header("webhook-id", message.id())
        .header("webhook-timestamp", now.as_secs())
        .header("webhook-signature", signature)
        .body(Body::from(body))
        .map_err(SendError::permanent)
}
