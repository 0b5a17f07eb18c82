//! Logins in the store.

use std::sync::Arc;

use crate::{
    auth::http::problem::Problem,
    login::{Login, LoginCall, LoginError, LoginView, Transition, transition},
    store::{
        AnyStore, StoreError, StoreErrorKind, WriteOutcome,
        table::{Change, Stored, Table},
    },
    util::{
        clock::{Clock, UnixTime},
        secret::Digest,
    },
};

/// All logins, each under the digest of its secret.
#[derive(Clone, Debug)]
pub(crate) struct Logins(Table<Login>);

/// The result of a call, and the login after it.
pub(crate) struct LoginUpdate {
    pub(crate) answer: Result<LoginView, LoginError>,
    pub(crate) stored: Stored<Login>,
    /// Whether the call changed the login.
    pub(crate) changed: bool,
}

impl Logins {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "logins", clock))
    }

    pub(crate) fn now(&self) -> UnixTime {
        self.0.now()
    }

    pub(crate) async fn find(&self, digest: &Digest) -> Result<Option<Stored<Login>>, StoreError> {
        self.0.get(None, digest.as_bytes()).wait().await
    }

    pub(crate) async fn begin(&self, digest: &Digest, login: &Login) -> Result<(), StoreError> {
        match self.0.insert(None, digest.as_bytes(), login, login.forgotten_at()).await? {
            WriteOutcome::Done(_) => Ok(()),
            // the secret is new, so this cannot happen
            WriteOutcome::Lost(_) => Err(StoreErrorKind::Busy.into()),
        }
    }

    /// Applies a call to a login that was read before with one compare-and-swap, again if another call came first. Returns
    /// `None` if the login is gone.
    pub(crate) async fn apply(
        &self,
        digest: &Digest,
        read: Stored<Login>,
        call: &LoginCall<'_>,
    ) -> Result<Option<LoginUpdate>, StoreError> {
        let step = |login: Option<&Login>, now| {
            let Some(login) = login else { return Change::Keep(None) };
            let Transition { next, answer } = transition(login, call, now);
            match next {
                None => Change::Keep(Some((answer, login.clone(), false))),
                Some(next) => {
                    let kept_until = next.forgotten_at();
                    Change::Put(next.clone(), kept_until, Some((answer, next, true)))
                }
            }
        };
        let (taken, version) = self.0.update_from(None, digest.as_bytes(), read, step).await?;
        Ok(taken.zip(version).map(|((answer, login, changed), version)| {
            let expires_at = login.forgotten_at();
            LoginUpdate { answer, stored: Stored { value: login, version, expires_at }, changed }
        }))
    }
}

impl LoginUpdate {
    /// Returns the response to the caller.
    pub(crate) fn view(&self, now: UnixTime) -> Result<LoginView, Problem> {
        self.answer.map_err(|error| Problem::denied(error).of(self.stored.value.view(now)))
    }
}
