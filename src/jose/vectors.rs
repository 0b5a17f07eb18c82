//! Test vectors of the RFCs, and attacks on them.

use serde_json::{Value, json};

use super::{
    algorithm::Algorithm,
    jwk::{Jwk, PublicKey},
    jws::{self, Unverified},
    set::KeySet,
    signer::Signer,
};

fn key(jwk: Value) -> PublicKey {
    PublicKey::from_jwk(&serde_json::from_value::<Jwk>(jwk).unwrap()).unwrap()
}

fn rsa_of_rfc_7638() -> PublicKey {
    let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    key(json!({ "kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29" }))
}

#[test]
fn the_thumbprint_of_rfc_7638_section_3() {
    assert_eq!(rsa_of_rfc_7638().thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
}

#[test]
fn the_thumbprint_and_the_signature_of_rfc_8037_appendix_a() {
    let key = key(json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }));
    assert_eq!(key.thumbprint(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    let signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let signature = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, signature).unwrap();
    assert!(key.verifies(key.algorithm(), signed, &signature));
    assert!(!key.verifies(key.algorithm(), &signed[1..], &signature));
}

#[test]
fn the_signature_of_rfc_7515_appendix_a_3() {
    let key = key(json!({
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }));
    let signed = b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let signature = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, signature).unwrap();
    assert!(key.verifies(key.algorithm(), signed, &signature));
}

#[test]
fn the_signature_of_rfc_7515_appendix_a_2() {
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let key = key(json!({ "kty": "RSA", "n": n, "e": "AQAB" }));
    let signed = b"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let signature = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, signature).unwrap();
    assert!(key.verifies(key.algorithm(), signed, &signature));
    assert!(!key.verifies(key.algorithm(), &signed[1..], &signature));
}

#[test]
fn only_the_matching_key_verifies_a_signature() {
    let signers: Vec<Signer> = Algorithm::ALL
        .iter()
        .map(|algorithm| Signer::parse_pkcs8(*algorithm, &Signer::generate_signing_key(*algorithm).unwrap()).unwrap())
        .collect();
    for signer in &signers {
        let token = jws::sign(signer, "at+jwt", &json!({ "sub": "ada" })).unwrap();
        for other in &signers {
            let keys = KeySet::new([(other.kid.clone(), other.public.clone())]);
            let read: Option<Value> = Unverified::parse(&token, "at+jwt").unwrap().claims(&keys);
            assert_eq!(read.is_some(), other.kid == signer.kid);
        }
        assert!(Unverified::parse(&token, "JWT").is_none(), "another type");
        // a key without an id may be the right one
        let nameless = KeySet::parse(&json!({ "keys": [signer.public.jwk()] }).to_string().into_bytes()).unwrap();
        assert!(Unverified::parse(&token, "at+jwt").unwrap().claims::<Value>(&nameless).is_some());
    }
}

#[test]
fn a_key_with_another_id_or_for_another_algorithm_verifies_nothing() {
    let signer =
        Signer::parse_pkcs8(Algorithm::Rs256, &Signer::generate_signing_key(Algorithm::Rs256).unwrap()).unwrap();
    let token = jws::sign(&signer, "at+jwt", &json!({ "sub": "ada" })).unwrap();
    let is_read_with = |kid: Value, alg: Value| {
        let mut jwk = serde_json::to_value(signer.public.jwk()).unwrap();
        (jwk["kid"], jwk["alg"]) = (kid, alg);
        let keys = KeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap();
        assert_eq!(keys.iter().count(), 1);
        Unverified::parse(&token, "at+jwt").unwrap().claims::<Value>(&keys).is_some()
    };
    let kid = || json!(signer.kid);
    assert!(is_read_with(kid(), json!("RS256")) && is_read_with(kid(), Value::Null));
    assert!(!is_read_with(json!("another"), json!("RS256")) && !is_read_with(json!("another"), Value::Null));
    assert!(!is_read_with(kid(), json!("PS256")) && !is_read_with(Value::Null, json!("PS256")));
}

#[test]
fn overlong_tokens_are_rejected() {
    let token = |len: usize| format!("eyJhbGciOiJFUzI1NiJ9.{}.AA", "x".repeat(len - "eyJhbGciOiJFUzI1NiJ9..AA".len()));
    assert!(Unverified::parse_any(&token(16 * 1024)).is_some());
    assert!(Unverified::parse_any(&token(16 * 1024 + 1)).is_none());
}

#[test]
fn debug_shows_the_id_of_a_key_and_nothing_private() {
    let signer =
        Signer::parse_pkcs8(Algorithm::Es256, &Signer::generate_signing_key(Algorithm::Es256).unwrap()).unwrap();
    assert_eq!(format!("{signer:?}"), format!("Signer {{ kid: {:?}, .. }}", signer.kid));
    assert_eq!(format!("{:?}", signer.public), format!("PublicKey(\"ES256\", {:?})", signer.kid));
}
