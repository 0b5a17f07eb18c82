//! Fetching the keys of an issuer.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use serde::Deserialize;
use tokio::time::timeout;

use super::lifetime::Lifetime;
use crate::{
    http::{
        body::Body,
        issuer::Issuer,
        outgoing::{Failure, Outgoing, parse_url},
    },
    jose::KeySet,
    util::{error::ConfigError, json},
};

/// The maximum length of a document in bytes.
const MOST_BYTES: usize = 256 * 1024;

/// How to fetch the keys of an issuer.
pub(super) struct Fetch {
    pub(super) place: KeysLocation,
    pub(super) client: Outgoing,
    /// For all requests together.
    pub(super) deadline: Duration,
}

pub(super) enum KeysLocation {
    /// At the URL that the issuer's metadata names.
    Described(Described),
    Known(Uri),
}

/// An issuer with metadata.
pub(super) struct Described {
    name: String,
    /// The documents of OpenID Connect Discovery §4 and RFC 8414 §3.
    documents: [Uri; 2],
    is_loopback: bool,
}

/// Why the keys can't be fetched.
#[derive(Debug)]
pub(super) enum Missing {
    Outgoing(Failure),
    Status(StatusCode),
    /// The document is malformed.
    Malformed,
    /// The document belongs to another issuer.
    OtherIssuer,
    /// The document names a URL that is not safe to use.
    Unsafe,
}

/// The members of the metadata that are read (OpenID Connect Discovery, RFC 8414).
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

impl Described {
    pub(super) fn new(issuer: &str) -> Result<Self, ConfigError> {
        // a trailing slash is part of the issuer's name, but not of these URLs
        let plain = Issuer::parse(issuer.strip_suffix('/').unwrap_or(issuer))?;
        let openid = format!("{}/.well-known/openid-configuration", plain.as_str());
        let oauth = format!("{}/.well-known/oauth-authorization-server{}", plain.origin(), plain.path());
        let documents = [parse_url("issuer", &openid)?, parse_url("issuer", &oauth)?];
        Ok(Self { name: issuer.to_owned(), documents, is_loopback: plain.is_loopback() })
    }

    /// Returns the URL of the keys from the metadata, if the metadata belongs to this issuer.
    fn keys_by(&self, text: &[u8]) -> Result<Uri, Missing> {
        let metadata: Metadata = json::from_object(text).map_err(|_| Missing::Malformed)?;
        if metadata.issuer != self.name {
            return Err(Missing::OtherIssuer);
        }
        let address = parse_url("jwks_uri", &metadata.jwks_uri).map_err(|_| Missing::Unsafe)?;
        // a remote issuer must not direct requests to this machine
        let is_safe = self.is_loopback || address.scheme_str() == Some("https");
        is_safe.then_some(address).ok_or(Missing::Unsafe)
    }
}

impl Fetch {
    /// Fetches the current keys. The URL is looked up each time, so that it can change.
    pub(super) async fn keys(&self) -> Result<(KeySet, Lifetime), Missing> {
        let asked = async {
            let (headers, text) = match &self.place {
                KeysLocation::Known(address) => self.document(address).await?,
                KeysLocation::Described(issuer) => self.document(&self.find(issuer).await?).await?,
            };
            Ok((KeySet::parse(&text).ok_or(Missing::Malformed)?, Lifetime::of(&headers)))
        };
        timeout(self.deadline, asked).await.map_err(|_| Missing::Outgoing(Failure::TooSlow))?
    }

    /// Returns the URL of the keys from the first of the two documents that exists.
    async fn find(&self, issuer: &Described) -> Result<Uri, Missing> {
        let mut missing = Missing::Malformed;
        for address in &issuer.documents {
            match self.document(address).await.and_then(|(_, text)| issuer.keys_by(&text)) {
                Ok(keys) => return Ok(keys),
                // the second request would fail as well
                Err(Missing::Outgoing(failure)) => return Err(Missing::Outgoing(failure)),
                Err(other) => missing = other,
            }
        }
        Err(missing)
    }

    async fn document(&self, address: &Uri) -> Result<(HeaderMap, Bytes), Missing> {
        let mut request = Request::new(Body::empty());
        (*request.method_mut(), *request.uri_mut()) = (Method::GET, address.clone());
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("tollgate"));
        let answer = self.client.whole(request, MOST_BYTES, self.deadline).await.map_err(Missing::Outgoing)?;
        let (head, text) = answer.into_parts();
        if head.status == StatusCode::OK { Ok((head.headers, text)) } else { Err(Missing::Status(head.status)) }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outgoing(failure) => write!(f, "{failure}"),
            Self::Status(status) => write!(f, "the issuer responded with {}", status.as_u16()),
            Self::Malformed => f.write_str("the issuer returned an unexpected document"),
            Self::OtherIssuer => f.write_str("the metadata belongs to another issuer"),
            Self::Unsafe => f.write_str("the key URL in the metadata is not https"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c101_metadata_is_requested_at_both_well_known_urls() {
        for (issuer, openid, oauth) in [
            (
                "https://auth.example",
                "https://auth.example/.well-known/openid-configuration",
                "https://auth.example/.well-known/oauth-authorization-server",
            ),
            (
                "https://auth.example:8443/a/b/",
                "https://auth.example:8443/a/b/.well-known/openid-configuration",
                "https://auth.example:8443/.well-known/oauth-authorization-server/a/b",
            ),
        ] {
            let described = Described::new(issuer).unwrap();
            let documents = described.documents.map(|uri| uri.to_string());
            assert_eq!((described.name.as_str(), documents), (issuer, [openid.to_owned(), oauth.to_owned()]));
        }
        for bad in ["", "auth.example", "http://auth.example", "https://auth.example//", "https://auth.example?a"] {
            assert!(Described::new(bad).is_err(), "{bad}");
        }
    }

    fn keys_by(issuer: &str, named: &str, keys: &str) -> Result<Uri, Missing> {
        let document = format!(r#"{{"issuer":"{named}","jwks_uri":"{keys}","other":[]}}"#);
        Described::new(issuer).unwrap().keys_by(document.as_bytes())
    }

    #[test]
    fn the_key_url_must_come_from_the_issuer_and_be_safe() {
        let (issuer, keys) = ("https://auth.example", "https://keys.example/x");
        assert_eq!(keys_by(issuer, issuer, keys).unwrap(), keys);
        for other in ["https://auth.example/", "https://AUTH.example", "https://auth.example.evil.example", ""] {
            assert!(matches!(keys_by(issuer, other, keys), Err(Missing::OtherIssuer)), "{other}");
        }
        for bad in ["http://keys.example/x", "http://127.0.0.1/x", "http://localhost/x", "file:///x", "/x", ""] {
            assert!(matches!(keys_by(issuer, issuer, bad), Err(Missing::Unsafe)), "{bad}");
        }
        let local = "http://127.0.0.1:8080";
        assert!(keys_by(local, local, "http://127.0.0.1:8081/keys").is_ok());
        for bad in ["", "[]", "{}", r#"{"issuer":"https://auth.example"}"#, "<!doctype html>"] {
            let read = Described::new(issuer).unwrap().keys_by(bad.as_bytes());
            assert!(matches!(read, Err(Missing::Malformed)), "{bad}");
        }
    }
}
