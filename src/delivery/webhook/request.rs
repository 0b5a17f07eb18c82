//! Builds requests to gateways.

use http::{HeaderValue, Method, Request, Uri, header};

use super::sign::WebhookSigner;
use crate::{
    delivery::{error::SendError, link::Link, message::Message},
    http::body::Body,
    util::{clock::UnixTime, json_object::JsonObject},
};

pub(super) fn build_webhook_request(
    url: &Uri,
    signer: &WebhookSigner,
    message: &Message,
    now: UnixTime,
) -> Result<Request<Body>, SendError> {
    let link = |link: &Link| JsonObject::new().text("kind", link.kind().as_str()).text("url", link.url()).end();
    let code = (message.notice().is_none() && message.link().is_none()).then(|| message.code());
    let payload = JsonObject::new()
        .text("id", message.id())
        .text("channel", message.channel().as_str())
        .text("tenant", message.tenant().as_str())
        .text("to", message.to())
        .text_if_any("code", code)
        .text_if_any("notice", message.notice().map(|notice| notice.kind().as_str()));
    let payload = match message.link() {
        Some(of_message) => payload.json("link", &link(of_message)),
        None => payload,
    };
    let payload = payload.text("language", message.language().as_str()).text("text", &message.text(now));
    let body = payload.number("expires_at", message.expires_at().as_secs()).end().into_bytes();
    let signature = signer.sign(message.id(), now.as_secs(), &body);
    Request::builder()
        .method(Method::POST)
        .uri(url.clone())
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header("webhook-id", message.id())
        .header("webhook-timestamp", now.as_secs())
        .header("webhook-signature", signature)
        .body(Body::from(body))
        .map_err(SendError::permanent)
}
