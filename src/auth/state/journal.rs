//! Login events. They contain keyed hashes: never a secret, never what somebody typed.

use std::sync::Arc;

use crate::{
    event::{Event, EventKind, EventLog},
    login::{Keyed, Login, LoginId},
    policy::Method,
    session::{Authentication, UserId},
    tenant::{LimitKey, Tenant},
    user::Identifier,
    util::{clock::Clock, public_id::PublicId},
};

/// Writes login events to the event log, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct LoginJournal {
    pub(crate) log: Option<EventLog>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The login or the signed-in user that an event is about.
pub(crate) struct EventSource<'a> {
    tenant: &'a Tenant,
    login: Option<&'a LoginId>,
    /// A user id or, if no user is known, the name that was given.
    subject: Option<(&'static str, &'a str)>,
}

impl<'a> From<&'a Login> for EventSource<'a> {
    fn from(login: &'a Login) -> Self {
        let source = Self { tenant: &login.tenant, login: Some(&login.id), subject: None };
        match login.subject.user() {
            Some(user) => Self { subject: Some(("logged user", user.id.as_str())), ..source },
            None => source.or_named(login.identifier.as_ref()),
        }
    }
}

impl<'a> EventSource<'a> {
    /// Returns the user of a tenant, without a login.
    pub(crate) fn of_user(tenant: &'a Tenant, user: &'a UserId) -> Self {
        Self { tenant, login: None, subject: Some(("logged user", user.as_str())) }
    }

    /// Uses the name that was given, if nothing else is known.
    pub(crate) fn or_named(self, name: Option<&'a Identifier>) -> Self {
        let named = name.map(|name| ("logged subject", name.as_str()));
        Self { subject: self.subject.or(named), ..self }
    }
}

impl<'a> From<&'a Authentication> for EventSource<'a> {
    fn from(authentication: &'a Authentication) -> Self {
        Self::of_user(&authentication.tenant, &authentication.user)
    }
}

impl LoginJournal {
    /// Records an event that few callers can cause.
    pub(crate) fn record<'a>(
        &self,
        kind: EventKind,
        source: impl Into<EventSource<'a>>,
        method: Option<Method>,
        keyed: &Keyed,
    ) {
        if self.log.is_some() {
            self.record_event(self.event(kind, source, method, keyed));
        }
    }

    pub(crate) fn record_event(&self, event: Event) {
        if let Some(log) = &self.log {
            log.record(event);
        }
    }

    /// Counts an event that any caller, or any signed-in user, can cause at will, with the method and the reason if they are
    /// known.
    pub(crate) fn tally_login<'a>(
        &self,
        kind: EventKind,
        source: impl Into<EventSource<'a>>,
        (method, reason): (Option<Method>, Option<&'static str>),
        keyed: &Keyed,
    ) {
        if self.log.is_some() {
            self.tally_event(&Event { reason, ..self.event(kind, source, method, keyed) });
        }
    }

    pub(crate) fn tally_event(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.tally(event);
        }
    }

    /// Counts an event without a login.
    pub(crate) fn tally(&self, kind: EventKind, tenant: Option<&Tenant>, method: Option<&'static str>) {
        if let Some(log) = &self.log {
            let mut event = Event::new(kind, self.clock.unix(self.clock.now()));
            event.tenant = tenant.cloned().map(LimitKey::from);
            event.method = method;
            log.tally(&event);
        }
    }

    /// Counts a store that failed, or accounts that did.
    pub(crate) fn store_failed(&self) {
        self.tally(EventKind::StoreFailed, None, None);
    }

    /// Creates an event without recording it.
    pub(crate) fn event<'a>(
        &self,
        kind: EventKind,
        source: impl Into<EventSource<'a>>,
        method: Option<Method>,
        keyed: &Keyed,
    ) -> Event {
        let EventSource { tenant, login, subject } = source.into();
        let mut event = Event::new(kind, self.clock.unix(self.clock.now())).tenant(tenant.clone().into());
        if let Some(login) = login {
            event = event.session(PublicId::of_digest(&keyed.hash("logged login", [login.to_string().as_bytes()])));
        }
        if let Some((purpose, subject)) = subject {
            // one tenant's ada is not another's
            let digest = keyed.hash(purpose, [tenant.as_str().as_bytes(), subject.as_bytes()]);
            event = event.subject(PublicId::of_digest(&digest));
        }
        event.method = method.map(Method::as_str);
        event
    }
}
