//! What tests need: a [`ManualClock`], and the suite that a store of your own
//! must pass (feature `test-util`).

mod clock;
mod store;

pub use self::{
    clock::ManualClock,
    store::{block_on, store_conformance},
};
