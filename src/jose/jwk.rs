//! Public keys as JSON Web Keys.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde::{Deserialize, Serialize};

use super::algorithm::{
    Algorithm::{EdDsa, Es256, Rs256},
    JwsAlgorithm::{self, Common, Es384, Ps256},
};
use crate::util::secret::SecretDigest;

const COORDINATE: usize = 32;
const LONG_COORDINATE: usize = 48;
const LONGEST_MODULUS: usize = 1024;
/// 4096 bits. Keys of 8192 bits take four times as long to verify with.
const LONGEST_MODULUS_OF_STRANGERS: usize = 512;
/// The usual exponent takes three bytes.
const LONGEST_EXPONENT: usize = 4;

/// The public half of a signing key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// A point of P-256.
    P256 {
        x: [u8; COORDINATE],
        y: [u8; COORDINATE],
    },
    /// A point of P-384.
    P384 {
        x: [u8; LONG_COORDINATE],
        y: [u8; LONG_COORDINATE],
    },
    Ed25519([u8; 32]),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
}

/// The members of a JSON Web Key (RFC 7517) that are read and written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Jwk {
    pub(crate) kty: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) crv: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) e: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kid: Option<String>,
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alg: Option<String>,
    /// The private half, which must never be published.
    #[serde(default, skip_serializing)]
    pub(crate) d: Option<serde_json::Value>,
}

impl PublicKey {
    /// Parses a key. Returns `None` for unsupported types, curves and sizes, and for keys that
    /// include their private half.
    pub(crate) fn from_jwk(jwk: &Jwk) -> Option<Self> {
        if jwk.d.is_some() {
            return None;
        }
        let bytes = |member: &Option<String>| BASE64URL.decode(member.as_deref()?).ok();
        match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("EC", Some("P-256")) => {
                Some(Self::P256 { x: bytes(&jwk.x)?.try_into().ok()?, y: bytes(&jwk.y)?.try_into().ok()? })
            }
            ("EC", Some("P-384")) => {
                Some(Self::P384 { x: bytes(&jwk.x)?.try_into().ok()?, y: bytes(&jwk.y)?.try_into().ok()? })
            }
            ("OKP", Some("Ed25519")) => Some(Self::Ed25519(bytes(&jwk.x)?.try_into().ok()?)),
            ("RSA", _) => {
                let (n, e) = (bytes(&jwk.n)?, bytes(&jwk.e)?);
                let usable = |number: &[u8], most: usize| {
                    number.first().is_some_and(|first| *first != 0) && number.len() <= most
                };
                (usable(&n, LONGEST_MODULUS) && n.len() >= 256 && usable(&e, LONGEST_EXPONENT))
                    .then_some(Self::Rsa { n, e })
            }
            _ => None,
        }
    }

    /// Returns the key as a JSON Web Key.
    pub(crate) fn jwk(&self) -> Jwk {
        let text = |bytes: &[u8]| Some(BASE64URL.encode(bytes));
        let point = |curve: &str, x: &[u8], y: &[u8]| Jwk {
            kty: "EC".into(),
            crv: Some(curve.into()),
            x: text(x),
            y: text(y),
            ..Jwk::default()
        };
        match self {
            Self::P256 { x, y } => point("P-256", x, y),
            Self::P384 { x, y } => point("P-384", x, y),
            Self::Ed25519(x) => Jwk { kty: "OKP".into(), crv: Some("Ed25519".into()), x: text(x), ..Jwk::default() },
            Self::Rsa { n, e } => Jwk { kty: "RSA".into(), n: text(n), e: text(e), ..Jwk::default() },
        }
    }

    /// Returns the algorithm that this key is used with. RSA keys of other issuers may also be used
    /// with PS256.
    pub(crate) fn algorithm(&self) -> JwsAlgorithm {
        match self {
            Self::P256 { .. } => Common(Es256),
            Self::P384 { .. } => Es384,
            Self::Ed25519(_) => Common(EdDsa),
            Self::Rsa { .. } => Common(Rs256),
        }
    }

    /// Returns whether keys of this type can be used with an algorithm.
    pub(super) fn suits(&self, algorithm: JwsAlgorithm) -> bool {
        algorithm == self.algorithm() || (algorithm == Ps256 && matches!(self, Self::Rsa { .. }))
    }

    /// Returns whether the key is accepted from callers: it has one of the common algorithms and is
    /// small enough, because its size determines the cost of each check.
    pub(crate) fn is_moderate(&self) -> bool {
        match self {
            Self::P256 { .. } | Self::Ed25519(_) => true,
            Self::P384 { .. } => false,
            Self::Rsa { n, .. } => n.len() <= LONGEST_MODULUS_OF_STRANGERS,
        }
    }

    /// Returns the thumbprint (RFC 7638): the SHA-256 of the required members in their canonical
    /// order.
    pub(crate) fn thumbprint(&self) -> String {
        let Jwk { crv, x, y, n, e, .. } = self.jwk();
        let own = |member: Option<String>| member.unwrap_or_default();
        let canonical = match self {
            Self::P256 { .. } | Self::P384 { .. } => {
                format!(r#"{{"crv":"{}","kty":"EC","x":"{}","y":"{}"}}"#, own(crv), own(x), own(y))
            }
            Self::Ed25519(_) => format!(r#"{{"crv":"{}","kty":"OKP","x":"{}"}}"#, own(crv), own(x)),
            Self::Rsa { .. } => format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, own(e), own(n)),
        };
        BASE64URL.encode(SecretDigest::of_secret(canonical).as_bytes())
    }

    /// Verifies a signature of these bytes. An algorithm for other types of keys has no valid
    /// signature.
    pub(crate) fn verifies(&self, algorithm: JwsAlgorithm, bytes: &[u8], signature: &[u8]) -> bool {
        let point = |x: &[u8], y: &[u8]| [&[4], x, y].concat();
        match (self, algorithm) {
            (Self::P256 { x, y }, Common(Es256)) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point(x, y)).verify(bytes, signature).is_ok()
            }
            (Self::P384 { x, y }, Es384) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point(x, y)).verify(bytes, signature).is_ok()
            }
            (Self::Ed25519(key), Common(EdDsa)) => {
                UnparsedPublicKey::new(&ED25519, key).verify(bytes, signature).is_ok()
            }
            (Self::Rsa { n, e }, Common(Rs256)) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, bytes, signature).is_ok()
            }
            (Self::Rsa { n, e }, Ps256) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PSS_2048_8192_SHA256, bytes, signature).is_ok()
            }
            _ => false,
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublicKey").field(&self.algorithm().as_str()).field(&self.thumbprint()).finish()
    }
}
