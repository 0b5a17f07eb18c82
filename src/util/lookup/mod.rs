//! Lookups whose answers are kept for a while: of plans, and of API keys.
//!
//! Anybody can cause a lookup, so each part has a bound. Only one lookup of a key runs at a time, only some run at once, each has
//! a deadline, and only some answers are kept.

mod answers;
mod cached;
mod deadline;
mod pace;
mod running;

pub(crate) use self::{
    answers::{Answer, Found},
    cached::{CachedLookup, KeyState, LookupSettings},
    deadline::in_time,
    pace::Pace,
    running::Lookup,
};
