//! The statement of the browser about the page: `clientDataJSON`.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use subtle::ConstantTimeEq;

use super::{error::WebauthnError, relying_party::RelyingParty};
use crate::util::{json, secret::SecretDigest};

const MOST_BYTES: usize = 4096;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The operation that a response belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Get,
}

/// The members that are checked. Browsers may add others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    cross_origin: Option<bool>,
    top_origin: Option<String>,
}

impl ClientData {
    /// Parses the text, and returns it with its SHA-256. The hash covers the exact bytes, a byte order mark included.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, SecretDigest), WebauthnError> {
        let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let parsed = if bytes.len() <= MOST_BYTES { json::from_object(text).ok() } else { None };
        Ok((parsed.ok_or(WebauthnError::Malformed("clientDataJSON"))?, SecretDigest::of_secret(bytes)))
    }

    /// Checks operation, challenge, and the origins.
    pub(super) fn check(
        &self,
        operation: Operation,
        challenge: &[u8],
        party: &RelyingParty,
    ) -> Result<(), WebauthnError> {
        let kind = match operation {
            Operation::Create => "webauthn.create",
            Operation::Get => "webauthn.get",
        };
        if self.kind != kind {
            return Err(WebauthnError::Type);
        }
        let expected = URL_SAFE_NO_PAD.encode(challenge);
        if !bool::from(expected.as_bytes().ct_eq(self.challenge.as_bytes())) {
            return Err(WebauthnError::Challenge);
        }
        if !party.origins.contains(&self.origin) {
            return Err(WebauthnError::Origin);
        }
        let is_embedded = self.cross_origin.unwrap_or_default() || self.top_origin.is_some();
        let is_allowed = self.top_origin.as_ref().is_some_and(|top| party.top_origins.contains(top));
        if is_embedded && !is_allowed { Err(WebauthnError::Embedded) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const CHALLENGE: [u8; 16] = [7; 16];

    fn party() -> RelyingParty {
        RelyingParty::new("example.com").unwrap().origin("https://example.com").unwrap()
    }

    fn check(party: &RelyingParty, change: impl FnOnce(&mut Value)) -> Result<(), WebauthnError> {
        let challenge = URL_SAFE_NO_PAD.encode(CHALLENGE);
        let mut json = json!({ "type": "webauthn.get", "challenge": challenge, "origin": "https://example.com" });
        change(&mut json);
        ClientData::parse(&serde_json::to_vec(&json).unwrap())?.0.check(Operation::Get, &CHALLENGE, party)
    }

    #[test]
    fn c070_utf_8_json_with_or_without_a_byte_order_mark_is_read() {
        let text = r#"{"type":"webauthn.get","challenge":"BwcHBwcHBwcHBwcHBwcHBw","origin":"https://example.com","crossOrigin":false,"other":{"a":[1]}}"#;
        let marked = [BYTE_ORDER_MARK, text.as_bytes()].concat();
        let (plain, hash) = ClientData::parse(text.as_bytes()).unwrap();
        assert_eq!(plain.check(Operation::Get, &CHALLENGE, &party()), Ok(()));
        let (with_mark, hash_with_mark) = ClientData::parse(&marked).unwrap();
        assert_eq!(with_mark.check(Operation::Get, &CHALLENGE, &party()), Ok(()));
        // the hash is that of the bytes as sent
        assert!(!hash.matches(&hash_with_mark) && hash_with_mark.matches(&SecretDigest::of_secret(&marked)));
        for bad in [
            b"".to_vec(),
            b"[]".to_vec(),
            b"{}".to_vec(),
            text.replace("get", "\u{fffd}").into_bytes().into_iter().filter(|byte| *byte != 0xbf).collect(),
            [BYTE_ORDER_MARK, &marked].concat(),
            text.replace("other", "type").into_bytes(),
            text.replace("false", "0").into_bytes(),
            format!("{text}x").into_bytes(),
            text.replace("1]", &format!("\"{}\"]", "x".repeat(4096))).into_bytes(),
        ] {
            let error = ClientData::parse(&bad).unwrap_err();
            assert_eq!(error, WebauthnError::Malformed("clientDataJSON"), "{}", String::from_utf8_lossy(&bad));
        }
    }

    #[test]
    fn c070_the_type_is_exact() {
        assert_eq!(check(&party(), |_| ()), Ok(()));
        for kind in ["webauthn.create", "webauthn.Get", "payment.get", ""] {
            assert_eq!(check(&party(), |data| data["type"] = kind.into()), Err(WebauthnError::Type), "{kind}");
        }
    }

    #[test]
    fn c071_the_challenge_is_exact() {
        for challenge in ["BwcHBwcHBwcHBwcHBwcHBg", "BwcHBwcHBwcHBwcHBwcHBw==", "BwcHBwcHBwcHBwcHBwcHB", ""] {
            let result = check(&party(), |data| data["challenge"] = challenge.into());
            assert_eq!(result, Err(WebauthnError::Challenge), "{challenge}");
        }
    }

    #[test]
    fn c072_origins_are_exact_and_embedding_is_refused_unless_allowed() {
        for origin in
            ["https://example.com/", "https://Example.com", "https://example.com:443", "http://example.com", "null"]
        {
            assert_eq!(check(&party(), |data| data["origin"] = origin.into()), Err(WebauthnError::Origin), "{origin}");
        }
        let embedding = party().top_origin("https://portal.example").unwrap();
        for (cross_origin, top_origin, allowed_here) in [
            (json!(false), json!(null), true),
            (json!(null), json!(null), true),
            (json!(true), json!("https://portal.example"), false),
            (json!(false), json!("https://portal.example"), false),
        ] {
            let change = |data: &mut Value| {
                data["crossOrigin"] = cross_origin.clone();
                data["topOrigin"] = top_origin.clone();
            };
            let refused = Err(WebauthnError::Embedded);
            assert_eq!(check(&party(), change), if allowed_here { Ok(()) } else { refused });
            assert_eq!(check(&embedding, change), Ok(()));
        }
        // browsers that do not name the embedding page cannot be trusted to be embedded in an allowed one
        assert_eq!(check(&embedding, |data| data["crossOrigin"] = true.into()), Err(WebauthnError::Embedded));
        let other = check(&embedding, |data| data["topOrigin"] = "https://evil.example".into());
        assert_eq!(other, Err(WebauthnError::Embedded));
    }

    proptest! {
        #[test]
        fn c078_nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), near in r#"\{("(type|challenge|origin|crossOrigin|topOrigin)":("a"|1|true|null),?){0,6}\}?"#) {
            let _ = ClientData::parse(&bytes);
            let _ = ClientData::parse(near.as_bytes());
        }
    }
}
