use std::{fmt, sync::Arc};

use http::{Extensions, HeaderValue};

use super::{UserId, record::Record};
use crate::{
    tenant::Tenant,
    util::{clock::UnixTime, handle::Handle, secret::Digest},
};

/// A signed-in session: who the caller is, and how and when they proved it.
///
/// It is a record made at sign-in that nothing changes: there is nothing to
/// save, so no late request can undo a sign-out. What an app remembers about a
/// visitor belongs in a table of its own, under [`handle`](Self::handle) or
/// [`user`](Self::user). It holds no secret.
///
/// With the feature `axum` it is an extractor: `Session` answers 401 where there
/// is none, `Option<Session>` does not, and both answer 500 where no
/// [`SessionLayer`](super::SessionLayer) is before the route.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    digest: Digest,
    record: Record,
}

impl Session {
    pub(super) fn new(digest: Digest, record: Record) -> Self {
        Self(Arc::new(Inner { digest, record }))
    }

    /// The session of a request that came through a
    /// [`SessionLayer`](super::SessionLayer), if it has one: in plain hyper from
    /// `request.extensions()`, in tonic too.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        match extensions.get()? {
            Slot::Taken(session) => Some(session),
            Slot::Empty(_) => None,
        }
    }

    /// Who.
    pub fn user(&self) -> &UserId {
        &self.0.record.user
    }

    /// Of which tenant.
    pub fn tenant(&self) -> &Tenant {
        &self.0.record.tenant
    }

    /// When the user proved who they are.
    pub fn auth_time(&self) -> UnixTime {
        self.0.record.auth_time
    }

    /// How strong the proof was, if that was said.
    pub fn acr(&self) -> Option<&str> {
        self.0.record.acr.as_deref()
    }

    /// What was proved.
    pub fn amr(&self) -> impl Iterator<Item = &str> {
        self.0.record.amr.iter().map(AsRef::as_ref)
    }

    /// When it began.
    pub fn created(&self) -> UnixTime {
        self.0.record.created
    }

    /// When it ends, however much it is used.
    pub fn expires(&self) -> UnixTime {
        self.0.record.expires
    }

    /// When it was last used, to the minute.
    pub fn last_use(&self) -> UnixTime {
        self.0.record.last_use
    }

    /// Its name in logs, and on a page that lists a user's sessions.
    pub fn handle(&self) -> Handle {
        Handle::of(&self.0.digest)
    }

    pub(crate) fn digest(&self) -> Digest {
        self.0.digest
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("handle", &self.handle())
            .field("tenant", self.tenant())
            .field("user", self.user())
            .finish_non_exhaustive()
    }
}

/// What a layer leaves in every request, so that one without a session is told
/// from one without a layer.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    Taken(Session),
    /// Nobody, and what a 401 has to ask for.
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "only the extractor answers by itself"))]
    Empty(HeaderValue),
}
