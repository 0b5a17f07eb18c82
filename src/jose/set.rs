//! Key sets of issuers.

use serde::{Deserialize, Serialize};

use super::{
    algorithm::JwsAlgorithm,
    jwk::{Jwk, PublicKey},
};

/// The maximum number of keys that are kept from a set.
const MOST_KEYS: usize = 32;

/// The keys of an issuer, or what it has revoked, can't be loaded right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable;

/// Public keys with their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySet(Vec<SetKey>);

/// A key of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SetKey {
    kid: Option<String>,
    /// The only algorithm of the key. `None` for RSA keys of sets that name none.
    alg: Option<JwsAlgorithm>,
    key: PublicKey,
}

#[derive(Serialize, Deserialize)]
struct KeySetDocument<K> {
    keys: Vec<K>,
}

impl KeySet {
    #[cfg(feature = "login")]
    pub(crate) fn new(keys: impl IntoIterator<Item = (String, PublicKey)>) -> Self {
        let key = |(kid, key): (String, PublicKey)| SetKey { kid: Some(kid), alg: Some(key.algorithm()), key };
        Self(keys.into_iter().map(key).collect())
    }

    /// Parses a JSON Web Key Set. Skips keys that are not for signatures or not supported.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let document: KeySetDocument<serde_json::Value> = serde_json::from_slice(text).ok()?;
        let usable = |jwk: serde_json::Value| {
            let jwk: Jwk = serde_json::from_value(jwk).ok()?;
            let key = PublicKey::from_jwk(&jwk)?;
            let alg = match jwk.alg {
                Some(name) => Some(JwsAlgorithm::from_name(&name).filter(|alg| key.suits(*alg))?),
                // an RSA key may be for PS256, too
                None => Some(key.algorithm()).filter(|_| !key.suits(JwsAlgorithm::Ps256)),
            };
            jwk.usage.is_none_or(|usage| usage == "sig").then_some(SetKey { kid: jwk.kid, alg, key })
        };
        Some(Self(document.keys.into_iter().filter_map(usable).take(MOST_KEYS).collect()))
    }

    /// Returns the set as JSON, for publishing.
    #[cfg(feature = "login")]
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let jwk = |SetKey { kid, alg, key }: &SetKey| Jwk {
            kid: kid.clone(),
            usage: Some("sig".to_owned()),
            alg: Some(alg.unwrap_or(key.algorithm()).as_str().to_owned()),
            ..key.jwk()
        };
        // the default is never used: the set always serializes
        serde_json::to_vec(&KeySetDocument { keys: self.0.iter().map(jwk).collect::<Vec<_>>() }).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Option<&str>, &PublicKey)> {
        self.0.iter().map(|own| (own.kid.as_deref(), &own.key))
    }

    /// Returns whether a key that may have this id, and may be used with this algorithm, has signed.
    pub(super) fn verifies(&self, kid: Option<&str>, algorithm: JwsAlgorithm, bytes: &[u8], signature: &[u8]) -> bool {
        let fits = |own: &SetKey| {
            own.alg.is_none_or(|alg| alg == algorithm)
                && kid.is_none_or(|named| own.kid.as_deref().is_none_or(|own| own == named))
        };
        self.0.iter().filter(|own| fits(own)).any(|own| own.key.verifies(algorithm, bytes, signature))
    }

    /// Returns whether a key has this id.
    pub(crate) fn names(&self, kid: &str) -> bool {
        self.0.iter().any(|own| own.kid.as_deref() == Some(kid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EC: &str = r#"{"kty":"EC","crv":"P-256","kid":"a","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0""#;

    /// An RSA key whose modulus has `digits` base64url characters and starts with `begins`.
    fn rsa(begins: &str, digits: usize) -> String {
        format!(r#"{{"kty":"RSA","e":"AQAB","n":"{begins}{}"}}"#, "A".repeat(digits - 1))
    }

    #[test]
    fn a14_an_rsa_key_is_used_only_with_the_algorithm_that_its_set_names() {
        let key =
            |alg: &str| KeySet::parse(format!(r#"{{"keys":[{}]}}"#, rsa("x", 342).replacen('{', alg, 1)).as_bytes());
        for (alg, expected) in [
            ("{", Some(None)),
            (r#"{"alg":"RS256","#, Some(Some(JwsAlgorithm::Common(crate::jose::Algorithm::Rs256)))),
            (r#"{"alg":"PS256","#, Some(Some(JwsAlgorithm::Ps256))),
            (r#"{"alg":"ES384","#, None),
            (r#"{"alg":"RSA-OAEP","#, None),
        ] {
            assert_eq!(key(alg).unwrap().0.first().map(|own| own.alg), expected, "{alg}");
        }
    }

    #[test]
    fn usable_keys_are_kept_and_others_skipped() {
        let set = |keys: &str| KeySet::parse(format!(r#"{{"keys":[{keys}],"other":1}}"#).as_bytes());
        let one = set(&format!("{EC}}}")).unwrap();
        assert!(one.names("a") && !one.names("b") && one.iter().count() == 1);
        for other in [r#","use":"enc"}"#, r#","alg":"RS256"}"#, r#","alg":"none"}"#] {
            assert_eq!(set(&format!("{EC}{other}")).unwrap(), KeySet::default(), "{other}");
        }
        assert_eq!(set(&format!(r#"{{"kty":"oct","k":"AA"}},7,{EC},"use":"sig","alg":"ES256"}}"#)).unwrap(), one);
        assert_eq!(set(&vec![format!("{EC}}}"); 100].join(",")).unwrap().iter().count(), MOST_KEYS);
        for bad in [
            // for key agreement, not for signatures
            r#"{"kty":"OKP","crv":"X25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#.to_owned(),
            EC.replace("P-256", "secp256k1") + "}",
            EC.to_owned() + r#","d":"AA"}"#,
            rsa("A", 1024),
            // one byte more than 8192 bits; less than 2048 bits
            rsa("x", 1367),
            rsa("x", 340),
        ] {
            assert_eq!(set(&bad).unwrap(), KeySet::default(), "{bad}");
        }
        assert_eq!(set(&rsa("x", 1366)).unwrap().iter().count(), 1);
        for bad in ["", "[]", "{}", r#"{"keys":{}}"#] {
            assert!(KeySet::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
