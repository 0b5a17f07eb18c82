#![no_main]
//! The response of a browser as JSON, or only its `clientDataJSON` if the input starts with `C`. Nothing may panic, and
//! nothing is accepted, because no credential is known.

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tollgate::webauthn::{AssertionRequest, AssertionResponse, RegistrationResponse, RelyingParty, WebauthnError};

const CHALLENGE: [u8; 16] = [0; 16];
/// The SHA-256 of `example.com`, the flags of presence and verification, and a counter.
const DATA: [u8; 37] = *b"\xa3\x79\xa6\xf6\xee\xaf\xb9\xa5\x5e\x37\x8c\x11\x80\x34\xe2\x75\x1e\x68\x2f\xab\x9f\x2d\x30\xab\x13\xd2\x12\x55\x86\xce\x19\x47\x05\0\0\0\0";

static PARTY: LazyLock<RelyingParty> =
    LazyLock::new(|| RelyingParty::new("example.com").unwrap().origin("https://example.com").unwrap());

fuzz_target!(|input: &[u8]| {
    let request = AssertionRequest::new(&CHALLENGE);
    if let Some(client_data) = input.strip_prefix(b"C") {
        let response = AssertionResponse::new(&[1], client_data, &DATA, &[], Some(&[1]));
        let refused = PARTY.verify_assertion(&request, None, &response);
        assert!(matches!(refused, Err(WebauthnError::UnknownCredential | WebauthnError::Malformed("clientDataJSON"))));
        return;
    }
    if let Ok(response) = AssertionResponse::from_json(input) {
        assert!(PARTY.verify_assertion(&request, None, &response).is_err());
    }
    if let Ok(response) = RegistrationResponse::from_json(input) {
        let _ = PARTY.verify_registration(&CHALLENGE, &response);
    }
});
