//! The node side of leases: which units it holds, until when it may use them, and what it asks the server for. Without I/O,
//! so that a simulation drives the same code as the limiter.
#![cfg_attr(
    not(feature = "test-util"),
    allow(unreachable_pub, dead_code, unused_imports, reason = "simulations reach it through `testing`")
)]

#[cfg(test)]
mod proof;
mod slot;
mod slots;

pub use self::{
    slot::{Admission, CallEnd, ClockReading, LeaseCall, LeaseReply, LeaseRequest, LeaseStep},
    slots::{LeaseReturn, LeaseSlots},
};
