//! Attacks on tokens. All of them must be rejected.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::Sha256;

use super::verifier::{TokenError, Verifier};
use crate::{
    jose::{Algorithm, KeySet, Signer, jwk::PublicKey},
    testing::{ManualClock, TestIssuer, block_on},
};

const ISSUER: &str = "https://auth.example";
const API: &str = "https://api.example";

fn issuer() -> TestIssuer {
    TestIssuer::new(ISSUER, API).clock(ManualClock::new())
}

fn verify(verifier: &Verifier, token: &str) -> Result<(), TokenError> {
    block_on(verifier.verify(token).wait()).map(drop)
}

fn counts(issuer: &TestIssuer, token: &str) -> bool {
    verify(&issuer.verifier(), token).is_ok()
}

fn signer(algorithm: Algorithm) -> Signer {
    Signer::parse_pkcs8(algorithm, &Signer::generate_signing_key(algorithm).unwrap()).unwrap()
}

/// A token with exactly these parts, signed by `sign`.
fn raw(header: &str, claims: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", BASE64URL.encode(header), BASE64URL.encode(claims));
    format!("{signed}.{}", BASE64URL.encode(sign(signed.as_bytes())))
}

fn claims(issuer: &TestIssuer) -> Value {
    serde_json::to_value(issuer.claims().0).unwrap()
}

/// A correctly signed token with this header.
fn with_header(issuer: &TestIssuer, header: &Value) -> String {
    let signer = issuer.signer();
    raw(&header.to_string(), &claims(issuer).to_string(), |bytes| signer.sign(bytes).unwrap())
}

/// A valid header with additional members.
fn header(issuer: &TestIssuer, more: &Value) -> Value {
    let mut header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": issuer.signer().kid });
    header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    header
}

fn mac(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(bytes);
    mac.finalize().into_bytes().to_vec()
}

#[test]
fn c097_unsigned_tokens_are_rejected_regardless_of_alg() {
    let issuer = issuer();
    let text = claims(&issuer).to_string();
    for alg in ["none", "None", "NONE", "nOnE", "", "ES256"] {
        let header = header(&issuer, &json!({ "alg": alg })).to_string();
        assert!(!counts(&issuer, &raw(&header, &text, |_| Vec::new())), "{alg}");
    }
    // even with a valid signature
    for alg in ["none", "es256", "ES384", "HS256", "RS256", "PS256", "EdDSA", ""] {
        assert!(!counts(&issuer, &with_header(&issuer, &header(&issuer, &json!({ "alg": alg })))), "{alg}");
    }
    assert!(counts(&issuer, &with_header(&issuer, &header(&issuer, &json!({})))));
}

#[test]
fn c097_the_public_key_does_not_work_as_an_hmac_secret() {
    let issuer = issuer();
    let signer = issuer.signer();
    let PublicKey::P256 { x, y } = signer.public.clone() else { panic!("another key") };
    let keys = KeySet::new([(signer.kid.clone(), signer.public.clone())]);
    let secrets = [
        [&[4], &x[..], &y[..]].concat(),
        x.to_vec(),
        keys.to_json(),
        serde_json::to_vec(&signer.public.jwk()).unwrap(),
        Vec::new(),
    ];
    for secret in &secrets {
        for alg in ["HS256", "ES256"] {
            let header = header(&issuer, &json!({ "alg": alg })).to_string();
            assert!(!counts(&issuer, &raw(&header, &claims(&issuer).to_string(), |bytes| mac(secret, bytes))), "{alg}");
        }
    }
}

#[test]
fn c097_a_key_is_valid_only_for_its_algorithm_and_id() {
    let signers: Vec<Signer> =
        [Algorithm::Es256, Algorithm::EdDsa, Algorithm::Rs256, Algorithm::Es256].into_iter().map(signer).collect();
    let source = super::keys::StaticKeys(Arc::new(KeySet::new(
        signers.iter().map(|signer| (signer.kid.clone(), signer.public.clone())),
    )));
    let clock = ManualClock::new();
    let verifier = Verifier::new(source, ISSUER, API, Arc::new(clock.clone())).unwrap();
    let text = claims(&issuer()).to_string();
    for signer in &signers {
        for (named, alg) in
            signers.iter().flat_map(|named| Algorithm::ALL.iter().map(move |alg| (&named.kid, alg.as_str())))
        {
            let header = json!({ "alg": alg, "typ": "at+jwt", "kid": named }).to_string();
            let token = raw(&header, &text, |bytes| signer.sign(bytes).unwrap());
            let own = *named == signer.kid && alg == signer.public.algorithm().as_str();
            assert_eq!(verify(&verifier, &token).is_ok(), own, "{header}");
        }
        // the key id may be omitted, and then all keys are tried
        let header = json!({ "alg": signer.public.algorithm().as_str(), "typ": "at+jwt" }).to_string();
        assert_eq!(verify(&verifier, &raw(&header, &text, |bytes| signer.sign(bytes).unwrap())), Ok(()));
    }
}

#[test]
fn c097_keys_inside_a_token_are_ignored() {
    let issuer = issuer();
    let mine = signer(Algorithm::Es256);
    let jwk = serde_json::to_value(mine.public.jwk()).unwrap();
    let url = "https://attacker.example/jwks";
    for more in [
        json!({ "jwk": jwk }),
        json!({ "jwk": jwk, "kid": null }),
        json!({ "jwk": jwk, "kid": mine.kid }),
        json!({ "jku": url, "kid": mine.kid }),
        json!({ "x5u": url }),
        json!({ "x5c": ["AAAA"], "x5t": "AAAA" }),
        json!({ "kid": "../../../../dev/null" }),
        json!({ "kid": "' OR 1=1" }),
        json!({ "kid": "" }),
    ] {
        let header = header(&issuer, &more).to_string();
        let token = raw(&header, &claims(&issuer).to_string(), |bytes| mine.sign(bytes).unwrap());
        assert!(!counts(&issuer, &token), "{more}");
    }
    // they are ignored if the issuer has signed them
    for more in [json!({ "jwk": jwk }), json!({ "jku": url }), json!({ "x5u": url })] {
        assert!(counts(&issuer, &with_header(&issuer, &header(&issuer, &more))), "{more}");
    }
}

#[test]
fn c097_unknown_critical_extensions_are_rejected() {
    let issuer = issuer();
    for crit in [json!(["exp"]), json!(["b64"]), json!([]), json!("x")] {
        assert!(!counts(&issuer, &with_header(&issuer, &header(&issuer, &json!({ "crit": crit, "b64": false })))));
    }
}

#[test]
fn c097_only_access_tokens_are_accepted() {
    let issuer = issuer();
    for typ in ["at+jwt", "AT+JWT", "application/at+jwt", "Application/at+JWT"] {
        assert!(counts(&issuer, &issuer.sign(typ, &claims(&issuer))), "{typ}");
    }
    // id tokens, logout tokens and proofs are signed by the same keys
    for typ in ["JWT", "jwt", "logout+jwt", "dpop+jwt", "secevent+jwt", "", "at+jwt ", "text/at+jwt", "at"] {
        assert!(!counts(&issuer, &issuer.sign(typ, &claims(&issuer))), "{typ}");
    }
    let bare = json!({ "alg": "ES256", "kid": issuer.signer().kid });
    assert!(!counts(&issuer, &with_header(&issuer, &bare)));
}

#[test]
fn duplicate_members_are_rejected_in_header_and_claims() {
    let issuer = issuer();
    let signer = issuer.signer();
    let sign = |bytes: &[u8]| signer.sign(bytes).unwrap();
    let (head, text) = (header(&issuer, &json!({})).to_string(), claims(&issuer).to_string());
    assert!(counts(&issuer, &raw(&head, &text, sign)));
    for (name, value) in [("sub", "\"root\""), ("exp", "9999999999"), ("aud", "\"x\""), ("x", "1,\"x\":2")] {
        let twice = text.replacen('{', &format!("{{\"{name}\":{value},"), 1);
        assert!(!counts(&issuer, &raw(&head, &twice, sign)), "{name}");
    }
    // even if the member is not used
    for (name, value) in [("alg", "none"), ("typ", "JWT"), ("\\u0061lg", "ES256"), ("x", "1\",\"x\":\"2")] {
        let twice = head.replacen('{', &format!("{{\"{name}\":\"{value}\","), 1);
        assert!(!counts(&issuer, &raw(&twice, &text, sign)), "{name}");
    }
}

#[test]
fn c097_every_claim_is_checked() {
    let issuer = issuer();
    let with = |name: &str, value: Value| {
        let mut claims = claims(&issuer);
        claims.as_object_mut().unwrap().insert(name.to_owned(), value);
        counts(&issuer, &issuer.sign("at+jwt", &claims))
    };
    let (longest, too_long) = ("x".repeat(255), "x".repeat(256));
    for (name, good) in [
        ("aud", json!([API])),
        ("aud", json!(["https://other.example", API])),
        ("sub", json!(longest)),
        ("tenant", json!("acme")),
        ("tenant", Value::Null),
        ("scope", json!("")),
        ("cnf", Value::Null),
        ("x", json!({ "anything": [1] })),
    ] {
        assert!(with(name, good.clone()), "{name}: {good}");
    }
    for (name, bad) in [
        ("iss", json!("https://auth.example/")),
        ("iss", json!("https://AUTH.example")),
        ("iss", json!("https://auth.example.attacker.example")),
        ("iss", json!("")),
        ("iss", json!([ISSUER])),
        ("aud", json!("https://api.example/")),
        ("aud", json!("https://other.example")),
        ("aud", json!([])),
        ("aud", json!([[API]])),
        ("aud", json!("")),
        ("aud", json!(format!("{API} {API}"))),
        ("sub", json!("")),
        ("sub", json!(too_long)),
        ("sub", json!("a\nb")),
        ("sub", json!(7)),
        ("jti", json!("")),
        ("jti", json!(too_long)),
        ("jti", json!("\u{85}")),
        ("client_id", json!("")),
        ("client_id", json!(too_long)),
        ("tenant", json!("")),
        ("tenant", json!("~anonymous")),
        ("tenant", json!("ip:192.0.2.1")),
        ("tenant", json!("a b")),
        ("exp", json!("9999999999")),
        ("exp", json!(-1)),
        ("exp", json!(1e300)),
        ("scope", json!(["a"])),
        ("cnf", json!({})),
        ("cnf", json!({ "x5t#S256": "AAAA" })),
        ("cnf", json!({ "jkt": null })),
        ("cnf", json!("x")),
    ] {
        assert!(!with(name, bad.clone()), "{name}: {bad}");
    }
    for name in ["iss", "sub", "aud", "client_id", "iat", "exp", "jti"] {
        let mut claims = claims(&issuer);
        claims.as_object_mut().unwrap().remove(name);
        assert!(!counts(&issuer, &issuer.sign("at+jwt", &claims)), "without {name}");
    }
}

#[test]
fn any_changed_or_missing_byte_is_detected() {
    let issuer = issuer();
    let verifier = issuer.verifier();
    let token = issuer.token(|claims| claims.scope("a").tenant(&"acme".parse().unwrap()));
    // so that the cache is tested, too
    assert_eq!(verify(&verifier, &token), Ok(()));
    for place in 0..token.len() {
        for byte in [b'A', b'.', b'_', b'=', token.as_bytes()[place] ^ 1] {
            let mut changed = token.clone().into_bytes();
            if changed[place] == byte {
                continue;
            }
            changed[place] = byte;
            let Ok(changed) = String::from_utf8(changed) else { continue };
            assert!(verify(&verifier, &changed).is_err(), "byte {place}");
        }
        assert!(verify(&verifier, &token[..place]).is_err(), "the first {place} bytes");
        assert!(verify(&verifier, &token[place + 1..]).is_err(), "without the first {}", place + 1);
        let mut without = token.clone();
        without.remove(place);
        assert!(verify(&verifier, &without).is_err(), "without byte {place}");
    }
    for more in [".", "=", "A", ".AAAA", " "] {
        assert!(verify(&verifier, &format!("{token}{more}")).is_err(), "{more:?}");
        assert!(verify(&verifier, &format!("{more}{token}")).is_err(), "{more:?}");
    }
    // the signature of another token
    let other = issuer.token(|claims| claims);
    let (signed, (_, signature)) = (token.rsplit_once('.').unwrap().0, other.rsplit_once('.').unwrap());
    assert!(verify(&verifier, &format!("{signed}.{signature}")).is_err());
}

#[test]
fn c097_tokens_of_an_impostor_with_the_same_name_are_rejected() {
    let (issuer, other) = (issuer(), issuer());
    assert!(counts(&issuer, &issuer.token(|claims| claims)));
    assert!(!counts(&issuer, &other.token(|claims| claims)));
}

#[test]
fn audience_and_leeway_settings_are_validated() {
    let verifier = issuer().verifier();
    for bad in ["", "a\nb", &"x".repeat(256)] {
        assert!(verifier.to_builder().audience(bad).is_err(), "{bad:?}");
    }
    assert!(verifier.to_builder().leeway(Duration::from_secs(60)).is_ok());
    assert!(verifier.to_builder().leeway(Duration::from_millis(60_001)).is_err());
    let clock = Arc::new(ManualClock::new());
    for (name, audience) in [("", API), (ISSUER, ""), ("a\0", API)] {
        assert!(Verifier::new(issuer(), name, audience, clock.clone()).is_err());
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(
        text in any::<String>(),
        parts in prop::collection::vec("[A-Za-z0-9_.=-]{0,20}", 0..5),
        header in r#"\{("(alg|typ|kid|jwk|crit)":("ES256"|"at\+jwt"|\{\}|null|\[\]),?){0,4}\}"#,
        claims in r#"\{("(iss|exp|aud|cnf)":("x"|1|\{\}|null|\[\]),?){0,4}\}"#,
    ) {
        let verifier = issuer().verifier();
        prop_assert!(verify(&verifier, &text).is_err());
        prop_assert!(verify(&verifier, &parts.join(".")).is_err());
        prop_assert!(verify(&verifier, &raw(&header, &claims, |_| vec![0; 64])).is_err());
    }

    #[test]
    fn arbitrary_signed_claims_do_not_panic(claims in r#"\{"(iss|exp|aud|cnf|iat)":("x"|[0-9]{1,22}|\{\}|null|\[\])\}"#) {
        let issuer = issuer();
        let signer = issuer.signer();
        let header = header(&issuer, &json!({})).to_string();
        prop_assert!(!counts(&issuer, &raw(&header, &claims, |bytes| signer.sign(bytes).unwrap())));
    }
}
