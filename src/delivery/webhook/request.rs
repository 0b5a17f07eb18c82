//! The request to a gateway, and what carries it.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Uri, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs::default_provider};
use serde::Serialize;

use super::sign::Signer;
use crate::{
    body::Body,
    clock::UnixTime,
    delivery::{Message, SendError},
    error::ConfigError,
};

/// It follows no redirect and uses no proxy.
pub(super) type Client = legacy::Client<HttpsConnector<HttpConnector>, Body>;

/// A client that trusts these authorities, or the public ones that are compiled in. It names its TLS provider, so that
/// it needs none for the whole process.
pub(super) fn client(roots: Option<RootCertStore>) -> Result<Client, ConfigError> {
    let wrong = |_| ConfigError::new("webhook", "TLS", "can't be set up");
    let builder = match roots {
        None => HttpsConnectorBuilder::new().with_provider_and_webpki_roots(default_provider()).map_err(wrong)?,
        Some(roots) => {
            let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(wrong)?;
            HttpsConnectorBuilder::new().with_tls_config(config.with_root_certificates(roots).with_no_client_auth())
        }
    };
    Ok(legacy::Client::builder(TokioExecutor::new()).build(builder.https_or_http().enable_http1().build()))
}

#[derive(Serialize)]
struct Payload<'a> {
    id: &'a str,
    channel: &'a str,
    tenant: &'a str,
    to: &'a str,
    code: &'a str,
    text: &'a str,
    expires_at: u64,
}

pub(super) fn write(
    url: &Uri,
    signer: &Signer,
    message: &Message,
    text: &str,
    now: UnixTime,
) -> Result<Request<Body>, SendError> {
    let payload = Payload {
        id: message.id(),
        channel: message.channel().as_str(),
        tenant: message.tenant().as_str(),
        to: message.to(),
        code: message.code(),
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
