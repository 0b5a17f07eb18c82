use std::{sync::Arc, task::Waker};

use super::shared::Shared;
use crate::tenant::Tenant;

/// One stream's place. It is given back when this is dropped.
pub(super) struct StreamSeat {
    shared: Arc<Shared>,
    number: u64,
}

impl StreamSeat {
    /// A place for a stream of this tenant, or of an operator, if one is free.
    pub(super) fn take(shared: &Arc<Shared>, tenant: Option<Tenant>, max: usize) -> Option<Self> {
        let number = shared.streams.enter(tenant, max)?;
        Some(Self { shared: Arc::clone(shared), number })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn wake_me(&self, waker: &Waker) {
        self.shared.streams.wait(self.number, waker);
    }
}

impl Drop for StreamSeat {
    fn drop(&mut self) {
        self.shared.streams.leave(self.number);
    }
}
