//! Proofs of possession (DPoP, RFC 9449): a caller signs each request with a key of its own, so that a token that is bound
//! to the key is worth nothing to a thief.
//!
//! A proof is read first ([`DpopVerifier::read`]: its signature, and what it says about the request) and spent then
//! ([`DpopVerifier::spend`]: no proof is taken twice). An API compares the key with that of the token in between, so that
//! strangers with keys of their own never reach what its process remembers. The login service spends at once
//! ([`DpopVerifier::check`]): its store forgets by itself, and its tenants have budgets.

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

/// The header that brings the value for the next proof.
pub(crate) const NONCE: http::HeaderName = http::HeaderName::from_static("dpop-nonce");
