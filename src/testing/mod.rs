//! Helpers for tests (feature `test-util`): a [`ManualClock`], the conformance suite for stores
//! and, with the feature `tokens`, a `TestIssuer` of access tokens and the `DpopKey` of a client.

mod clock;
#[cfg(feature = "tokens")]
mod dpop;
#[cfg(feature = "tokens")]
mod issuer;
mod store;

/// The node side of leases without I/O, for simulations.
#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod lease {
    pub use crate::limit::shared::lease::{
        Admission, CallEnd, ClockReading, LeaseCall, LeaseReply, LeaseReturn, LeaseSlots, LeaseStep, LeaseWish,
    };
}
pub use self::{
    clock::ManualClock,
    store::{block_on, store_conformance},
};
#[cfg(feature = "tokens")]
pub use self::{
    dpop::{DpopKey, DpopProof},
    issuer::{TestClaims, TestIssuer},
};
