//! The description of an API for clients that do not know its issuer (RFC 9728).

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header};

use crate::{
    http::head::Head,
    jose::Algorithm,
    reject::{Rejection, RejectionKind, Respond},
    support::issuer::Issuer,
    util::{error::ConfigError, json_object::JsonObject, scan::is_unseen},
};

/// The beginning of the document's path. The path of the API follows it.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Clients may keep the document as long as the metadata of the issuer.
const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// An API, and what its document says about it.
#[derive(Clone, Debug)]
pub(super) struct ProtectedResource {
    url: Issuer,
    name: Option<Box<str>>,
    /// The scopes in the document. If empty, it lists the scopes that the layer requires.
    scopes: Vec<Box<str>>,
}

impl ProtectedResource {
    pub(super) fn parse(url: &str) -> Result<Self, ConfigError> {
        Ok(Self { url: Issuer::parse_setting("resource", url)?, name: None, scopes: Vec::new() })
    }

    pub(super) fn set_name(&mut self, name: &str) -> Result<(), ConfigError> {
        if name.trim().is_empty() || name.chars().any(is_unseen) {
            return Err(ConfigError::new("resource name", name.escape_debug(), "must be visible characters"));
        }
        self.name = Some(name.into());
        Ok(())
    }

    pub(super) fn add_scope(&mut self, scope: &str) {
        self.scopes.push(scope.into());
    }

    /// Returns the URL of the API, which is the audience of its tokens.
    pub(super) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the path of the document.
    pub(super) fn document_path(&self) -> String {
        [WELL_KNOWN, self.url.path()].concat()
    }

    /// Returns the URL of the document, for challenges.
    pub(super) fn document_url(&self) -> String {
        [self.url.origin(), WELL_KNOWN, self.url.path()].concat()
    }

    /// Returns whether a request asks for the document.
    pub(super) fn is_asked_for(&self, head: Head<'_>) -> bool {
        let rest = head.uri().path().strip_prefix(WELL_KNOWN);
        rest == Some(self.url.path()) && matches!(*head.method(), Method::GET | Method::HEAD) && !head.is_grpc()
    }

    /// Returns the answer to a request for the document.
    pub(super) fn document(&self, issuer: &str, required: &[Box<str>], takes_proofs: bool) -> Rejection {
        let scopes = if self.scopes.is_empty() { required } else { &self.scopes };
        let scopes: Vec<&str> = scopes.iter().map(AsRef::as_ref).collect();
        let mut document = JsonObject::new().text("resource", self.url()).texts("authorization_servers", &[issuer]);
        if !scopes.is_empty() {
            document = document.texts("scopes_supported", &scopes);
        }
        document =
            document.texts("bearer_methods_supported", &["header"]).text_if_any("resource_name", self.name.as_deref());
        if takes_proofs {
            document = document.texts("dpop_signing_alg_values_supported", Algorithm::ACCEPTED_NAMES);
        }
        Rejection::new(RejectionKind::Answered, document.end())
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(header::CACHE_CONTROL, KEPT)
            .header(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"))
    }
}

/// Answers requests for the document of a [resource](super::BearerLayer::resource), and leaves rejections to `R`.
///
/// Works with every body type that implements `From<Bytes>`, such as `Full` and the body of axum.
#[derive(Clone, Copy, Debug)]
pub struct WithDocument<R>(pub(super) R);

impl<B: From<Bytes>, R: Respond<B>> Respond<B> for WithDocument<R> {
    fn respond(&self, rejection: &Rejection, head: Head<'_>) -> Response<B> {
        match rejection.kind() {
            RejectionKind::Answered => Response::new(B::from(Bytes::copy_from_slice(rejection.detail().as_bytes()))),
            _ => self.0.respond(rejection, head),
        }
    }
}
