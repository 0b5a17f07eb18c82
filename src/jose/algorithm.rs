//! Signature algorithms.

use std::str::FromStr;

use crate::util::fmt::named_enum;

named_enum! {
    /// A signature algorithm for tokens (RFC 7518, RFC 8037). Neither `none` nor symmetric algorithms
    /// exist here.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Algorithm {
        /// ECDSA with P-256 and SHA-256. The default.
        Es256 = "ES256",
        /// Ed25519.
        EdDsa = "EdDSA",
        /// RSA PKCS #1 v1.5 with SHA-256, which OpenID Connect requires every provider to support.
        Rs256 = "RS256",
    }

    /// Returns the name that is used in `alg`.
    pub fn as_str;
    /// All algorithms.
    pub const ALL;
}

impl Algorithm {
    /// The names of all algorithms that are accepted in `alg`. Ed25519 has two: its own (RFC 9864) and `EdDSA`.
    #[cfg_attr(not(feature = "login"), allow(dead_code, reason = "only documents and challenges list them"))]
    pub(crate) const ACCEPTED_NAMES: &'static [&'static str] = &["ES256", "EdDSA", "Ed25519", "RS256"];

    /// Returns the algorithm with this name. Names are case-sensitive.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.as_str() == name)
    }
}

crate::util::fmt::display!(Algorithm, |own| own.as_str());

/// The error for an unknown algorithm name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmError(());

crate::util::fmt::text_error!(AlgorithmError, "unknown algorithm: use ES256, EdDSA or RS256");

impl FromStr for Algorithm {
    type Err = AlgorithmError;

    fn from_str(name: &str) -> Result<Self, AlgorithmError> {
        Self::from_name(name).ok_or(AlgorithmError(()))
    }
}

/// The algorithm of a signature that is verified: one that this crate signs with, or one of two
/// more that other issuers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JwsAlgorithm {
    Common(Algorithm),
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// RSA PSS with SHA-256.
    Ps256,
}

impl JwsAlgorithm {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Common(algorithm) => algorithm.as_str(),
            Self::Es384 => "ES384",
            Self::Ps256 => "PS256",
        }
    }

    /// Returns the algorithm of a header or a key. `Ed25519` is the name that RFC 9864 gives to the only algorithm that
    /// `EdDSA` can mean here.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "ES384" => Some(Self::Es384),
            "PS256" => Some(Self::Ps256),
            "Ed25519" => Some(Self::Common(Algorithm::EdDsa)),
            _ => Algorithm::from_name(name).map(Self::Common),
        }
    }
}
