//! Signed documents: JSON Web Keys (RFC 7517, 7638, 8037) and compact JSON Web Signatures (RFC 7515).

mod algorithm;
pub(crate) mod date;
#[cfg(feature = "login")]
#[cfg(test)]
mod differential;
pub(crate) mod jwk;
pub(crate) mod jws;
mod set;
#[cfg(feature = "login")]
mod signer;
#[cfg(feature = "login")]
#[cfg(test)]
mod vectors;

pub use self::algorithm::{Algorithm, AlgorithmError};
#[cfg(feature = "login")]
pub(crate) use self::signer::Signer;
pub(crate) use self::{
    algorithm::JwsAlgorithm,
    set::{KeySet, Unavailable},
};
