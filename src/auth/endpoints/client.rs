//! What a client posts, and which client it is.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

use crate::{
    auth::{
        http::{
            credentials,
            problem::{Code, Problem},
        },
        visit::Visit,
    },
    client::Client,
    dpop::{self, DpopError},
    util::form::Form,
};

/// The fields of a form, or what is wrong with it.
pub(crate) struct Posted<'b>(Result<Form<'b>, &'static str>);

impl<'b> Posted<'b> {
    pub(crate) fn of(body: &'b Bytes) -> Self {
        Self(match Form::parse(body) {
            Ok(form) if form.has_duplicates() => Err("a parameter is given twice"),
            Ok(form) => Ok(form),
            Err(error) => Err(error.detail()),
        })
    }

    /// A field that is there and not empty.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.as_ref().ok()?.value(name)
    }

    /// The client that posts, with the request charged to its tenant.
    pub(crate) async fn client(&self, visit: &mut Visit<'_>) -> Result<Arc<Client>, Problem> {
        let client = visit.calling_client(self.value("client_id")).await?;
        self.check()?;
        credentials::refuse(&visit.parts.headers, |name| self.value(name))?;
        self.required("client_id", "client_id is missing")?;
        client.ok_or(Problem::new(Code::InvalidClient, "there is no client of this client_id"))
    }

    /// Whether it is a form, with each parameter once.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        self.0.as_ref().map(|_| ()).map_err(|detail| Problem::invalid(detail))
    }

    pub(crate) fn required(&self, name: &str, missing: &'static str) -> Result<&str, Problem> {
        self.value(name).ok_or(Problem::invalid(missing))
    }
}

/// The thumbprint of the key that the caller of this path proves to have; `None` if it proves none. Each proof counts once.
pub(crate) async fn proved_key(
    visit: &Visit<'_>,
    path: &str,
    access_token: Option<&str>,
) -> Result<Option<String>, Problem> {
    let url = format!("{}{path}", visit.inner.config.issuer.as_str());
    let (method, headers) = (&visit.parts.method, &visit.parts.headers);
    match visit.inner.running().proofs.check(headers, method, &url, access_token).wait().await {
        Ok(proven) => Ok(proven.map(|proven| proven.thumbprint)),
        Err(DpopError::Invalid(detail)) => Err(Problem::new(Code::InvalidDpopProof, detail)),
        Err(DpopError::UseNonce(nonce)) => {
            let problem = Problem::new(Code::UseDpopNonce, "the proof needs the nonce of this answer");
            Err(match HeaderValue::try_from(nonce) {
                Ok(nonce) => problem.header(dpop::NONCE, nonce),
                Err(_) => problem,
            })
        }
        Err(DpopError::Unavailable) => Err(Problem::unavailable()),
    }
}
