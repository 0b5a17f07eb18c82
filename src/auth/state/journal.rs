//! What happens to logins, in the event log: never a secret, never what somebody typed.

use std::sync::Arc;

use crate::{
    auth::state::evidence::Evidence,
    event::{Event, EventKind, EventLog},
    login::{Keyed, Login, LoginId},
    policy::Method,
    tenant::Tenant,
    user::Identifier,
    util::{clock::Clock, handle::Handle, secret::Digest},
};

#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pub(crate) log: Option<EventLog>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What an event is about.
pub(crate) struct About<'a> {
    tenant: &'a Tenant,
    login: &'a LoginId,
    identifier: &'a Identifier,
}

impl<'a> From<&'a Login> for About<'a> {
    fn from(login: &'a Login) -> Self {
        Self { tenant: &login.tenant, login: &login.id, identifier: &login.identifier }
    }
}

impl<'a> From<&'a Evidence> for About<'a> {
    fn from(evidence: &'a Evidence) -> Self {
        Self { tenant: &evidence.tenant, login: &evidence.login, identifier: &evidence.identifier }
    }
}

impl Journal {
    /// What few can cause.
    pub(crate) fn record<'a>(
        &self,
        kind: EventKind,
        about: impl Into<About<'a>>,
        method: Option<Method>,
        keyed: &Keyed,
    ) {
        if let Some(log) = &self.log {
            log.record(self.about(kind, about, method, keyed));
        }
    }

    /// What anybody can cause as often as they like, so that a flood is counted.
    pub(crate) fn tally_login<'a>(
        &self,
        kind: EventKind,
        about: impl Into<About<'a>>,
        method: Option<Method>,
        keyed: &Keyed,
    ) {
        self.tally_event(&self.about(kind, about, method, keyed));
    }

    pub(crate) fn tally_event(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.tally(event);
        }
    }

    /// The same where there is no login.
    pub(crate) fn tally(&self, kind: EventKind, tenant: Option<&Tenant>, method: Option<&'static str>) {
        if let Some(log) = &self.log {
            let mut event = Event::new(kind, self.clock.unix(self.clock.now()));
            event.tenant = tenant.cloned();
            event.method = method;
            log.tally(&event);
        }
    }

    /// An event about a login, not recorded yet.
    pub(crate) fn about<'a>(
        &self,
        kind: EventKind,
        about: impl Into<About<'a>>,
        method: Option<Method>,
        keyed: &Keyed,
    ) -> Event {
        let named = |purpose, bytes: &[u8]| Handle::of(&keyed.hash(purpose, [bytes]));
        let About { tenant, login, identifier } = about.into();
        let mut event = Event::new(kind, self.clock.unix(self.clock.now()))
            .tenant(tenant.clone())
            .session(named("logged login", login.to_string().as_bytes()))
            .subject(subject(tenant, identifier.as_str(), keyed));
        event.method = method.map(Method::as_str);
        event
    }
}

/// Whom an event is about: one tenant's ada is not another's.
fn subject(tenant: &Tenant, identifier: &str, keyed: &Keyed) -> Handle {
    let digest: Digest = keyed.hash("logged subject", [tenant.as_str().as_bytes(), identifier.as_bytes()]);
    Handle::of(&digest)
}
