//! Private signing keys.

use aws_lc_rs::{
    encoding::AsDer,
    rand::SystemRandom,
    rsa::KeySize,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair},
};
use zeroize::Zeroizing;

use super::{algorithm::Algorithm, jwk::PublicKey};

/// A private key in memory.
pub(crate) struct Signer {
    pub(crate) kid: String,
    pub(crate) public: PublicKey,
    private: Private,
}

enum Private {
    P256(Box<EcdsaKeyPair>),
    Ed25519(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl Signer {
    /// Generates a key in PKCS #8 form. RSA takes about a second, so don't call it on an async
    /// thread.
    #[cfg_attr(not(feature = "login"), allow(dead_code, reason = "only issuers create keys"))]
    pub(crate) fn generate_signing_key(algorithm: Algorithm) -> Option<Zeroizing<Vec<u8>>> {
        let bytes = match algorithm {
            Algorithm::Es256 => EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .ok()?
                .as_ref()
                .to_vec(),
            Algorithm::EdDsa => Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).ok()?.as_ref().to_vec(),
            Algorithm::Rs256 => RsaKeyPair::generate(KeySize::Rsa2048).ok()?.as_der().ok()?.as_ref().to_vec(),
        };
        Some(Zeroizing::new(bytes))
    }

    /// Parses a key in PKCS #8 form.
    pub(crate) fn parse_pkcs8(algorithm: Algorithm, pkcs8: &[u8]) -> Option<Self> {
        let (public, private) = match algorithm {
            Algorithm::Es256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).ok()?;
                // an uncompressed point
                let point = pair.public_key().as_ref();
                let (x, y) = point.strip_prefix(&[4])?.split_at_checked(32)?;
                let public = PublicKey::P256 { x: x.try_into().ok()?, y: y.try_into().ok()? };
                (public, Private::P256(Box::new(pair)))
            }
            Algorithm::EdDsa => {
                let pair = Ed25519KeyPair::from_pkcs8(pkcs8).ok()?;
                (PublicKey::Ed25519(pair.public_key().as_ref().try_into().ok()?), Private::Ed25519(pair))
            }
            Algorithm::Rs256 => {
                let pair = RsaKeyPair::from_pkcs8(pkcs8).ok()?;
                let key = pair.public_key();
                let number = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect();
                let public = PublicKey::Rsa {
                    n: number(key.modulus().big_endian_without_leading_zero()),
                    e: number(key.exponent().big_endian_without_leading_zero()),
                };
                (public, Private::Rsa(Box::new(pair)))
            }
        };
        Some(Self { kid: public.thumbprint(), public, private })
    }

    /// Parses a key in PKCS #8 form of any algorithm.
    #[cfg(all(feature = "login", feature = "external-providers"))]
    pub(crate) fn read_any(pkcs8: &[u8]) -> Option<Self> {
        Algorithm::ALL.iter().find_map(|algorithm| Self::parse_pkcs8(*algorithm, pkcs8))
    }

    /// Uses another key id than the thumbprint.
    #[cfg(all(feature = "login", feature = "external-providers"))]
    pub(crate) fn named(self, kid: &str) -> Self {
        Self { kid: kid.to_owned(), ..self }
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.private {
            Private::P256(pair) => Some(pair.sign(&random, bytes).ok()?.as_ref().to_vec()),
            Private::Ed25519(pair) => Some(pair.sign(bytes).as_ref().to_vec()),
            Private::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

crate::util::fmt::debug_fields!(Signer { kid });
