//! The options for a browser, as JSON.

use std::{fmt, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;

use super::{cose, relying_party::RelyingParty};
use crate::jose::Algorithm;

/// The user whom a new credential will belong to.
#[derive(Clone, Copy, Debug)]
pub struct CredentialOwner<'a> {
    /// The handle: at most 64 random bytes, without personal information.
    pub handle: &'a [u8],
    /// The name to tell accounts apart, such as an e-mail address.
    pub name: &'a str,
    /// The name of the person, for display.
    pub display_name: &'a str,
}

/// Options for `navigator.credentials.create()`: a `PublicKeyCredentialCreationOptionsJSON`.
///
/// Its `Display` is the JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreationOptions {
    rp: Rp,
    user: User,
    challenge: String,
    pub_key_cred_params: Vec<Parameters>,
    timeout: u64,
    exclude_credentials: Vec<Descriptor>,
    authenticator_selection: Selection,
    attestation: &'static str,
}

/// Options for `navigator.credentials.get()`: a `PublicKeyCredentialRequestOptionsJSON`.
///
/// Its `Display` is the JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestOptions {
    challenge: String,
    timeout: u64,
    rp_id: String,
    allow_credentials: Vec<Descriptor>,
    user_verification: &'static str,
}

#[derive(Clone, Debug, Serialize)]
struct Rp {
    id: String,
    name: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct User {
    id: String,
    name: String,
    display_name: String,
}

#[derive(Clone, Debug, Serialize)]
struct Parameters {
    #[serde(rename = "type")]
    kind: &'static str,
    alg: i32,
}

#[derive(Clone, Debug, Serialize)]
struct Descriptor {
    #[serde(rename = "type")]
    kind: &'static str,
    id: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selection {
    resident_key: &'static str,
    require_resident_key: bool,
    user_verification: &'static str,
}

const PUBLIC_KEY: &str = "public-key";

impl RelyingParty {
    /// Returns options to create a discoverable credential, which can sign in without a username. `existing` are the ids
    /// of the credentials that the user already has: their authenticators refuse to create another one.
    pub fn creation_options(
        &self,
        challenge: &[u8],
        owner: &CredentialOwner<'_>,
        existing: &[Vec<u8>],
        timeout: Duration,
    ) -> CreationOptions {
        CreationOptions {
            rp: Rp { id: self.id.clone(), name: self.name.clone() },
            user: User {
                id: URL_SAFE_NO_PAD.encode(owner.handle),
                name: owner.name.to_owned(),
                display_name: owner.display_name.to_owned(),
            },
            challenge: URL_SAFE_NO_PAD.encode(challenge),
            pub_key_cred_params: Algorithm::ALL
                .iter()
                .map(|algorithm| Parameters { kind: PUBLIC_KEY, alg: cose::identifier(*algorithm) })
                .collect(),
            timeout: milliseconds(timeout),
            exclude_credentials: descriptors(existing),
            authenticator_selection: Selection {
                resident_key: "required",
                require_resident_key: true,
                user_verification: self.user_verification.as_str(),
            },
            attestation: "none",
        }
    }

    /// Returns options to sign in. `allowed` are the ids of the credentials that can be used. If it is empty, the browser
    /// offers all discoverable credentials of this relying party.
    pub fn request_options(&self, challenge: &[u8], allowed: &[Vec<u8>], timeout: Duration) -> RequestOptions {
        RequestOptions {
            challenge: URL_SAFE_NO_PAD.encode(challenge),
            timeout: milliseconds(timeout),
            rp_id: self.id.clone(),
            allow_credentials: descriptors(allowed),
            user_verification: self.user_verification.as_str(),
        }
    }
}

crate::util::fmt::display!(CreationOptions, |own| &serde_json::to_string(own).map_err(|_| fmt::Error)?);

crate::util::fmt::display!(RequestOptions, |own| &serde_json::to_string(own).map_err(|_| fmt::Error)?);

fn descriptors(ids: &[Vec<u8>]) -> Vec<Descriptor> {
    ids.iter().map(|id| Descriptor { kind: PUBLIC_KEY, id: URL_SAFE_NO_PAD.encode(id) }).collect()
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn options_have_the_form_that_browsers_parse() {
        let party = RelyingParty::new("example.com").unwrap().name("Example");
        let minute = Duration::from_secs(60);
        let owner = CredentialOwner { handle: &[1, 2, 3], name: "ada", display_name: "Ada" };
        let creation = party.creation_options(&[0xfb; 16], &owner, &[vec![0xff]], minute).to_string();
        let parameters: Vec<Value> =
            [-7, -8, -257].into_iter().map(|alg| json!({ "type": "public-key", "alg": alg })).collect();
        assert_eq!(
            serde_json::from_str::<Value>(&creation).unwrap(),
            json!({
                "rp": { "id": "example.com", "name": "Example" },
                "user": { "id": "AQID", "name": "ada", "displayName": "Ada" },
                "challenge": "-_v7-_v7-_v7-_v7-_v7-w",
                "pubKeyCredParams": parameters,
                "timeout": 60000,
                "excludeCredentials": [{ "type": "public-key", "id": "_w" }],
                "authenticatorSelection":
                    { "residentKey": "required", "requireResidentKey": true, "userVerification": "required" },
                "attestation": "none",
            })
        );
        let request = party.request_options(&[0xfb; 16], &[], minute).to_string();
        assert_eq!(
            serde_json::from_str::<Value>(&request).unwrap(),
            json!({
                "challenge": "-_v7-_v7-_v7-_v7-_v7-w",
                "timeout": 60000,
                "rpId": "example.com",
                "allowCredentials": [],
                "userVerification": "required",
            })
        );
    }
}
