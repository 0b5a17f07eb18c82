//! Signed documents: JSON Web Keys (RFC 7517, 7638, 8037) and compact JSON Web Signatures (RFC 7515).

mod algorithm;
pub(crate) mod date;
#[cfg(feature = "tokens")]
#[cfg(test)]
mod differential;
pub(crate) mod jwk;
pub(crate) mod jws;
mod set;
#[cfg(any(feature = "tokens", feature = "sso"))]
mod signer;
#[cfg(feature = "tokens")]
#[cfg(test)]
mod vectors;

pub use self::algorithm::{Algorithm, AlgorithmError};
#[cfg(any(feature = "tokens", feature = "sso"))]
pub(crate) use self::signer::Signer;
pub(crate) use self::{algorithm::JwsAlgorithm, set::KeySet};
