//! The verifier of passkeys against the crate `passkey`: an authenticator and a browser by others, with other
//! cryptography. Their responses to our options are accepted, and refused after any change.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use passkey::{
    authenticator::{Authenticator, UiHint, UserCheck, UserValidationMethod},
    client::{Client, DefaultClientData},
    crypto::{iana::Algorithm, rust_crypto::RustCryptoBackend},
    types::{
        Passkey,
        ctap2::{Aaguid, Ctap2Error},
    },
};
use public_suffix::PublicSuffixList;
use serde_json::{Value, json};
use tollgate::webauthn::{
    AssertionRequest, AssertionResponse, CredentialOwner, RegistrationResponse, RelyingParty, StoredCredential,
    UserVerification, WebauthnError,
};
use url::Url;

const HANDLE: [u8; 32] = [9; 32];
const MINUTE: Duration = Duration::from_secs(60);

/// A user who agrees to everything, and is verified or not.
struct Agreeing {
    is_verified: bool,
}

#[async_trait::async_trait]
impl UserValidationMethod for Agreeing {
    type PasskeyItem = Passkey;

    async fn check_user<'a>(
        &self,
        _: UiHint<'a, Passkey>,
        presence: bool,
        verification: bool,
    ) -> Result<UserCheck, Ctap2Error> {
        Ok(UserCheck { presence, verification: verification && self.is_verified })
    }

    fn is_presence_enabled(&self) -> bool {
        true
    }

    fn is_verification_enabled(&self) -> Option<bool> {
        Some(self.is_verified)
    }
}

struct Browser {
    client: Client<Option<Passkey>, Agreeing, RustCryptoBackend, PublicSuffixList, ()>,
    origin: Url,
}

impl Browser {
    fn new(algorithm: Algorithm, counts: bool, is_verified: bool) -> Self {
        let mut authenticator =
            Authenticator::new(Aaguid::new_empty(), None, Agreeing { is_verified }, RustCryptoBackend);
        authenticator.set_algorithms(&[algorithm]).unwrap();
        authenticator.set_make_credentials_with_signature_counter(counts);
        Self { client: Client::new(authenticator), origin: "https://login.example.com".parse().unwrap() }
    }

    async fn create(&mut self, options: &str) -> Value {
        let options = serde_json::from_value(json!({ "publicKey": serde_json::from_str::<Value>(options).unwrap() }));
        let created = self.client.register(&self.origin, options.unwrap(), DefaultClientData).await.unwrap();
        serde_json::to_value(created).unwrap()
    }

    async fn get(&mut self, options: &str) -> Value {
        let options = serde_json::from_value(json!({ "publicKey": serde_json::from_str::<Value>(options).unwrap() }));
        let got = self.client.authenticate(&self.origin, options.unwrap(), DefaultClientData).await.unwrap();
        serde_json::to_value(got).unwrap()
    }
}

fn party() -> RelyingParty {
    RelyingParty::new("example.com").unwrap().origin("https://login.example.com").unwrap()
}

fn challenge(number: u8) -> [u8; 32] {
    std::array::from_fn(|index| number.wrapping_mul(31).wrapping_add(index as u8))
}

async fn register(party: &RelyingParty, browser: &mut Browser) -> (Value, Result<StoredCredential, WebauthnError>) {
    let owner = CredentialOwner { handle: &HANDLE, name: "ada", display_name: "Ada" };
    let options = party.creation_options(&challenge(0), &owner, &[vec![1, 2, 3]], MINUTE).to_string();
    let created = browser.create(&options).await;
    let result = verify_registration(party, 0, &created);
    (created, result)
}

fn verify_registration(party: &RelyingParty, number: u8, json: &Value) -> Result<StoredCredential, WebauthnError> {
    let response = RegistrationResponse::from_json(json.to_string())?;
    party.verify_registration(&challenge(number), &response).map(|verdict| verdict.stored(HANDLE))
}

fn verify(party: &RelyingParty, number: u8, stored: &mut StoredCredential, json: &Value) -> Result<(), WebauthnError> {
    let (challenge, response) = (challenge(number), AssertionResponse::from_json(json.to_string())?);
    let verdict = party.verify_assertion(&AssertionRequest::new(&challenge), Some(stored), &response)?;
    verdict.update(stored);
    Ok(())
}

#[tokio::test]
async fn registrations_and_assertions_are_accepted_once_and_for_their_own_challenge() {
    for algorithm in [Algorithm::ES256, Algorithm::EdDSA] {
        for counts in [false, true] {
            let mut browser = Browser::new(algorithm, counts, true);
            let (created, stored) = register(&party(), &mut browser).await;
            let mut stored = stored.unwrap();
            assert_eq!(verify_registration(&party(), 1, &created), Err(WebauthnError::Challenge));
            for number in 1..=5 {
                let allowed = if number % 2 == 0 { vec![] } else { vec![stored.id.clone()] };
                let options = party().request_options(&challenge(number), &allowed, MINUTE).to_string();
                let got = browser.get(&options).await;
                assert_eq!(verify(&party(), number + 1, &mut stored, &got), Err(WebauthnError::Challenge));
                let before = stored.clone();
                assert_eq!(verify(&party(), number, &mut stored, &got), Ok(()), "{algorithm:?} {counts}");
                assert_eq!(stored.sign_count > before.sign_count, counts);
                // a copy of the authenticator would send the same counter
                let again = verify(&party(), number, &mut stored, &got);
                assert_eq!(again.err(), counts.then_some(WebauthnError::Counter));
            }
        }
    }
}

#[tokio::test]
async fn every_changed_byte_is_refused() {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    for algorithm in [Algorithm::ES256, Algorithm::EdDSA] {
        let mut browser = Browser::new(algorithm, false, true);
        let (_, stored) = register(&party(), &mut browser).await;
        let mut stored = stored.unwrap();
        let got = browser.get(&party().request_options(&challenge(1), &[], MINUTE).to_string()).await;
        for member in ["clientDataJSON", "authenticatorData", "signature", "userHandle"] {
            let text = got["response"][member].as_str().unwrap();
            let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).unwrap();
            for place in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[place] ^= 0x20;
                let mut json = got.clone();
                json["response"][member] = json!(URL_SAFE_NO_PAD.encode(changed));
                assert!(verify(&party(), 1, &mut stored, &json).is_err(), "{algorithm:?}: byte {place} of {member}");
            }
        }
        assert_eq!(verify(&party(), 1, &mut stored, &got), Ok(()));
    }
}

#[tokio::test]
async fn other_sites_and_unverified_users_are_refused() {
    let mut browser = Browser::new(Algorithm::ES256, false, true);
    let (created, stored) = register(&party(), &mut browser).await;
    let other_origin = RelyingParty::new("example.com").unwrap().origin("https://example.com").unwrap();
    let other_id = RelyingParty::new("login.example.com").unwrap().origin("https://login.example.com").unwrap();
    assert_eq!(verify_registration(&other_origin, 0, &created), Err(WebauthnError::Origin));
    assert_eq!(verify_registration(&other_id, 0, &created), Err(WebauthnError::RelyingParty));
    let mut stored = stored.unwrap();
    let got = browser.get(&party().request_options(&challenge(1), &[], MINUTE).to_string()).await;
    assert_eq!(verify(&other_origin, 1, &mut stored, &got), Err(WebauthnError::Origin));
    assert_eq!(verify(&other_id, 1, &mut stored, &got), Err(WebauthnError::RelyingParty));

    let lax = party().user_verification(UserVerification::Discouraged);
    let mut browser = Browser::new(Algorithm::ES256, false, false);
    let (created, stored) = register(&lax, &mut browser).await;
    let mut stored = stored.unwrap();
    assert_eq!(verify_registration(&party(), 0, &created), Err(WebauthnError::UserVerification));
    let got = browser.get(&lax.request_options(&challenge(1), &[], MINUTE).to_string()).await;
    assert_eq!(verify(&party(), 1, &mut stored, &got), Err(WebauthnError::UserVerification));
    assert_eq!(verify(&lax, 1, &mut stored, &got), Ok(()));
}
