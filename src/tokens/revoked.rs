//! [`Revoked`]: what was taken back before its time.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    clock::{Clock, UnixTime},
    gate::MaybeReady,
    handle::Handle,
    secret::Digest,
    session::UserId,
    store::{
        AnyStore, BoxFuture, StoreError,
        table::{Change, Table},
    },
    tenant::Tenant,
};

/// What of an authorization is named to take it back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    /// All that came of one code.
    Family(&'a Handle),
    /// All that came of one signed-in session.
    Session(&'a Handle),
    /// All of one user.
    User(&'a Tenant, &'a UserId),
}

/// What was begun before then does not count any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mark {
    before: u64,
}

/// Marks, which live as long as anything that they are about.
#[derive(Clone, Debug)]
pub(super) struct Revoked(Table<Mark>);

impl Revoked {
    pub(super) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "revoked_tokens", clock))
    }

    /// Takes back what was begun up to now.
    pub(super) async fn mark(&self, name: Name<'_>, lives: Duration) -> Result<(), StoreError> {
        let (tenant, id) = name.key();
        let put = |mark: Option<&Mark>, now: UnixTime| {
            // a clock behind that of another node must not bring anything back
            let before = now.as_nanos().max(mark.map_or(0, |mark| mark.before));
            Change::Put(Mark { before }, now + lives, ())
        };
        self.0.update(tenant, &id, put).await
    }

    /// Whether something of this name that began then was taken back; at once where the store answers at once.
    pub(super) fn has(
        &self,
        name: Name<'_>,
        began: UnixTime,
    ) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        let (tenant, id) = name.key();
        // a family is ended whole, whenever its tokens were made
        let is_family = matches!(name, Name::Family(_));
        let told = move |mark: Option<Mark>| mark.is_some_and(|mark| is_family || began.as_nanos() <= mark.before);
        match self.0.get(tenant, &id) {
            MaybeReady::Ready(found) => MaybeReady::Ready(found.map(|found| told(found.map(|stored| stored.value)))),
            MaybeReady::Pending(future) => {
                MaybeReady::Pending(Box::pin(async move { Ok(told(future.await?.map(|stored| stored.value))) }))
            }
        }
    }
}

impl<'a> Name<'a> {
    fn key(self) -> (Option<&'a Tenant>, Vec<u8>) {
        match self {
            Self::Family(family) => (None, [b"f", &family.as_bytes()[..]].concat()),
            Self::Session(session) => (None, [b"s", &session.as_bytes()[..]].concat()),
            Self::User(tenant, user) => (Some(tenant), [b"u", &Digest::of(user.as_str()).as_bytes()[..]].concat()),
        }
    }
}
