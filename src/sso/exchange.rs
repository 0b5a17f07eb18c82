//! Requests to a provider, and how this service authenticates in them (RFC 6749 §2.3, OpenID Connect Core §9).

use std::{fmt, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use crate::{
    http::body::Body,
    jose::{Signer, jws},
    sso::{provider::SsoError, secret::ClientSecret},
    support::outgoing::{Failure, Outgoing},
    util::{clock::UnixTime, error::ConfigError, form, json, public_id::PublicId},
};

/// The maximum length of a response in bytes.
const MOST_BYTES: usize = 256 * 1024;
const LONGEST_DEADLINE: Duration = Duration::from_secs(10);
/// The type of a client assertion (RFC 7523 §2.2).
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Seconds until an assertion expires.
const ASSERTION_LIFETIME: u64 = 60;

/// Sends requests to a provider. Follows no redirects.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) client: Outgoing,
    /// For each request.
    pub(super) deadline: Duration,
}

impl Exchange {
    /// Trusts the public certificate authorities, and waits at most 5 seconds for a response.
    pub(super) fn new() -> Result<Self, ConfigError> {
        Ok(Self { client: Outgoing::new()?, deadline: Duration::from_secs(5) })
    }

    /// Sets how long to wait for a response: at most 10 seconds.
    pub(super) fn set_deadline(&mut self, deadline: Duration) -> Result<(), ConfigError> {
        let range = Duration::from_nanos(1)..=LONGEST_DEADLINE;
        ConfigError::check_range("provider timeout", deadline, range, "must be greater than zero and at most 10 s")?;
        self.deadline = deadline;
        Ok(())
    }

    /// Posts a form. The response must be a JSON object.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        to: &Uri,
        fields: &[(&str, &str)],
        authorization: Option<HeaderValue>,
    ) -> Result<T, SsoError> {
        let form = form::encode_pairs(fields.iter().copied());
        let mut request = Request::new(Body::from(form));
        *request.method_mut() = Method::POST;
        let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        self.send(to, request, authorization).await
    }

    /// Reads what an access token gives access to. The response must be JSON.
    pub(super) async fn get<T: DeserializeOwned>(&self, from: &Uri, access_token: &str) -> Result<T, SsoError> {
        let bearer = Zeroizing::new(format!("Bearer {access_token}"));
        let authorization = HeaderValue::from_str(&bearer);
        let authorization =
            authorization.map_err(|_| SsoError::Failed("the provider sent an unusable access token"))?;
        self.send(from, Request::new(Body::empty()), Some(authorization)).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        to: &Uri,
        mut request: Request<Body>,
        authorization: Option<HeaderValue>,
    ) -> Result<T, SsoError> {
        *request.uri_mut() = to.clone();
        if let Some(mut value) = authorization {
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let answer =
            self.client.fetch_response(request, MOST_BYTES, self.deadline).await.map_err(|failure| match failure {
                Failure::Connection(_) => SsoError::Unavailable("the connection to the provider failed"),
                Failure::TooSlow => SsoError::Unavailable("the provider took too long"),
                Failure::Body => SsoError::Failed("the response of the provider is too long or incomplete"),
            })?;
        parse_json_response(answer.status(), answer.body())
    }
}

fn parse_json_response<T: DeserializeOwned>(status: StatusCode, text: &Bytes) -> Result<T, SsoError> {
    match status {
        StatusCode::OK => {}
        StatusCode::TOO_MANY_REQUESTS => return Err(SsoError::Unavailable("the provider limits requests")),
        StatusCode::UNAUTHORIZED => return Err(SsoError::Failed("the provider does not accept our authentication")),
        status if status.is_server_error() => return Err(SsoError::Unavailable("the provider has a failure")),
        status if status.is_redirection() => return Err(SsoError::Failed("the provider redirects elsewhere")),
        _ => return Err(SsoError::Failed("the provider refused a request")),
    }
    // lists have no names to be given twice
    let parsed = match text.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(text).ok(),
        _ => json::from_object(text).ok(),
    };
    parsed.ok_or(SsoError::Failed("the provider sent an unexpected document"))
}

/// The way a client authenticates at the token endpoint.
pub(super) enum ClientAuth {
    /// `none`: PKCE alone protects the code.
    None,
    /// `client_secret_basic`.
    Basic(ClientSecret),
    /// `client_secret_post`.
    Post(ClientSecret),
    /// `private_key_jwt`.
    PrivateKey(Box<Signer>),
}

/// The authentication of one request: form fields, and a header.
#[derive(Default)]
pub(super) struct Credentials {
    pub(super) fields: Vec<(&'static str, Zeroizing<String>)>,
    pub(super) header: Option<HeaderValue>,
}

#[derive(Serialize)]
struct ClientAssertion<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
    jti: String,
}

impl ClientAuth {
    /// Signs with the private key in this PEM (PKCS #8).
    pub(super) fn private_key(pem: &[u8], kid: Option<&str>) -> Result<Self, ConfigError> {
        let wrong =
            || ConfigError::new("private key", "the given PEM", "must be a PKCS #8 key for ES256, EdDSA or RS256");
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| wrong())?;
        let signer = Signer::read_any(der.secret_pkcs8_der()).ok_or_else(wrong)?;
        let signer = match kid {
            Some(kid) => signer.named(kid),
            None => signer,
        };
        Ok(Self::PrivateKey(Box::new(signer)))
    }

    /// Returns the authentication of a request to the token endpoint. Assertions are for this audience.
    pub(super) fn credentials(&self, client_id: &str, audience: &str, now: UnixTime) -> Result<Credentials, SsoError> {
        let id = || ("client_id", Zeroizing::new(client_id.to_owned()));
        let field = |secret: &ClientSecret| Zeroizing::new(secret.expose().to_owned());
        match self {
            Self::None => Ok(Credentials { fields: vec![id()], header: None }),
            Self::Basic(secret) => {
                let pair =
                    format!("{}:{}", form::encode_form_value(client_id), form::encode_form_value(secret.expose()));
                let value = Zeroizing::new(format!("Basic {}", BASE64.encode(Zeroizing::new(pair).as_bytes())));
                Ok(Credentials { fields: Vec::new(), header: HeaderValue::from_str(&value).ok() })
            }
            Self::Post(secret) => {
                Ok(Credentials { fields: vec![id(), ("client_secret", field(secret))], header: None })
            }
            Self::PrivateKey(signer) => {
                let iat = now.as_secs();
                let claims = ClientAssertion {
                    iss: client_id,
                    sub: client_id,
                    aud: audience,
                    iat,
                    exp: iat.saturating_add(ASSERTION_LIFETIME),
                    jti: PublicId::random().to_string(),
                };
                let signed =
                    jws::sign(signer, "JWT", &claims).ok_or(SsoError::Failed("the private key does not sign"))?;
                let kind = ("client_assertion_type", Zeroizing::new(ASSERTION_TYPE.to_owned()));
                Ok(Credentials { fields: vec![id(), kind, ("client_assertion", Zeroizing::new(signed))], header: None })
            }
        }
    }
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Basic(_) => "client_secret_basic",
            Self::Post(_) => "client_secret_post",
            Self::PrivateKey(_) => "private_key_jwt",
        })
    }
}
