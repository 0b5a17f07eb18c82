//! How this service authenticates to a provider (RFC 6749 §2.3, OpenID Connect Core §9).

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use http::HeaderValue;
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::{
    jose::{Signer, jws},
    sso::{provider::SsoError, secret::ClientSecret},
    util::{clock::UnixTime, error::ConfigError, form, public_id::PublicId},
};

const KIND: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Seconds until an assertion expires.
const ASSERTION_LIFETIME: u64 = 60;

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
                let kind = ("client_assertion_type", Zeroizing::new(KIND.to_owned()));
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
