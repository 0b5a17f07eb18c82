//! [`Algorithm`]: how tokens are signed.

use std::{fmt, str::FromStr};

/// A signature algorithm of JSON Web Algorithms (RFC 7518, RFC 8037). There is no `none`, and nothing symmetric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256: the default.
    Es256,
    /// Ed25519.
    EdDsa,
    /// RSA PKCS #1 v1.5 with SHA-256, which OpenID Connect wants every provider to have.
    Rs256,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: &'static [Self] = &[Self::Es256, Self::EdDsa, Self::Rs256];

    /// The name in `alg`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
            Self::Rs256 => "RS256",
        }
    }

    /// The algorithm of this name, written exactly so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.as_str() == name)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What [`from_name`](Algorithm::from_name) does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmError(());

impl fmt::Display for AlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an algorithm is ES256, EdDSA or RS256")
    }
}

impl std::error::Error for AlgorithmError {}

impl FromStr for Algorithm {
    type Err = AlgorithmError;

    fn from_str(name: &str) -> Result<Self, AlgorithmError> {
        Self::from_name(name).ok_or(AlgorithmError(()))
    }
}
