//! [`Evidence`]: what a signed-in session rests on, kept beside it.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    auth::{context::RequestContext, state::grant::amr},
    login::{Login, LoginId},
    policy::{Method, MethodSet},
    session::{Authentication, NewSession, Proof, Session, UserId},
    store::{
        AnyStore, StoreError,
        table::{Change, Table},
    },
    tenant::Tenant,
    user::Identifier,
    util::{
        clock::{Clock, UnixTime},
        handle::Handle,
        secret::Digest,
    },
};

/// What was proved, when, by whom, and to which client. Unlike the session it says by which name, and of what the proofs
/// were made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Evidence {
    pub(crate) client_id: String,
    #[serde(with = "crate::util::text")]
    pub(crate) tenant: Tenant,
    #[serde(with = "crate::util::text")]
    pub(crate) user: UserId,
    pub(crate) identifier: Option<Identifier>,
    pub(crate) generation: u64,
    #[serde(with = "crate::util::text")]
    pub(crate) login: LoginId,
    /// In the order of their times.
    pub(crate) proved: Vec<Proof>,
    /// The sessions of the same user that this one took the place of, oldest first.
    #[serde(default, with = "crate::util::text::list")]
    pub(crate) replaced: Vec<Handle>,
}

impl Evidence {
    /// That of a login; `None` if nobody proved anything.
    pub(crate) fn of(login: &Login) -> Option<Self> {
        let authentication = login.authentication(None)?;
        Some(Self {
            client_id: login.binding.client_id.clone(),
            tenant: login.tenant.clone(),
            user: authentication.user,
            generation: authentication.generation,
            identifier: login.identifier.clone(),
            login: login.id,
            proved: authentication.proofs,
            replaced: Vec::new(),
        })
    }

    /// With what the session proved that it goes on from.
    pub(crate) fn and(mut self, before: &Self) -> Self {
        let own = self.methods();
        let more = before.proved.iter().filter(|proof| !method_of(proof).is_some_and(|it| own.contains(it))).cloned();
        self.proved.extend(more.collect::<Vec<_>>());
        self.proved.sort_by_key(|proof| proof.at);
        self
    }

    pub(crate) fn authentication(&self) -> Authentication {
        Authentication {
            tenant: self.tenant.clone(),
            user: self.user.clone(),
            generation: self.generation,
            proofs: self.proved.clone(),
            acr: None,
        }
    }

    pub(crate) fn methods(&self) -> MethodSet {
        self.proved.iter().filter_map(method_of).collect()
    }

    /// Only the proofs that are no older than this.
    pub(crate) fn within(&self, age: Option<Duration>, now: UnixTime) -> Vec<Proof> {
        let is_young = |at: u64| age.is_none_or(|age| UnixTime::from_nanos(at) + age >= now);
        self.proved.iter().filter(|proof| is_young(proof.at)).cloned().collect()
    }

    /// The signed-in session that rests on it.
    pub(crate) fn new_session(&self, acr: Option<&str>) -> Option<NewSession> {
        let last = self.proved.last()?.at;
        let session = NewSession::new(self.tenant.clone(), self.user.clone())
            .auth_time(UnixTime::from_nanos(last))
            .amr(amr(self.methods()).iter().copied())
            .ok()?;
        match acr {
            Some(acr) => session.acr(acr).ok(),
            None => Some(session),
        }
    }

    /// Whether the account is as it was: it may have been closed since, or its password changed because somebody had it.
    pub(crate) async fn still_stands(&self, cx: &RequestContext<'_>) -> Result<bool, StoreError> {
        let keyed = cx.core.keyed().await?;
        let current = cx.core.accounts.current(&self.authentication(), keyed).await?;
        Ok(current.is_some_and(|current| current.proofs.len() == self.proved.len()))
    }
}

fn method_of(proof: &Proof) -> Option<Method> {
    Method::from_name(&proof.method)
}

/// The evidence of all sessions that began here, each under the digest of its session.
#[derive(Clone, Debug)]
pub(crate) struct Evidences {
    table: Table<Evidence>,
    /// How long a proof counts: as long as a session lives, however often it is carried into another.
    counts_for: Duration,
}

impl Evidences {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>, counts_for: Duration) -> Self {
        Self { table: Table::new(store, "session_evidence", clock), counts_for }
    }

    pub(crate) fn now(&self) -> UnixTime {
        self.table.now()
    }

    /// That of a session, with the proofs that still count; `None` if none does.
    pub(crate) async fn find(&self, session: &Session) -> Result<Option<Evidence>, StoreError> {
        let found = self.of(&session.digest()).await?;
        let belongs = |it: &Evidence| it.tenant == *session.tenant() && it.user == *session.user();
        let found = found.filter(belongs).map(|it| {
            let proved = it.within(Some(self.counts_for), self.now());
            Evidence { proved, ..it }
        });
        Ok(found.filter(|it| !it.proved.is_empty()))
    }

    /// As it is kept, whether or not the session of this digest still lives.
    pub(crate) async fn of(&self, session: &Digest) -> Result<Option<Evidence>, StoreError> {
        Ok(self.table.get(None, session.as_bytes()).wait().await?.map(|stored| stored.value))
    }

    /// Keeps it for a session that is about to begin, until it has ended in any case.
    pub(crate) async fn keep(&self, session: &Digest, ends: UnixTime, evidence: &Evidence) -> Result<(), StoreError> {
        self.table.update(None, session.as_bytes(), |_, _| Change::Put(evidence.clone(), ends, ())).await
    }

    pub(crate) async fn forget(&self, session: &Digest) {
        if let Err(error) = self.table.remove(None, session.as_bytes()).await {
            crate::util::trace::warning!("what a session rested on could not be forgotten: {error}");
        }
    }
}
