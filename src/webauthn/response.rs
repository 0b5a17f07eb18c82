//! Responses of browsers, as JSON.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Deserializer, de::Error};

use super::error::WebauthnError;
use crate::util::json;

/// The longest text of a response as JSON.
const MOST_BYTES: usize = 64 * 1024;

const PADDED_OR_NOT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PADDED_OR_NOT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, PADDED_OR_NOT);

/// How a browser can reach an authenticator.
const TRANSPORTS: [&str; 6] = ["usb", "nfc", "ble", "smart-card", "hybrid", "internal"];

/// The response to a request for a new credential.
///
/// It deserializes from what `credential.toJSON()` returns in a browser. Unknown members are ignored. Bytes may be
/// base64 or base64url, with padding or without.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Json<Registered>")]
pub struct RegistrationResponse {
    pub(super) id: Vec<u8>,
    pub(super) raw_id: Vec<u8>,
    pub(super) client_data: Vec<u8>,
    pub(super) attestation_object: Vec<u8>,
    pub(super) transports: Vec<String>,
}

/// The response to a request to sign in.
///
/// It deserializes from what `credential.toJSON()` returns in a browser. Unknown members are ignored. Bytes may be
/// base64 or base64url, with padding or without.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Json<Asserted>")]
pub struct AssertionResponse {
    pub(super) id: Vec<u8>,
    pub(super) raw_id: Vec<u8>,
    pub(super) client_data: Vec<u8>,
    pub(super) authenticator_data: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) user_handle: Option<Vec<u8>>,
}

impl RegistrationResponse {
    /// Creates a response from its parts.
    pub fn new(id: &[u8], client_data_json: &[u8], attestation_object: &[u8]) -> Self {
        Self {
            id: id.to_vec(),
            raw_id: id.to_vec(),
            client_data: client_data_json.to_vec(),
            attestation_object: attestation_object.to_vec(),
            transports: Vec::new(),
        }
    }

    /// Parses a JSON object of at most 64 KiB.
    ///
    /// # Errors
    ///
    /// Returns [`WebauthnError::Malformed`] if the text is not such an object, or if a name appears twice in it.
    pub fn from_json(text: impl AsRef<[u8]>) -> Result<Self, WebauthnError> {
        parse(text.as_ref())
    }
}

impl AssertionResponse {
    /// Creates a response from its parts.
    pub fn new(
        id: &[u8],
        client_data_json: &[u8],
        authenticator_data: &[u8],
        signature: &[u8],
        user_handle: Option<&[u8]>,
    ) -> Self {
        Self {
            id: id.to_vec(),
            raw_id: id.to_vec(),
            client_data: client_data_json.to_vec(),
            authenticator_data: authenticator_data.to_vec(),
            signature: signature.to_vec(),
            user_handle: user_handle.map(<[u8]>::to_vec),
        }
    }

    /// Parses a JSON object of at most 64 KiB.
    ///
    /// # Errors
    ///
    /// Returns [`WebauthnError::Malformed`] if the text is not such an object, or if a name appears twice in it.
    pub fn from_json(text: impl AsRef<[u8]>) -> Result<Self, WebauthnError> {
        parse(text.as_ref())
    }

    /// Returns the id of the credential, to look it up.
    pub fn credential_id(&self) -> &[u8] {
        &self.raw_id
    }

    /// Returns the user handle that the authenticator stores for the credential.
    pub fn user_handle(&self) -> Option<&[u8]> {
        self.user_handle.as_deref()
    }
}

fn parse<T: for<'de> Deserialize<'de>>(text: &[u8]) -> Result<T, WebauthnError> {
    let parsed = if text.len() <= MOST_BYTES { json::from_object(text).ok() } else { None };
    parsed.ok_or(WebauthnError::Malformed("response"))
}

/// The members that both kinds have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json<R> {
    id: Bytes,
    raw_id: Bytes,
    #[serde(rename = "type")]
    _kind: Kind,
    response: R,
}

#[derive(Deserialize)]
enum Kind {
    #[serde(rename = "public-key")]
    PublicKey,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Registered {
    #[serde(rename = "clientDataJSON")]
    client_data: Bytes,
    attestation_object: Bytes,
    #[serde(default)]
    transports: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asserted {
    #[serde(rename = "clientDataJSON")]
    client_data: Bytes,
    authenticator_data: Bytes,
    signature: Bytes,
    user_handle: Option<Bytes>,
}

impl From<Json<Registered>> for RegistrationResponse {
    fn from(json: Json<Registered>) -> Self {
        let known = |name: &&str| json.response.transports.iter().any(|own| own == name);
        Self {
            id: json.id.0,
            raw_id: json.raw_id.0,
            client_data: json.response.client_data.0,
            attestation_object: json.response.attestation_object.0,
            transports: TRANSPORTS.into_iter().filter(known).map(str::to_owned).collect(),
        }
    }
}

impl From<Json<Asserted>> for AssertionResponse {
    fn from(json: Json<Asserted>) -> Self {
        Self {
            id: json.id.0,
            raw_id: json.raw_id.0,
            client_data: json.response.client_data.0,
            authenticator_data: json.response.authenticator_data.0,
            signature: json.response.signature.0,
            // authenticators without a user handle may send an empty one
            user_handle: json.response.user_handle.map(|handle| handle.0).filter(|handle| !handle.is_empty()),
        }
    }
}

/// Bytes as base64 or base64url. Only padding may vary: white space, stray bits and mixed alphabets are refused.
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode_base64(&text).map(Self).ok_or_else(|| D::Error::custom("invalid base64"))
    }
}

/// Decodes base64 or base64url, padded or not.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let engine = if text.contains(['+', '/']) { STANDARD } else { URL_SAFE };
    engine.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn c080_other_encodings_are_refused() {
        for bad in ["A", "AB", "-_+/", "AA AA", "AA\n", "=", "AA==AA", "é"] {
            assert_eq!(decode_base64(bad), None, "{bad:?}");
        }
        assert_eq!(decode_base64(""), Some(vec![]));
    }

    #[test]
    fn unknown_members_are_ignored_and_required_ones_are_not() {
        let response =
            json!({ "clientDataJSON": "AA", "authenticatorData": "AQ", "signature": "Ag", "userHandle": null, "x": 1 });
        let good = json!({
            "id": "AAAA", "rawId": "AAAA", "type": "public-key", "response": response,
            "clientExtensionResults": {}, "authenticatorAttachment": "platform",
        });
        let parsed = AssertionResponse::from_json(good.to_string()).unwrap();
        assert_eq!((parsed.credential_id(), parsed.user_handle()), (&[0, 0, 0][..], None));
        for name in ["id", "rawId", "type", "response"] {
            let mut bad = good.clone();
            bad.as_object_mut().unwrap().remove(name);
            assert!(AssertionResponse::from_json(bad.to_string()).is_err(), "{name}");
            let twice = good.to_string().replacen('{', &format!("{{{:?}:{},", name, good[name]), 1);
            assert!(AssertionResponse::from_json(twice).is_err(), "{name}");
        }
        for name in ["clientDataJSON", "authenticatorData", "signature"] {
            let mut bad = good.clone();
            bad["response"].as_object_mut().unwrap().remove(name);
            assert!(AssertionResponse::from_json(bad.to_string()).is_err(), "{name}");
        }
        let mut other = good.clone();
        other["type"] = json!("password");
        assert!(AssertionResponse::from_json(other.to_string()).is_err());
        let long = good.to_string().replace("platform", &"x".repeat(MOST_BYTES));
        assert!(AssertionResponse::from_json(long).is_err());
    }

    proptest! {
        #[test]
        fn c080_both_alphabets_are_read_with_and_without_padding(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            use base64::engine::general_purpose as engines;
            prop_assert_eq!(decode_base64(&engines::STANDARD.encode(&bytes)), Some(bytes.clone()));
            prop_assert_eq!(decode_base64(&engines::STANDARD_NO_PAD.encode(&bytes)), Some(bytes.clone()));
            prop_assert_eq!(decode_base64(&engines::URL_SAFE.encode(&bytes)), Some(bytes.clone()));
            prop_assert_eq!(decode_base64(&engines::URL_SAFE_NO_PAD.encode(&bytes)), Some(bytes));
        }
    }
}
