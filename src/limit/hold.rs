//! Units that are held while a call is open.

use std::mem;

#[cfg(feature = "redis")]
use super::shared::SharedCall;
use super::{
    decision::{Ask, CallEnd, CallInMemory, Decision, OpenCall},
    limiter::Limiter,
};
use crate::tenant::Standing;

/// A call that is open: its estimate counts, and so does its slot. Returned by [`Limiter::hold`].
///
/// [`commit`](Self::commit) ends it and charges what was used. Dropping it charges the estimate.
#[must_use = "dropping a hold ends the call and charges its estimate"]
pub struct Hold {
    place: Place,
    estimate: u32,
    standing: Option<Standing>,
}

/// Where the call is open.
enum Place {
    /// It has ended, or nothing limits it.
    Nowhere,
    Memory(Limiter, CallInMemory),
    #[cfg(feature = "redis")]
    Shared(SharedCall),
}

impl Hold {
    /// Takes the call that a decision has opened.
    pub(super) fn of_decision(limiter: &Limiter, ask: Ask, decision: &mut Decision) -> Self {
        let call = decision.spend.0.as_mut().and_then(|charge| charge.call.take());
        let place = match call {
            None => Place::Nowhere,
            Some(OpenCall::Memory(call)) => Place::Memory(limiter.clone(), call),
            #[cfg(feature = "redis")]
            Some(OpenCall::Shared(call)) => Place::Shared(call),
        };
        Self { place, estimate: ask.estimate(), standing: decision.standing }
    }

    /// Ends the call, and charges these units, but at most what the hold allows.
    pub fn commit(mut self, actual: u32) {
        self.end(CallEnd::Commit(actual));
    }

    /// Returns the estimate that counts while the call is open.
    pub fn estimate(&self) -> u32 {
        self.estimate
    }

    /// Returns the standing of the key after the admission, or `None` if no enforced quota applies.
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    fn end(&mut self, end: CallEnd) {
        match mem::replace(&mut self.place, Place::Nowhere) {
            Place::Nowhere => {}
            Place::Memory(limiter, call) => limiter.end_call(&call, end),
            #[cfg(feature = "redis")]
            Place::Shared(call) => call.end(end),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end(CallEnd::Estimate);
    }
}

crate::util::fmt::debug_fields!(Hold { estimate, standing });
