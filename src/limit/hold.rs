//! Units that are held while a call is open.

use super::decision::{CallEnd, EndCall};
use crate::tenant::Standing;

/// An open call, whose estimate and slot count against the quotas. Returned by [`Limiter::hold`](super::Limiter::hold).
///
/// [`commit`](Self::commit) ends it and charges what was used. Dropping it charges the estimate.
#[must_use = "dropping a hold ends the call and charges its estimate"]
pub struct Hold {
    /// `None` if it has ended, or if nothing limits it.
    open: Option<Box<dyn EndCall>>,
    estimate: u32,
    standing: Option<Standing>,
}

impl Hold {
    pub(super) fn new(open: Option<Box<dyn EndCall>>, estimate: u32, standing: Option<Standing>) -> Self {
        Self { open, estimate, standing }
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

    /// Returns whether something counts this call.
    pub(super) fn is_counted(&self) -> bool {
        self.open.is_some()
    }

    /// Refuses the call if an enforced quota counts it as open, because nothing tracks when it ends. Returns whether one does.
    pub(super) fn refuse_untracked(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.refuse_untracked())
    }

    fn end(&mut self, end: CallEnd) {
        if let Some(open) = self.open.take() {
            open.end(end);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end(CallEnd::Estimate);
    }
}

crate::util::fmt::debug_fields!(Hold { estimate, standing });
