//! Claims of access tokens (RFC 9068).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::jose::date;

/// The `typ` of access tokens.
pub(crate) const TYPE: &str = "at+jwt";

/// The claim, and its value, of a token that a client has for itself. Auth0 uses the same.
pub(crate) const MACHINE: (&str, &str) = ("gty", "client-credentials");

/// The claim and the value that Entra ID uses.
const APP: (&str, &str) = ("idtyp", "app");

/// The claims that we write, and that we read from any issuer that follows RFC 9068.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessTokenClaims {
    pub(crate) iss: String,
    pub(crate) sub: String,
    pub(crate) aud: Audience,
    pub(crate) client_id: String,
    /// Our own claim. Other issuers may not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    /// In Unix seconds, like all times here. Fractions are rounded so that the token is valid for a
    /// shorter time.
    #[serde(deserialize_with = "date::ceil")]
    pub(crate) iat: u64,
    #[serde(default, deserialize_with = "date::ceil_if_any", skip_serializing_if = "Option::is_none")]
    pub(crate) nbf: Option<u64>,
    #[serde(deserialize_with = "date::floor")]
    pub(crate) exp: u64,
    /// Ours starts with the name of the token family.
    pub(crate) jti: String,
    #[serde(default, deserialize_with = "date::floor_if_any", skip_serializing_if = "Option::is_none")]
    pub(crate) auth_time: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acr: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) amr: Vec<String>,
    /// The public id of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sid: Option<String>,
    /// The key that the caller must prove (RFC 7800).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cnf: Option<Confirmation>,
    /// All other claims.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

impl AccessTokenClaims {
    /// Returns whether a client has the token for itself.
    pub(crate) fn is_machine(&self) -> bool {
        [MACHINE, APP].iter().any(|(name, value)| self.more.get(*name).and_then(Value::as_str) == Some(value))
    }
}

/// The audience: one name or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Audience {
    One(String),
    Several(Vec<String>),
}

/// The key that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    /// The thumbprint of a DPoP key. Tokens bound by other means have none and are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) jkt: Option<String>,
}

impl Audience {
    /// Creates an audience of these names, of which there is at least one.
    #[cfg(feature = "login")]
    pub(crate) fn of_names<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
        match (names.pop(), names.is_empty()) {
            (Some(only), true) => Self::One(only),
            (last, _) => {
                names.extend(last);
                Self::Several(names)
            }
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.iter().any(|own| own == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(own) => std::slice::from_ref(own),
            Self::Several(all) => all.as_slice(),
        }
        .iter()
        .map(String::as_str)
    }
}
