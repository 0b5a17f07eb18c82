//! HTTPS requests to other services.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs::default_provider};
use tokio::time::timeout;

use crate::{
    http::{body::Body, reader::read_body},
    support::roots::certificates,
    util::error::ConfigError,
};

/// An HTTPS client that follows no redirects and uses no proxy. Every request has a deadline, and
/// every response a size limit.
#[derive(Clone)]
pub(crate) struct Outgoing(legacy::Client<HttpsConnector<HttpConnector>, Body>);

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection failed, broke, or is not trusted.
    Connection(legacy::Error),
    TooSlow,
    /// The body is too long or incomplete.
    Body,
}

impl Outgoing {
    /// Creates a client that trusts the public certificate authorities, which are compiled in.
    pub(crate) fn new() -> Result<Self, ConfigError> {
        let builder = HttpsConnectorBuilder::new().with_provider_and_webpki_roots(default_provider());
        Ok(Self::with(builder.map_err(|_| no_tls())?.https_or_http().enable_http1().build()))
    }

    /// Creates a client that trusts only the certificate authorities in this PEM.
    pub(crate) fn trusting(pem: &[u8]) -> Result<Self, ConfigError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots.add(certificate).map_err(|_| {
                ConfigError::new("root certificates", "the given PEM", "contains an invalid certificate")
            })?;
        }
        // names the provider explicitly, so that the process does not need a default provider
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| no_tls())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self::with(HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build()))
    }

    fn with(connector: HttpsConnector<HttpConnector>) -> Self {
        Self(legacy::Client::builder(TokioExecutor::new()).build(connector))
    }

    /// Sends a request and returns the response head. Ignores the body.
    pub(crate) async fn fetch_head(&self, request: Request<Body>, deadline: Duration) -> Result<Response<()>, Failure> {
        let answer = timeout(deadline, self.send(request)).await.map_err(|_| Failure::TooSlow)?;
        answer.map(|answer| answer.map(drop))
    }

    /// Sends a request and returns the complete response, if its body is at most `most` bytes long.
    pub(crate) async fn fetch_response(
        &self,
        request: Request<Body>,
        most: usize,
        deadline: Duration,
    ) -> Result<Response<Bytes>, Failure> {
        let exchange = async {
            let (head, body) = self.send(request).await?.into_parts();
            let body = read_body(body, most).await.map_err(|_| Failure::Body)?;
            Ok(Response::from_parts(head, body))
        };
        timeout(deadline, exchange).await.map_err(|_| Failure::TooSlow)?
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        for (name, value) in [(header::ACCEPT, "application/json"), (header::USER_AGENT, "tollgate")] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        self.0.request(request).await.map_err(Failure::Connection)
    }
}

fn no_tls() -> ConfigError {
    ConfigError::new("outgoing requests", "TLS", "failed to initialize")
}

crate::util::fmt::display!(Failure, |own| match own {
    Self::Connection(_) => "the connection failed",
    Self::TooSlow => "the request timed out",
    Self::Body => "the response is too long or incomplete",
});

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connection(error) => Some(error),
            Self::TooSlow | Self::Body => None,
        }
    }
}
