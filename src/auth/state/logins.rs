//! Logins in the store.

use std::sync::Arc;

use crate::{
    auth::http::problem::Problem,
    login::{Login, LoginCall, LoginError, LoginView, transition},
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
pub(crate) struct Logins(Table<Login>);

/// The result of a call, and the login after it.
pub(crate) struct LoginUpdate {
    pub(crate) answer: Result<LoginView, LoginError>,
    pub(crate) login: Login,
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

    pub(crate) async fn find(&self, digest: &Digest) -> Result<Option<Login>, StoreError> {
        Ok(self.0.get(None, digest.as_bytes()).wait().await?.map(|stored| stored.value))
    }

    pub(crate) async fn begin(&self, digest: &Digest, login: &Login) -> Result<(), StoreError> {
        match self.0.insert(None, digest.as_bytes(), login, login.forgotten_at()).await? {
            WriteOutcome::Done(_) => Ok(()),
            // the secret is new, so this cannot happen
            WriteOutcome::Lost(_) => Err(StoreErrorKind::Busy.into()),
        }
    }

    /// Applies a call with one compare-and-swap, again if another call came first. Returns `None` if the login is gone.
    pub(crate) async fn apply(&self, digest: &Digest, call: &LoginCall<'_>) -> Result<Option<LoginUpdate>, StoreError> {
        self.0
            .update(None, digest.as_bytes(), |login, now| {
                let Some(login) = login else { return Change::Keep(None) };
                let taken = transition(login, call, now);
                let changed = taken.next.is_some();
                let update = |login: &Login| Some(LoginUpdate { answer: taken.answer, login: login.clone(), changed });
                match taken.next {
                    None => Change::Keep(update(login)),
                    Some(next) => {
                        let (kept_until, update) = (next.forgotten_at(), update(&next));
                        Change::Put(next, kept_until, update)
                    }
                }
            })
            .await
    }
}

impl LoginUpdate {
    /// Returns the response to the caller.
    pub(crate) fn view(&self, now: UnixTime) -> Result<LoginView, Problem> {
        self.answer.map_err(|error| Problem::denied(error).of(self.login.view(now)))
    }
}
