//! Calls that are open on the server.

use crate::limit::decision::CallEnd;

/// An open call on the server.
#[derive(Debug)]
pub(in crate::limit) struct SharedCall;

impl SharedCall {
    /// Ends the call in the background.
    #[expect(clippy::unused_self, reason = "nothing is open yet")]
    pub(in crate::limit) fn end(self, _end: CallEnd) {}
}
