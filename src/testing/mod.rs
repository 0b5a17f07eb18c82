//! Helpers for tests (feature `test-util`): a [`ManualClock`], the conformance suite for stores
//! and, with the feature `tokens`, a `TestIssuer` of access tokens and the `DpopKey` of a client.

mod clock;
#[cfg(feature = "tokens")]
mod dpop;
#[cfg(feature = "tokens")]
mod issuer;
mod store;

pub use self::{
    clock::ManualClock,
    store::{block_on, store_conformance},
};
#[cfg(feature = "tokens")]
pub use self::{
    dpop::{DpopKey, DpopProof},
    issuer::{TestClaims, TestIssuer},
};
