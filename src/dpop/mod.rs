//! Proof of possession (DPoP, RFC 9449): the caller signs each request with its own key, so a token
//! bound to that key is useless to a thief.
//!
//! A proof is checked in three steps, cheapest first: [`DpopVerifier::read_unverified_proof`] compares it with the
//! request, [`proof::UnverifiedProof::verify`] checks its signature, and [`DpopVerifier::spend`] marks it
//! as used. An API compares the proof's key with that of the token after the first step, so that
//! callers with arbitrary keys cause no work and can't fill the memory of used proofs. The request
//! is charged before the last step.

#[cfg(test)]
mod cases;
mod nonce;
mod proof;
mod seen;
mod url;
mod verifier;

#[cfg(feature = "login")]
pub(crate) use self::proof::UnverifiedProof;
pub(crate) use self::{
    nonce::Nonces,
    proof::{DpopError, DpopProof, headers},
    verifier::DpopVerifier,
};

/// The header with the nonce for the next proof.
pub(crate) const NONCE: http::HeaderName = http::HeaderName::from_static("dpop-nonce");
