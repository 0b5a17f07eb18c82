//! Compares our signed tokens with another implementation, in both directions.

use jsonwebtoken::{DecodingKey, EncodingKey, Header, Validation, jwk::JwkSet};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{algorithm::Algorithm, jws, set::KeySet, signer::Signer};

struct Case {
    ours: Signer,
    theirs: EncodingKey,
    algorithm: jsonwebtoken::Algorithm,
    keys: KeySet,
}

/// One key per algorithm, shared by both implementations.
fn cases() -> Vec<Case> {
    let case = |algorithm: Algorithm| {
        let pkcs8 = Signer::generate_signing_key(algorithm).unwrap();
        let (theirs, other) = match algorithm {
            Algorithm::Es256 => (EncodingKey::from_ec_der(&pkcs8), jsonwebtoken::Algorithm::ES256),
            Algorithm::EdDsa => (EncodingKey::from_ed_der(&pkcs8), jsonwebtoken::Algorithm::EdDSA),
            // PKCS #8 wraps PKCS #1
            Algorithm::Rs256 => (EncodingKey::from_rsa_der(&pkcs8[26..]), jsonwebtoken::Algorithm::RS256),
        };
        let ours = Signer::parse_pkcs8(algorithm, &pkcs8).unwrap();
        let keys = KeySet::new([(ours.kid.clone(), ours.public.clone())]);
        Case { ours, theirs, algorithm: other, keys }
    };
    Algorithm::ALL.iter().copied().map(case).collect()
}

impl Case {
    /// Verifies a token with the other implementation and the keys that we publish.
    fn read_there(&self, token: &str) -> Option<Value> {
        let keys: JwkSet = serde_json::from_slice(&self.keys.to_json()).unwrap();
        let key = keys.find(&self.ours.kid).unwrap();
        let mut validation = Validation::new(self.algorithm);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        Some(jsonwebtoken::decode(token, &DecodingKey::from_jwk(key).unwrap(), &validation).ok()?.claims)
    }

    fn read_here(&self, token: &str) -> Option<Value> {
        jws::Unverified::parse(token, "at+jwt")?.claims(&self.keys)
    }

    fn sign_there(&self, claims: &Value) -> String {
        let header =
            Header { typ: Some("at+jwt".to_owned()), kid: Some(self.ours.kid.clone()), ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.theirs).unwrap()
    }
}

#[test]
fn c097_both_accept_each_others_tokens_and_reject_modified_ones() {
    let cases = cases();
    let text = ".{0,20}";
    let claims = prop::collection::btree_map(text, (text, any::<u64>()), 0..6).prop_map(|members| {
        members.into_iter().map(|(name, (text, number))| (name, json!([text, number]))).collect::<Map<_, _>>()
    });
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    runner
        .run(&(claims, any::<prop::sample::Index>(), 1..=255_u8), |(claims, place, flip)| {
            let claims = Value::Object(claims);
            for case in &cases {
                let ours = jws::sign(&case.ours, "at+jwt", &claims).unwrap();
                for token in [ours, case.sign_there(&claims)] {
                    prop_assert_eq!(case.read_there(&token), Some(claims.clone()));
                    prop_assert_eq!(case.read_here(&token), Some(claims.clone()));
                    let mut changed = token.clone().into_bytes();
                    let at = place.index(changed.len());
                    changed[at] ^= flip & 0x7f;
                    let Ok(changed) = String::from_utf8(changed) else { continue };
                    if changed != token {
                        prop_assert_eq!(case.read_here(&changed), None);
                    }
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn c097_a_key_rejects_tokens_of_other_algorithms() {
    let cases = cases();
    for signs in &cases {
        let token = signs.sign_there(&json!({ "sub": "ada" }));
        for reads in &cases {
            let is_own = signs.ours.kid == reads.ours.kid;
            assert_eq!(reads.read_here(&token).is_some(), is_own);
            let any = KeySet::parse(&reads.keys.to_json()).unwrap();
            assert_eq!(jws::Unverified::parse(&token, "at+jwt").unwrap().claims::<Value>(&any).is_some(), is_own);
        }
        assert!(jws::Unverified::parse(&token, "JWT").is_none(), "an access token is not an id_token");
    }
}
