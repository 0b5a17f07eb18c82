//! Calls that are open on the server.

use crate::limit::decision::{CallEnd, EndCall};

/// An open call on the server.
#[derive(Debug)]
pub(super) struct SharedCall;

impl EndCall for SharedCall {
    fn end(self: Box<Self>, _end: CallEnd) {}
}
