use std::{fmt, sync::Arc};

use http::Extensions;

use super::{Sessions, lookup::Found, origin::Origins, presented::Presented, refusal::Refusal, session::Slot};
use crate::{
    gate::{Gate, MaybeReady, Pass},
    http::head::Head,
    reject::{Rejection, RejectionKind},
    store::BoxFuture,
    tenant::{Tenant, TenantSource},
};

/// Finds the session of a request; what a [`SessionLayer`](super::SessionLayer)
/// puts before a service.
#[derive(Clone)]
pub struct SessionGate {
    pub(super) sessions: Sessions,
    pub(super) required: bool,
    pub(super) refusal: Refusal,
    pub(super) origins: Origins,
    pub(super) tenant: Option<Arc<dyn TenantSource>>,
}

impl SessionGate {
    /// Which tenant's sessions count; `Err` if none do.
    fn tenant(&self, head: Head<'_>) -> Result<Option<Tenant>, NoTenant> {
        match &self.tenant {
            None => Ok(None),
            Some(source) => source.find(head).ok().flatten().map(Some).ok_or(NoTenant),
        }
    }

    /// What a request without a session gets.
    fn nobody(&self, head: Head<'_>) -> Result<SessionPass, Rejection> {
        if self.required {
            return Err(self.refusal.answer(head));
        }
        Ok(SessionPass(Some(Slot::Empty(self.refusal.challenge().clone()))))
    }
}

struct NoTenant;

impl Gate for SessionGate {
    type Pass = SessionPass;
    type Future = BoxFuture<'static, Result<SessionPass, Rejection>>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        let presented = Presented::read(head.headers(), self.sessions.name_of_cookie());
        if matches!(presented, Presented::Nothing) {
            return MaybeReady::Ready(self.nobody(head));
        }
        if !self.origins.allow(head, self.sessions.is_loopback()) {
            return MaybeReady::Ready(Err(Rejection::new(
                RejectionKind::Forbidden,
                "the request comes from another site",
            )));
        }
        let Ok(tenant) = self.tenant(head) else { return MaybeReady::Ready(self.nobody(head)) };
        match self.sessions.find(presented, tenant) {
            MaybeReady::Ready(found) => MaybeReady::Ready(settle(found, || self.nobody(head))),
            MaybeReady::Pending(future) => {
                // the request can't be looked at again when the answer is there
                let nobody = self.nobody(head);
                MaybeReady::Pending(Box::pin(async move { settle(future.await, || nobody) }))
            }
        }
    }
}

fn settle(found: Found, nobody: impl FnOnce() -> Result<SessionPass, Rejection>) -> Result<SessionPass, Rejection> {
    match found {
        Ok(Some(session)) => Ok(SessionPass(Some(Slot::Taken(session)))),
        Ok(None) => nobody(),
        Err(error) => {
            crate::util::trace::warning!("sessions can't be read: {error}");
            Err(Rejection::new(RejectionKind::Unavailable, "sessions can't be read right now"))
        }
    }
}

impl fmt::Debug for SessionGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionGate")
            .field("sessions", &self.sessions)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

/// What a request that may come through carries: its session, if it has one.
#[derive(Debug)]
pub struct SessionPass(Option<Slot>);

impl Pass for SessionPass {
    fn admit(&mut self, extensions: &mut Extensions) {
        if let Some(slot) = self.0.take() {
            extensions.insert(slot);
        }
    }
}
