//! Proofs of possession (DPoP, RFC 9449): a caller signs each request with a key of its own, so that a token that is bound
//! to the key is worth nothing to a thief.
//!
//! A proof is read first ([`Proofs::read`]: its signature, and what it says about the request) and spent then
//! ([`Proofs::spend`]: no proof is taken twice). Who knows which key it must be compares in between, so that strangers with
//! keys of their own never reach what is remembered.

#[cfg(test)]
mod cases;
mod memory;
mod nonce;
mod proof;
mod proofs;
mod seen;
mod url;

pub(crate) use self::{
    nonce::Nonces,
    proof::Proof,
    proofs::{DpopError, Proofs},
};
