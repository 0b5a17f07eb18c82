//! What happens to sessions, in the event log.

use super::Session;
use crate::{
    event::{Event, EventKind, EventLog},
    tenant::Tenant,
    util::{
        clock::{Clock, UnixTime},
        handle::Handle,
        secret::Digest,
    },
};

#[derive(Clone, Debug, Default)]
pub(super) struct Journal(pub(super) Option<EventLog>);

impl Journal {
    pub(super) fn record(&self, kind: EventKind, session: &Session, clock: &dyn Clock) {
        if let Some(log) = &self.0 {
            log.record(event(kind, session.tenant(), &session.digest(), clock));
        }
    }

    /// Anybody who has an old cookie can cause these, so a flood is counted.
    pub(super) fn used_after_end(&self, tenant: &Tenant, digest: &Digest, clock: &dyn Clock) {
        if let Some(log) = &self.0 {
            log.tally(&event(EventKind::SessionUseAfterExpire, tenant, digest, clock));
        }
    }
}

fn event(kind: EventKind, tenant: &Tenant, digest: &Digest, clock: &dyn Clock) -> Event {
    let now: UnixTime = clock.unix(clock.now());
    Event::new(kind, now).tenant(tenant.clone()).session(Handle::of(digest))
}
