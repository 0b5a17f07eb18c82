//! What tests need: a [`ManualClock`], and the suite that a store of your own
//! must pass (feature `test-util`); the key of a client, `DpopKey` (feature
//! `tokens` too).

mod clock;
#[cfg(feature = "tokens")]
mod dpop;
mod store;

#[cfg(feature = "tokens")]
pub use self::dpop::{DpopKey, DpopProof};
pub use self::{
    clock::ManualClock,
    store::{block_on, store_conformance},
};
