//! Logins in the store.

use std::sync::Arc;

use crate::{
    auth::http::problem::Problem,
    login::{Login, LoginCall, LoginError, LoginView, Transition, transition},
    store::{
        AnyStore, StoreError, StoreErrorKind, Version, WriteOutcome,
        table::{ReadRow, RowOperation, Stored, Table},
    },
    util::{
        clock::{Clock, UnixTime},
        secret::SecretDigest,
    },
};

/// How often a decision is made again because other calls write the same rows. A lost round means that another call has
/// succeeded.
pub(crate) const ROUNDS: usize = 256;

/// A login as it was read. Shared, because a call keeps it in several places.
pub(crate) type StoredLogin = Stored<Arc<Login>>;

/// All logins, each under the digest of its secret.
#[derive(Clone, Debug)]
pub(crate) struct Logins(Table<Login>);

/// The result of a call, and the login after it.
pub(crate) struct LoginUpdate {
    pub(crate) answer: Result<LoginView, LoginError>,
    pub(crate) stored: StoredLogin,
    /// Whether the call changed the login.
    pub(crate) changed: bool,
}

/// A call whose outcome is not stored yet.
pub(crate) struct PreparedCall<'l> {
    pub(crate) answer: Result<LoginView, LoginError>,
    /// `None` if the call changes nothing.
    pub(crate) write: Option<RowOperation<'l, Login>>,
    next: Option<Arc<Login>>,
}

impl PreparedCall<'_> {
    /// Returns the login after its write was done with this version. Without a write, the login is as it was read.
    pub(crate) fn update_after_write(self, version: Option<Version>, read: StoredLogin) -> LoginUpdate {
        let answer = self.answer;
        match self.next.zip(version) {
            Some((value, version)) => {
                let expires_at = value.forgotten_at();
                LoginUpdate { answer, stored: Stored { value, version, expires_at }, changed: true }
            }
            None => LoginUpdate { answer, stored: read, changed: false },
        }
    }
}

impl Logins {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "logins", clock))
    }

    pub(crate) fn now(&self) -> UnixTime {
        self.0.now()
    }

    pub(crate) async fn find(&self, digest: &SecretDigest) -> Result<Option<StoredLogin>, StoreError> {
        Ok(self.0.get(None, digest.as_bytes()).wait().await?.map(|row| row.map(Arc::new)))
    }

    /// Returns the operation that reads a login.
    pub(crate) fn prepare_login_read(&self, digest: &SecretDigest) -> Result<RowOperation<'_, Login>, StoreError> {
        self.0.prepare_row_read(None, digest.as_bytes())
    }

    /// Returns the operation that begins a login. Its secret is new, so nothing is in its place.
    pub(crate) fn prepare_login_insert(
        &self,
        digest: &SecretDigest,
        login: &Login,
    ) -> Result<RowOperation<'_, Login>, StoreError> {
        self.0.prepare_row_write(None, digest.as_bytes(), &ReadRow::ABSENT, login, login.forgotten_at())
    }

    /// Returns the outcome of a call for a login that was read, and the operation that stores it if it changes the login.
    pub(crate) fn prepare(
        &self,
        digest: &SecretDigest,
        read: &StoredLogin,
        call: &LoginCall<'_>,
    ) -> Result<PreparedCall<'_>, StoreError> {
        let Transition { next, answer } = transition(&read.value, call, self.now());
        let write = next.as_ref().map(|next| {
            self.0.prepare_row_write(None, digest.as_bytes(), &ReadRow::found(read), next, next.forgotten_at())
        });
        Ok(PreparedCall { answer, write: write.transpose()?, next: next.map(Arc::new) })
    }

    /// Applies a call to a login that was read before with one compare-and-swap, again if another call came first. Returns
    /// `None` if the login is gone.
    pub(crate) async fn apply(
        &self,
        digest: &SecretDigest,
        mut read: StoredLogin,
        call: &LoginCall<'_>,
    ) -> Result<Option<LoginUpdate>, StoreError> {
        for _ in 0..ROUNDS {
            let Transition { next, answer } = transition(&read.value, call, self.now());
            let Some(next) = next else { return Ok(Some(LoginUpdate { answer, stored: read, changed: false })) };
            let expires_at = next.forgotten_at();
            match self.0.swap(None, digest.as_bytes(), &read, &next, expires_at).await? {
                WriteOutcome::Done(version) => {
                    let stored = Stored { value: Arc::new(next), version, expires_at };
                    return Ok(Some(LoginUpdate { answer, stored, changed: true }));
                }
                WriteOutcome::Lost(Some(found)) => read = found.map(Arc::new),
                WriteOutcome::Lost(None) => return Ok(None),
            }
        }
        Err(StoreErrorKind::Busy.into())
    }
}

impl LoginUpdate {
    /// Returns what the caller learns: the login, or the problem.
    pub(crate) fn response_view(&self, now: UnixTime) -> Result<LoginView, Problem> {
        self.answer.map_err(|error| Problem::denied(error).with_login_view(self.stored.value.to_login_view(now)))
    }
}
