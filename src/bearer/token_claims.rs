//! [`AccessTokenClaims`]: what stands in an access token (RFC 9068).

use serde::{Deserialize, Serialize};

use crate::jose::date;

/// The type of an access token, in its header.
pub(crate) const TYPE: &str = "at+jwt";

/// As they are written here, and read from any issuer that follows RFC 9068.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessTokenClaims {
    pub(crate) iss: String,
    pub(crate) sub: String,
    pub(crate) aud: Audience,
    pub(crate) client_id: String,
    /// Ours: other issuers may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    /// In Unix seconds, as all times here. A fraction is rounded to where the token counts for less.
    #[serde(deserialize_with = "date::ceil")]
    pub(crate) iat: u64,
    #[serde(default, deserialize_with = "date::ceil_if_any", skip_serializing_if = "Option::is_none")]
    pub(crate) nbf: Option<u64>,
    #[serde(deserialize_with = "date::floor")]
    pub(crate) exp: u64,
    /// Ours begins with the name of the family.
    pub(crate) jti: String,
    #[serde(default, deserialize_with = "date::floor_if_any", skip_serializing_if = "Option::is_none")]
    pub(crate) auth_time: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acr: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) amr: Vec<String>,
    /// The handle of the signed-in session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sid: Option<String>,
    /// The key that a caller has to prove (RFC 7800).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cnf: Option<Confirmation>,
}

/// Whom a token is for: one name, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Audience {
    One(String),
    Several(Vec<String>),
}

/// By which key a token is bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    /// The thumbprint of the key of a DPoP proof. A token that is bound in another way has none, and nobody can use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) jkt: Option<String>,
}

impl Audience {
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
