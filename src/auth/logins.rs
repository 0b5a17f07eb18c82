//! Logins in the store: how one is found, and how it moves.

use std::sync::Arc;

use super::problem::Problem;
use crate::{
    gate::MaybeReady,
    login::{Call, Denied, Login, View, step},
    store::{
        AnyStore, StoreError, StoreErrorKind, WriteOutcome,
        table::{Change, Table},
    },
    util::{
        clock::{Clock, UnixTime},
        secret::Digest,
    },
};

/// All logins, each under the digest of its secret.
#[derive(Clone, Debug)]
pub(super) struct Logins(Table<Login>);

/// How a call ended, and the login as it is now.
pub(super) struct Moved {
    pub(super) answer: Result<View, Denied>,
    pub(super) login: Login,
    /// Whether the call has changed anything.
    pub(super) changed: bool,
}

impl Logins {
    pub(super) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "logins", clock))
    }

    pub(super) fn now(&self) -> UnixTime {
        self.0.now()
    }

    pub(super) async fn find(&self, digest: &Digest) -> Result<Option<Login>, StoreError> {
        let found = match self.0.get(None, digest.as_bytes()) {
            MaybeReady::Ready(found) => found?,
            MaybeReady::Pending(future) => future.await?,
        };
        Ok(found.map(|stored| stored.value))
    }

    pub(super) async fn begin(&self, digest: &Digest, login: &Login) -> Result<(), StoreError> {
        match self.0.insert(None, digest.as_bytes(), login, login.forgotten_at()).await? {
            WriteOutcome::Done(_) => Ok(()),
            // of a secret that was made just now there is no login
            WriteOutcome::Lost(_) => Err(StoreErrorKind::Busy.into()),
        }
    }

    /// Takes a login one step on, as the table says: by one compare-and-swap, tried again where another call came first.
    /// `None` if there is no such login any more.
    pub(super) async fn step(&self, digest: &Digest, call: &Call<'_>) -> Result<Option<Moved>, StoreError> {
        self.0
            .update(None, digest.as_bytes(), |login, now| {
                let Some(login) = login else { return Change::Keep(None) };
                let taken = step(login, call, now);
                match taken.next {
                    None => Change::Keep(Some(Moved { answer: taken.answer, login: login.clone(), changed: false })),
                    Some(next) => {
                        let kept_until = next.forgotten_at();
                        Change::Put(
                            next.clone(),
                            kept_until,
                            Some(Moved { answer: taken.answer, login: next, changed: true }),
                        )
                    }
                }
            })
            .await
    }
}

impl Moved {
    /// What the caller is told.
    pub(super) fn told(&self, now: UnixTime) -> Result<View, Problem> {
        self.answer.map_err(|denied| Problem::denied(denied).of(self.login.view(now)))
    }
}
