//! Proof of possession (DPoP, RFC 9449): the caller signs each request with its own key, so a token
//! bound to that key is useless to a thief.
//!
//! A proof is first read ([`DpopVerifier::read`] checks the signature and whether the proof matches
//! the request) and then marked as used ([`DpopVerifier::spend`]). An API compares the proof's key
//! with that of the token in between, so that callers with arbitrary keys can't fill the memory of
//! used proofs. The login service does both at once ([`DpopVerifier::check`]), because its store
//! expires entries and its tenants have budgets.

#[cfg(test)]
mod cases;
mod nonce;
mod proof;
mod recent;
mod seen;
mod url;
mod verifier;

pub(crate) use self::{
    nonce::Nonces,
    proof::{DpopError, headers},
    verifier::DpopVerifier,
};

/// The header with the nonce for the next proof.
pub(crate) const NONCE: http::HeaderName = http::HeaderName::from_static("dpop-nonce");
