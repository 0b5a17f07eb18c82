//! What tests need: a [`ManualClock`], the suite that a store of your own must pass, and with the feature `tokens` a
//! `TestIssuer` of access tokens (feature `test-util`).

mod clock;
#[cfg(feature = "tokens")]
mod issuer;
mod store;

#[cfg(feature = "tokens")]
pub use self::issuer::{TestClaims, TestIssuer};
pub use self::{
    clock::ManualClock,
    store::{block_on, store_conformance},
};
