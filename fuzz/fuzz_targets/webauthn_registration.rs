#![no_main]
//! A credential that is registered: the flags of the authenticator data (one byte), then what follows the counter (the
//! attested credential and extensions). If the first byte is `A`, the input is a whole attestation object instead.
//! Nothing may panic, and what is accepted has a key that is accepted again.

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tollgate::{
    SecretDigest,
    webauthn::{
        AssertionRequest, AssertionResponse, RegistrationResponse, RelyingParty, UserVerification, WebauthnError,
    },
};

const CHALLENGE: [u8; 16] = [0; 16];
const CREATED: &[u8] =
    br#"{"type":"webauthn.create","challenge":"AAAAAAAAAAAAAAAAAAAAAA","origin":"https://example.com"}"#;
const GOT: &[u8] = br#"{"type":"webauthn.get","challenge":"AAAAAAAAAAAAAAAAAAAAAA","origin":"https://example.com"}"#;

static PARTY: LazyLock<RelyingParty> = LazyLock::new(|| {
    let party = RelyingParty::new("example.com").unwrap().origin("https://example.com").unwrap();
    party.user_verification(UserVerification::Discouraged)
});

fn object(data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len()).unwrap();
    let head = if len < 256 { vec![0x58, len as u8] } else { [vec![0x59], len.to_be_bytes().to_vec()].concat() };
    [&b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData"[..], &head, data].concat()
}

/// The id of the credential, at its usual place.
fn id(data: &[u8]) -> &[u8] {
    let len = data.get(53..55).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
    data.get(55..55 + len).unwrap_or_default()
}

fuzz_target!(|input: &[u8]| {
    let Some((&flags, rest)) = input.split_first() else { return };
    if flags == b'A' {
        let _ = PARTY.verify_registration(&CHALLENGE, &RegistrationResponse::new(&[1], CREATED, rest));
        return;
    }
    let data = [SecretDigest::of_secret("example.com").as_bytes(), &[flags][..], &[0, 0, 0, 1], rest].concat();
    let asserted = AssertionResponse::new(id(&data), GOT, &data, &[], Some(&[1]));
    assert!(PARTY.verify_assertion(&AssertionRequest::new(&CHALLENGE), None, &asserted).is_err());

    let response = RegistrationResponse::new(id(&data), CREATED, &object(&data));
    let Ok(verdict) = PARTY.verify_registration(&CHALLENGE, &response) else { return };
    assert_eq!((verdict.id.as_slice(), verdict.sign_count), (id(&data), 1));
    // the signature is empty, so only reading the stored key can succeed
    let stored = verdict.stored([1]);
    let plain = [SecretDigest::of_secret("example.com").as_bytes(), &[flags & 0x1f][..], &[0, 0, 0, 2]].concat();
    let asserted = AssertionResponse::new(&stored.id, GOT, &plain, &[0; 256], Some(&[1]));
    let refused = PARTY.verify_assertion(&AssertionRequest::new(&CHALLENGE), Some(&stored), &asserted);
    assert_eq!(refused, Err(WebauthnError::Signature));
});
