//! The metadata of an issuer (OpenID Connect Discovery §3, RFC 8414 §2).

use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    support::{issuer::Issuer, url::parse_url},
    util::{error::ConfigError, json},
};

/// Why a document can't be used.
pub(super) const MALFORMED: &str = "the issuer returned an unexpected document";
const OTHER_ISSUER: &str = "the metadata belongs to another issuer";
const UNSAFE: &str = "the key URL in the metadata is not https";

/// An issuer with metadata.
#[derive(Clone)]
pub(crate) struct DescribedIssuer {
    /// The issuer that the metadata must name.
    name: String,
    /// The documents of OpenID Connect Discovery §4 and RFC 8414 §3.
    pub(super) documents: [Uri; 2],
    is_loopback: bool,
}

/// The URLs that the metadata names. One that is missing or not safe to use is `None`.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "login"), allow(dead_code, reason = "verifiers need only the keys"))]
pub(crate) struct Endpoints {
    pub(crate) authorization: Option<String>,
    pub(crate) token: Option<Uri>,
    pub(crate) userinfo: Option<Uri>,
    /// The issuer names itself in its responses (RFC 9207).
    pub(crate) sends_issuer: bool,
}

#[derive(Deserialize)]
struct MetadataDocument {
    issuer: String,
    jwks_uri: String,
    /// Only some issuers need the other members, so a wrong one is an error only when it is used.
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl DescribedIssuer {
    pub(crate) fn new(issuer: &str) -> Result<Self, ConfigError> {
        // a trailing slash is part of the issuer's name, but not of these URLs
        let plain = Issuer::parse(issuer.strip_suffix('/').unwrap_or(issuer))?;
        let openid = format!("{}/.well-known/openid-configuration", plain.as_str());
        let oauth = format!("{}/.well-known/oauth-authorization-server{}", plain.origin(), plain.path());
        let documents = [parse_url("issuer", &openid)?, parse_url("issuer", &oauth)?];
        Ok(Self { name: issuer.to_owned(), documents, is_loopback: plain.is_loopback() })
    }

    /// Expects the metadata to name this issuer instead.
    #[cfg(feature = "login")]
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Returns the URL of the keys and the endpoints from the metadata, if the metadata belongs to this issuer.
    pub(super) fn parse_metadata(&self, text: &[u8]) -> Result<(Uri, Endpoints), &'static str> {
        let metadata: MetadataDocument = json::from_object(text).map_err(|_| MALFORMED)?;
        if metadata.issuer != self.name {
            return Err(OTHER_ISSUER);
        }
        let keys = self.safe(&metadata.jwks_uri).ok_or(UNSAFE)?;
        let named = |member: &str| metadata.more.get(member).and_then(Value::as_str);
        let url = |member: &str| self.safe(named(member)?);
        let authorization = url("authorization_endpoint").and(named("authorization_endpoint")).map(str::to_owned);
        let sends_issuer = metadata.more.get("authorization_response_iss_parameter_supported");
        let endpoints = Endpoints {
            authorization,
            token: url("token_endpoint"),
            userinfo: url("userinfo_endpoint"),
            sends_issuer: sends_issuer.and_then(Value::as_bool).unwrap_or_default(),
        };
        Ok((keys, endpoints))
    }

    /// Parses a URL of the metadata. A remote issuer must not direct requests to this machine.
    fn safe(&self, url: &str) -> Option<Uri> {
        let url = parse_url("metadata", url).ok()?;
        (self.is_loopback || url.scheme_str() == Some("https")).then_some(url)
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
            let described = DescribedIssuer::new(issuer).unwrap();
            let documents = described.documents.map(|uri| uri.to_string());
            assert_eq!((described.name.as_str(), documents), (issuer, [openid.to_owned(), oauth.to_owned()]));
        }
        for bad in ["", "auth.example", "http://auth.example", "https://auth.example//", "https://auth.example?a"] {
            assert!(DescribedIssuer::new(bad).is_err(), "{bad}");
        }
    }

    fn keys_by(issuer: &str, named: &str, keys: &str) -> Result<Uri, &'static str> {
        let document = format!(r#"{{"issuer":"{named}","jwks_uri":"{keys}","other":[]}}"#);
        DescribedIssuer::new(issuer).unwrap().parse_metadata(document.as_bytes()).map(|(keys, _)| keys)
    }

    #[test]
    fn the_key_url_must_come_from_the_issuer_and_be_safe() {
        let (issuer, keys) = ("https://auth.example", "https://keys.example/x");
        assert_eq!(keys_by(issuer, issuer, keys).unwrap(), keys);
        for other in ["https://auth.example/", "https://AUTH.example", "https://auth.example.evil.example", ""] {
            assert!(keys_by(issuer, other, keys) == Err(OTHER_ISSUER), "{other}");
        }
        for bad in ["http://keys.example/x", "http://127.0.0.1/x", "http://localhost/x", "file:///x", "/x", ""] {
            assert!(keys_by(issuer, issuer, bad) == Err(UNSAFE), "{bad}");
        }
        let local = "http://127.0.0.1:8080";
        assert!(keys_by(local, local, "http://127.0.0.1:8081/keys").is_ok());
        for bad in ["", "[]", "{}", r#"{"issuer":"https://auth.example"}"#, "<!doctype html>"] {
            let read = DescribedIssuer::new(issuer).unwrap().parse_metadata(bad.as_bytes());
            assert!(read.err() == Some(MALFORMED), "{bad}");
        }
    }

    #[test]
    fn endpoints_that_are_missing_or_unsafe_are_left_out() {
        let read = |members: &str| {
            let document = format!(r#"{{"issuer":"https://a.example","jwks_uri":"https://a.example/k"{members}}}"#);
            DescribedIssuer::new("https://a.example").unwrap().parse_metadata(document.as_bytes()).unwrap().1
        };
        let none = read("");
        assert!(none.authorization.is_none() && none.token.is_none() && none.userinfo.is_none() && !none.sends_issuer);
        let all = read(
            r#","authorization_endpoint":"https://a.example/a?x=1","token_endpoint":"https://a.example/t",
            "userinfo_endpoint":"http://127.0.0.1/u","authorization_response_iss_parameter_supported":true"#,
        );
        assert_eq!(all.authorization.as_deref(), Some("https://a.example/a?x=1"));
        assert_eq!(all.token.unwrap(), "https://a.example/t");
        assert!(all.userinfo.is_none() && all.sends_issuer);
        let wrong = read(r#","authorization_endpoint":5,"token_endpoint":"file:///x","userinfo_endpoint":null"#);
        assert!(wrong.authorization.is_none() && wrong.token.is_none() && wrong.userinfo.is_none());
    }
}
