//! The verifier of passkeys against independent vectors: those of the specification, and those of an authenticator in
//! software (`tests/data/webauthn/`).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic")]

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::webauthn::{
    AssertionRequest, AssertionResponse, AssertionVerdict, Attestation, AttestationPolicy, BackupPolicy, CounterPolicy,
    RegistrationResponse, RegistrationVerdict, RelyingParty, StoredCredential, UserVerification, WebauthnError,
};

const SPECIFICATION: &str = include_str!("data/webauthn/specification.json");
const SOFTWARE: &str = include_str!("data/webauthn/software.json");

#[derive(Clone, Deserialize)]
struct Vector {
    name: String,
    #[serde(default)]
    algorithm: String,
    #[serde(default)]
    attestation: String,
    #[serde(default)]
    user_handle: String,
    registration_challenge: String,
    registration: Value,
    assertion_challenge: String,
    assertion: Value,
}

fn vectors(text: &str) -> Vec<Vector> {
    serde_json::from_str(text).unwrap()
}

fn software() -> Vec<Vector> {
    vectors(SOFTWARE)
}

fn bytes(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

fn party() -> RelyingParty {
    RelyingParty::new("example.com").unwrap().origin("https://login.example.com").unwrap()
}

/// The relying party of the specification. Its vectors have random flags.
fn party_of_specification() -> RelyingParty {
    let party = RelyingParty::new("example.org").unwrap().origin("https://example.org").unwrap();
    party.user_verification(UserVerification::Discouraged)
}

/// Applies a change to a member of a response that holds bytes.
fn change(response: &mut Value, member: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let member = if member.ends_with("id") || member.ends_with("Id") {
        &mut response[member]
    } else {
        &mut response["response"][member]
    };
    let mut changed = bytes(member.as_str().unwrap());
    change(&mut changed);
    *member = json!(URL_SAFE_NO_PAD.encode(changed));
}

fn replace(bytes: &mut Vec<u8>, from: &str, to: &str) {
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.contains(from), "{text}");
    *bytes = text.replace(from, to).into_bytes();
}

impl Vector {
    fn register(&self, party: &RelyingParty) -> Result<RegistrationVerdict, WebauthnError> {
        let response = RegistrationResponse::from_json(self.registration.to_string())?;
        party.verify_registration(&bytes(&self.registration_challenge), &response)
    }

    fn register_changed(&self, change: impl FnOnce(&mut Value)) -> Result<RegistrationVerdict, WebauthnError> {
        let mut changed = self.clone();
        change(&mut changed.registration);
        changed.register(&party())
    }

    /// Returns the credential as it is stored. The vectors of the specification have no user handle.
    fn stored(&self, party: &RelyingParty) -> StoredCredential {
        self.register(party).unwrap().stored(bytes(&self.user_handle))
    }

    fn authenticate(&self, party: &RelyingParty, stored: &StoredCredential) -> Result<AssertionVerdict, WebauthnError> {
        let challenge = bytes(&self.assertion_challenge);
        let mut request = AssertionRequest::new(&challenge);
        if self.user_handle.is_empty() {
            request = request.user_handle(&stored.user_handle);
        }
        let response = AssertionResponse::from_json(self.assertion.to_string())?;
        party.verify_assertion(&request, Some(stored), &response)
    }

    fn authenticate_changed(&self, change: impl FnOnce(&mut Value)) -> Result<AssertionVerdict, WebauthnError> {
        let mut changed = self.clone();
        change(&mut changed.assertion);
        changed.authenticate(&party(), &self.stored(&party()))
    }
}

// ---- the vectors of the specification

#[test]
fn c075_the_vectors_of_the_specification_are_verified() {
    let mut verified = Vec::new();
    for vector in vectors(SPECIFICATION) {
        let name = vector.name.as_str();
        let mut party = party_of_specification();
        if name.contains("crossOrigin") {
            // the embedding page is not named
            assert_eq!(vector.register(&party), Err(WebauthnError::Embedded), "{name}");
            continue;
        }
        if name.contains("topOrigin") {
            assert_eq!(vector.register(&party), Err(WebauthnError::Embedded), "{name}");
            party = party.top_origin("https://example.com").unwrap();
        }
        if ["ES384", "ES512", "Ed448"].iter().any(|other| name.contains(other)) {
            assert_eq!(vector.register(&party), Err(WebauthnError::PublicKey), "{name}");
            continue;
        }
        let registered = vector.register(&party).unwrap_or_else(|error| panic!("{name}: {error}"));
        let strict = vector.register(&party.clone().attestation(AttestationPolicy::RefuseUnverified));
        match registered.attestation {
            Attestation::Unverified => assert_eq!(strict, Err(WebauthnError::Attestation), "{name}"),
            _ => assert_eq!(strict.as_ref(), Ok(&registered), "{name}"),
        }
        let verdict =
            vector.authenticate(&party, &registered.stored([])).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((verdict.sign_count, verdict.counter_stalled), (0, false), "{name}");
        verified.push((registered.algorithm.as_str(), registered.attestation));
    }
    let count = |kind| verified.iter().filter(|one| **one == kind).count();
    assert_eq!(count(("ES256", Attestation::None)), 3, "none, embedded, long id");
    assert_eq!(count(("ES256", Attestation::SelfSigned)), 1);
    assert_eq!(count(("ES256", Attestation::Unverified)), 5, "packed, tpm, android-key, apple, fido-u2f");
    assert_eq!(count(("EdDSA", Attestation::Unverified)), 1);
    assert_eq!(count(("RS256", Attestation::Unverified)), 1);
}

// ---- the vectors of an authenticator in software

#[test]
fn c075_each_algorithm_registers_and_signs_in() {
    for vector in software() {
        let registered = vector.register(&party()).unwrap();
        let is_self_signed = vector.attestation == "self";
        assert_eq!(registered.algorithm.as_str(), vector.algorithm);
        assert_eq!(registered.attestation == Attestation::SelfSigned, is_self_signed, "{}", vector.name);
        assert_eq!(registered.aaguid == [0; 16], !is_self_signed);
        assert_eq!(registered.transports, ["internal"]);
        assert!(registered.user_verified);
        assert_eq!((registered.backup_eligible, registered.backed_up), (!is_self_signed, !is_self_signed));

        let mut stored = registered.stored(bytes(&vector.user_handle));
        let verdict = vector.authenticate(&party(), &stored).unwrap();
        assert_eq!(verdict.sign_count, if is_self_signed { 2 } else { 0 });
        assert!(verdict.user_verified && verdict.backed_up != is_self_signed && !verdict.counter_stalled);
        verdict.update(&mut stored);
        assert_eq!(stored.sign_count, verdict.sign_count);
    }
}

#[test]
fn c068_the_id_is_the_raw_id_and_one_of_the_allowed_ones() {
    for vector in software() {
        for member in ["id", "rawId"] {
            let flip = |response: &mut Value| change(response, member, |id| id[0] ^= 1);
            assert_eq!(vector.register_changed(flip), Err(WebauthnError::CredentialId));
            let refused = vector.authenticate_changed(flip).unwrap_err();
            assert!(matches!(refused, WebauthnError::CredentialId | WebauthnError::UnknownCredential), "{refused}");
        }
        // both are changed alike
        let both = |response: &mut Value| {
            for member in ["id", "rawId"] {
                change(response, member, |id| id[0] ^= 1);
            }
        };
        assert_eq!(vector.register_changed(both), Err(WebauthnError::CredentialId));
        assert_eq!(vector.authenticate_changed(both), Err(WebauthnError::UnknownCredential));

        let (stored, challenge) = (vector.stored(&party()), bytes(&vector.assertion_challenge));
        let response = AssertionResponse::from_json(vector.assertion.to_string()).unwrap();
        let verify = |allowed: &[Vec<u8>]| {
            party().verify_assertion(&AssertionRequest::new(&challenge).allowed(allowed), Some(&stored), &response)
        };
        assert!(verify(&[]).is_ok() && verify(&[vec![1], stored.id.clone()]).is_ok());
        assert_eq!(verify(&[vec![1]]), Err(WebauthnError::UnknownCredential));
    }
}

#[test]
fn c069_the_credential_belongs_to_the_user() {
    for vector in software() {
        let (stored, challenge) = (vector.stored(&party()), bytes(&vector.assertion_challenge));
        let other = StoredCredential { user_handle: vec![1; 32], ..stored.clone() };
        let verify = |known: Option<&[u8]>, stored: Option<&StoredCredential>, named: Option<&str>| {
            let mut json = vector.assertion.clone();
            json["response"]["userHandle"] = json!(named);
            let request = AssertionRequest::new(&challenge);
            let request = known.map_or(request, |handle| request.user_handle(handle));
            party().verify_assertion(&request, stored, &AssertionResponse::from_json(json.to_string()).unwrap())
        };
        let own = Some(stored.user_handle.as_slice());
        let named = Some(vector.user_handle.as_str());
        assert!(verify(None, Some(&stored), named).is_ok());
        assert!(verify(own, Some(&stored), named).is_ok());
        assert!(verify(own, Some(&stored), None).is_ok(), "a known user need not be named");
        assert!(verify(own, Some(&stored), Some("")).is_ok(), "an empty handle names nobody");
        for (known, stored, named) in [
            (None, &stored, None),
            (None, &stored, Some("")),
            (None, &stored, Some("AAAA")),
            (own, &stored, Some("AAAA")),
            (Some(&[2; 32][..]), &stored, named),
            (Some(&[2; 32]), &stored, None),
            (None, &other, named),
            (own, &other, named),
        ] {
            assert_eq!(verify(known, Some(stored), named), Err(WebauthnError::User));
        }
        for known in [None, own] {
            assert_eq!(verify(known, None, named), Err(WebauthnError::UnknownCredential));
        }
    }
}

#[test]
fn each_changed_field_is_refused_by_its_own_check() {
    use WebauthnError::{Backup, Challenge, Embedded, Malformed, Origin, RelyingParty as Party, Type, UserPresence};
    for vector in software() {
        for (from, to, expected) in [
            ("webauthn.", "webauthm.", Type),
            ("login.example.com", "example.com", Origin),
            ("https:", "http:", Origin),
            ("false", "true", Embedded),
            ("\"challenge\":\"", "\"challenge\":\"A", Challenge),
            ("\"type\"", "\"typo\"", Malformed("clientDataJSON")),
        ] {
            let edit = |response: &mut Value| change(response, "clientDataJSON", |data| replace(data, from, to));
            assert_eq!(vector.register_changed(edit), Err(expected), "{from}");
            assert_eq!(vector.authenticate_changed(edit), Err(expected), "{from}");
        }
        // the responses are not interchangeable
        let swapped = vector.authenticate_changed(|response| {
            response["response"]["clientDataJSON"] = vector.registration["response"]["clientDataJSON"].clone();
        });
        assert_eq!(swapped, Err(Type));
        for (byte, bit, expected) in
            [(0, 0x01, Party), (32, 0x01, UserPresence), (32, 0x04, WebauthnError::UserVerification)]
        {
            let edit = |data: &mut Vec<u8>| data[byte] ^= bit;
            let result = vector.authenticate_changed(|it| change(it, "authenticatorData", edit));
            assert_eq!(result, Err(expected));
        }
        // becoming eligible for backups, or no longer
        let result = vector.authenticate_changed(|it| change(it, "authenticatorData", |data| data[32] ^= 0x08));
        assert_eq!(result, Err(Backup));
        let without_backup = party().backup(BackupPolicy::Refuse);
        assert_eq!(vector.register(&without_backup).is_ok(), vector.attestation == "self");
        let other = RelyingParty::new("login.example.com").unwrap().origin("https://login.example.com").unwrap();
        assert_eq!(vector.register(&other), Err(Party));
        assert_eq!(vector.authenticate(&other, &vector.stored(&party())), Err(Party));

        let mut other = vector.clone();
        other.registration_challenge = URL_SAFE_NO_PAD.encode([7; 32]);
        other.assertion_challenge = URL_SAFE_NO_PAD.encode([8; 32]);
        assert_eq!(other.register(&party()), Err(Challenge));
        assert_eq!(other.authenticate(&party(), &vector.stored(&party())), Err(Challenge));
    }
}

#[test]
fn c075_every_changed_bit_of_an_assertion_is_refused() {
    for vector in software() {
        let stored = vector.stored(&party());
        for member in ["clientDataJSON", "authenticatorData", "signature"] {
            let len = bytes(vector.assertion["response"][member].as_str().unwrap()).len();
            for bit in 0..len * 8 {
                let mut changed = vector.clone();
                change(&mut changed.assertion, member, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
                assert!(changed.authenticate(&party(), &stored).is_err(), "{}: bit {bit} of {member}", vector.name);
            }
            for len in 0..len {
                let result = vector.authenticate_changed(|it| change(it, member, |bytes| bytes.truncate(len)));
                assert!(result.is_err(), "{}: {len} bytes of {member}", vector.name);
            }
            let longer = vector.authenticate_changed(|it| change(it, member, |bytes| bytes.push(0)));
            assert!(longer.is_err(), "{}: a longer {member}", vector.name);
        }
    }
}

#[test]
fn c075_the_key_and_its_algorithm_are_pinned() {
    let all = software();
    for vector in &all {
        let stored = vector.stored(&party());
        for other in &all {
            let with_other_key = StoredCredential { public_key: other.stored(&party()).public_key, ..stored.clone() };
            let result = vector.authenticate(&party(), &with_other_key);
            assert_eq!(result.is_ok(), vector.name == other.name, "{} with {}", vector.name, other.name);
        }
        // each byte of the key counts
        for byte in 0..stored.public_key.len() {
            let mut changed = stored.clone();
            changed.public_key[byte] ^= 1;
            assert!(vector.authenticate(&party(), &changed).is_err(), "{}: byte {byte}", vector.name);
        }
    }
}

#[test]
fn every_changed_bit_of_a_self_attested_registration_is_refused() {
    for vector in software().into_iter().filter(|vector| vector.attestation == "self") {
        for member in ["clientDataJSON", "attestationObject"] {
            let len = bytes(vector.registration["response"][member].as_str().unwrap()).len();
            for bit in 0..len * 8 {
                let flip = |bytes: &mut Vec<u8>| bytes[bit / 8] ^= 1 << (bit % 8);
                // another name of the format turns the attestation into an unverified one
                let result = vector.register_changed(|it| change(it, member, flip));
                let is_unverified = result.as_ref().is_ok_and(|it| it.attestation == Attestation::Unverified);
                assert!(result.is_err() || is_unverified, "{}: bit {bit} of {member}", vector.name);
            }
        }
    }
}

#[test]
fn c078_malformed_registrations_are_refused() {
    for vector in software() {
        let len = bytes(vector.registration["response"]["attestationObject"].as_str().unwrap()).len();
        for len in 0..len {
            let result = vector.register_changed(|it| change(it, "attestationObject", |bytes| bytes.truncate(len)));
            assert_eq!(result, Err(WebauthnError::Malformed("attestationObject")), "{len}");
        }
        let longer = vector.register_changed(|it| change(it, "attestationObject", |bytes| bytes.push(0)));
        assert_eq!(longer, Err(WebauthnError::Malformed("attestationObject")));
        let huge = vector.register_changed(|it| change(it, "attestationObject", |bytes| bytes.resize(20_000, 0)));
        assert_eq!(huge, Err(WebauthnError::Malformed("attestationObject")));
        // a registration is not an assertion
        let with_credential =
            vector.authenticate_changed(|it| change(it, "authenticatorData", |data| data[32] |= 0x40));
        assert_eq!(with_credential, Err(WebauthnError::Malformed("authenticatorData")));
        // not even if the credential is complete
        let credential = [&[0; 16][..], &[0, 1, 7], &[0xa0]].concat();
        let with_credential = vector.authenticate_changed(|it| {
            change(it, "authenticatorData", |data| {
                data[32] |= 0x40;
                data.splice(37..37, credential);
            });
        });
        assert_eq!(with_credential, Err(WebauthnError::Malformed("authenticatorData")));
        // an attestation that states nothing has nothing to state
        if vector.attestation == "none" {
            let stating = vector.register_changed(|it| {
                change(it, "attestationObject", |bytes| {
                    let at = bytes.windows(8).position(|part| part == b"attStmt\xa0").unwrap() + 7;
                    bytes.splice(at..=at, *b"\xa1cver\x01");
                });
            });
            assert_eq!(stating, Err(WebauthnError::Attestation));
        }
    }
}

#[test]
fn c076_a_counter_that_does_not_increase_is_refused_or_reported() {
    let reporting = party().counter(CounterPolicy::Report);
    for vector in software() {
        let stored = vector.stored(&party());
        let counts = vector.attestation == "self";
        for (stored_count, accepted) in [(0, true), (1, counts), (2, false), (3, false), (u32::MAX, false)] {
            let stored = StoredCredential { sign_count: stored_count, ..stored.clone() };
            let result = vector.authenticate(&party(), &stored);
            assert_eq!(result.err(), (!accepted).then_some(WebauthnError::Counter), "{} {stored_count}", vector.name);
            let reported = vector.authenticate(&reporting, &stored).unwrap();
            assert_eq!(reported.counter_stalled, !accepted);
            assert_eq!(reported.sign_count, stored_count.max(if counts { 2 } else { 0 }), "it never decreases");
        }
    }
}

#[test]
fn c077_a_refused_assertion_changes_nothing() {
    // the verdict is the only way to the new values, and a refusal has none
    let vector = &software()[1];
    let mut stored = vector.stored(&party());
    let before = stored.clone();
    if let Ok(verdict) = vector.authenticate_changed(|it| change(it, "signature", |bytes| bytes[20] ^= 1)) {
        verdict.update(&mut stored);
    }
    assert_eq!(stored, before);
    vector.authenticate(&party(), &stored).unwrap().update(&mut stored);
    assert_eq!(stored.sign_count, before.sign_count + 1);
}

#[test]
fn c078_an_overlong_signature_is_malformed_and_not_verified() {
    for vector in software() {
        let with_len = |len| vector.authenticate_changed(|it| change(it, "signature", |bytes| bytes.resize(len, 0)));
        assert_eq!(with_len(1024), Err(WebauthnError::Signature));
        assert_eq!(with_len(1025), Err(WebauthnError::Malformed("signature")));
    }
}

#[test]
fn an_error_names_the_check_that_failed() {
    assert_eq!(WebauthnError::Malformed("signature").to_string(), "malformed signature");
    assert_eq!(WebauthnError::Counter.to_string(), "the signature counter has not increased");
}

#[test]
fn c067_short_challenges_are_never_accepted() {
    let vector = &software()[0];
    let registration = RegistrationResponse::from_json(vector.registration.to_string()).unwrap();
    let assertion = AssertionResponse::from_json(vector.assertion.to_string()).unwrap();
    for len in 0..16 {
        let challenge = vec![7; len];
        assert_eq!(party().verify_registration(&challenge, &registration).unwrap_err(), WebauthnError::Challenge);
        let request = AssertionRequest::new(&challenge);
        let result = party().verify_assertion(&request, Some(&vector.stored(&party())), &assertion);
        assert_eq!(result, Err(WebauthnError::Challenge));
        // not even if the browser has signed them
        let mut short = vector.clone();
        let (text, old) = (URL_SAFE_NO_PAD.encode(&challenge), &vector.registration_challenge);
        change(&mut short.registration, "clientDataJSON", |data| replace(data, old, &text));
        short.registration_challenge = text;
        assert_eq!(short.register(&party()), Err(WebauthnError::Challenge), "{len}");
    }
    let mut shortest = vector.clone();
    let (text, old) = (URL_SAFE_NO_PAD.encode([7; 16]), &vector.registration_challenge);
    change(&mut shortest.registration, "clientDataJSON", |data| replace(data, old, &text));
    shortest.registration_challenge = text;
    assert_eq!(
        shortest.register(&party()).is_ok(),
        vector.attestation == "none",
        "a self-attestation signs the challenge"
    );
}

#[test]
fn c080_the_interface_form_and_the_browser_form_are_both_accepted() {
    for vector in software() {
        let stored = vector.stored(&party());
        let mut standard = vector.clone();
        for (member, text) in standard.assertion["response"].as_object_mut().unwrap() {
            assert_ne!(member, "id");
            *text = json!(STANDARD.encode(bytes(text.as_str().unwrap())));
        }
        standard.assertion["rawId"] = json!(STANDARD.encode(bytes(vector.assertion["rawId"].as_str().unwrap())));
        assert!(standard.authenticate(&party(), &stored).is_ok());
        let mut browser = vector.clone();
        browser.assertion["clientExtensionResults"] = json!({ "appid": false });
        browser.assertion["authenticatorAttachment"] = json!("platform");
        assert!(browser.authenticate(&party(), &stored).is_ok());
    }
}

// ---- keys

/// A registration without attestation, with this COSE key.
fn register_key(key: &[u8]) -> Result<RegistrationVerdict, WebauthnError> {
    let vector = &software()[0];
    vector.register_changed(|response| {
        change(response, "attestationObject", |object| {
            // fmt and attStmt stay; authData begins behind its length
            let at = object.windows(8).position(|name| name == b"authData").unwrap() + 8;
            let data = object.split_off(at);
            let fixed = &data[2..2 + 37 + 16 + 2 + 32];
            let len = u16::try_from(fixed.len() + key.len()).unwrap();
            let head =
                if len < 256 { vec![0x58, len as u8] } else { [vec![0x59], len.to_be_bytes().to_vec()].concat() };
            object.extend([&head[..], fixed, key].concat());
        });
    })
}

fn rsa(n: &[u8], e: &[u8]) -> Vec<u8> {
    let bytes = |bytes: &[u8]| match bytes.len() {
        len @ 0..24 => [&[0x40 | len as u8], bytes].concat(),
        len @ 24..256 => [&[0x58, len as u8], bytes].concat(),
        len => [&[0x59], &(len as u16).to_be_bytes()[..], bytes].concat(),
    };
    [&[0xa4, 0x01, 0x03, 0x03, 0x39, 0x01, 0x00, 0x20][..], &bytes(n), &[0x21], &bytes(e)].concat()
}

#[test]
fn c075_unusable_keys_are_refused() {
    let all = software();
    let keys: Vec<Vec<u8>> = all.iter().map(|vector| vector.register(&party()).unwrap().public_key).collect();
    for key in &keys {
        assert!(register_key(key).is_ok());
    }
    let (point, edwards) = (&keys[0], &keys[2]);
    let with = |key: &[u8], byte: usize, value: u8| {
        let mut key = key.to_vec();
        key[byte] = value;
        key
    };
    // 77 bytes: x begins at 10, y at 45
    let mut off_curve = point.clone();
    off_curve[76] ^= 1;
    let big = |len: usize| [&[0xff][..], &vec![0x55; len - 1]].concat();
    let public_exponent = &[1, 0, 1];
    assert!(register_key(&rsa(&big(256), public_exponent)).is_ok());
    assert!(register_key(&rsa(&big(512), public_exponent)).is_ok());
    for (key, why) in [
        (off_curve, "not on the curve"),
        ([&point[..10], &[0; 32], &point[42..45], &[0; 32]].concat(), "zero"),
        (with(point, 2, 1), "another type"),
        (with(point, 4, 0x27), "another algorithm"),
        (with(point, 6, 2), "another curve"),
        (with(edwards, 4, 0x26), "another algorithm"),
        (with(edwards, 6, 7), "another curve"),
        (rsa(&big(255), public_exponent), "2040 bits"),
        (rsa(&[&[0x7f][..], &big(255)].concat(), public_exponent), "2047 bits"),
        (rsa(&big(513), public_exponent), "4104 bits"),
        (rsa(&[&[0][..], &big(256)].concat(), public_exponent), "a leading zero"),
        (rsa(&[&big(255)[..], &[2]].concat(), public_exponent), "an even modulus"),
        (rsa(&big(256), &[1]), "an exponent of one"),
        (rsa(&big(256), &[2]), "an even exponent"),
        (rsa(&big(256), &[]), "no exponent"),
        (rsa(&big(256), &[0, 1, 0, 1]), "a leading zero"),
        (rsa(&big(256), &[1, 0, 0, 0, 1]), "a long exponent"),
        (vec![0xa0], "nothing"),
    ] {
        assert_eq!(register_key(&key).unwrap_err(), WebauthnError::PublicKey, "{why}");
    }
    assert_eq!(register_key(&[0x80]).unwrap_err(), WebauthnError::Malformed("authenticatorData"), "no map");
    assert_eq!(register_key(&[]).unwrap_err(), WebauthnError::Malformed("authenticatorData"), "no key");
}

proptest! {
    #[test]
    fn c078_nothing_panics(
        index in 0..6_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let vector = &software()[index];
        let edit = |bytes: &mut Vec<u8>| {
            for (place, byte, inserts) in &edits {
                let place = place.index(bytes.len());
                if *inserts { bytes.insert(place, *byte) } else { bytes[place] = *byte }
            }
        };
        for member in ["clientDataJSON", "attestationObject"] {
            let _ = vector.register_changed(|it| change(it, member, edit));
        }
        let before = bytes(vector.assertion["response"]["authenticatorData"].as_str().unwrap());
        let mut after = before.clone();
        edit(&mut after);
        let result = vector.authenticate_changed(|it| change(it, "authenticatorData", edit));
        prop_assert_eq!(result.is_ok(), before == after);
    }
}
