//! Stand-ins for the types of the new sessions, until those are merged.
#![allow(missing_docs, dead_code, reason = "replaced at the merge")]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::UserId;
use crate::{
    gate::MaybeReady,
    store::{
        AnyStore, BoxFuture, Key, StoreError,
        table::{Change, Stored, Table},
    },
    tenant::Tenant,
    util::{
        clock::{Clock, UnixTime},
        handle::Handle,
    },
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Authentication {
    #[serde(with = "crate::util::text")]
    pub(crate) tenant: Tenant,
    #[serde(with = "crate::util::text")]
    pub(crate) user: UserId,
    pub(crate) generation: u64,
    pub(crate) proofs: Vec<Proof>,
    pub(crate) acr: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Proof {
    pub(crate) method: Box<str>,
    pub(crate) at: u64,
    pub(crate) mark: Option<[u8; 32]>,
}

impl Authentication {
    pub(crate) fn auth_time(&self) -> Option<UnixTime> {
        self.proofs.iter().map(|proof| proof.at).max().map(UnixTime::from_nanos)
    }

    pub(crate) fn methods(&self) -> impl Iterator<Item = &str> {
        self.proofs.iter().map(|proof| &*proof.method)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Generations(Table<u64>);

impl Generations {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "generations", clock))
    }

    pub(crate) fn current(
        &self,
        tenant: &Tenant,
        user: &UserId,
    ) -> MaybeReady<BoxFuture<'static, Result<u64, StoreError>>> {
        match self.check(tenant, user) {
            Ok(check) => check.current(),
            Err(error) => MaybeReady::Ready(Err(error)),
        }
    }

    pub(crate) async fn raise(&self, tenant: &Tenant, user: &UserId) -> Result<u64, StoreError> {
        let raise = |current: Option<&u64>, _now| {
            let next = current.map_or(0, |current| *current).saturating_add(1);
            Change::Put(next, UnixTime::from_nanos(u64::MAX), next)
        };
        self.0.update(Some(tenant), user.as_str().as_bytes(), raise).await
    }

    pub(crate) fn check(&self, tenant: &Tenant, user: &UserId) -> Result<GenerationCheck, StoreError> {
        Ok(GenerationCheck { key: self.0.key(Some(tenant), user.as_str().as_bytes())?, rows: self.0.clone() })
    }
}

#[derive(Debug)]
pub(crate) struct GenerationCheck {
    rows: Table<u64>,
    key: Key,
}

impl GenerationCheck {
    pub(crate) fn current(&self) -> MaybeReady<BoxFuture<'static, Result<u64, StoreError>>> {
        let number = |row: Option<Stored<u64>>| row.map_or(0, |row| row.value);
        match self.rows.get_at(&self.key) {
            MaybeReady::Ready(row) => MaybeReady::Ready(row.map(number)),
            MaybeReady::Pending(row) => MaybeReady::Pending(Box::pin(async move { row.await.map(number) })),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct EndedSessions(Table<()>);

impl EndedSessions {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "ended_sessions", clock))
    }

    pub(crate) async fn mark(&self, sid: &Handle) -> Result<(), StoreError> {
        let until = self.0.now() + std::time::Duration::from_secs(25 * 3600);
        self.0.update(None, sid.as_bytes(), |_, _| Change::Put((), until, ())).await
    }

    pub(crate) fn contains(&self, sid: &Handle) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        match self.check(sid) {
            Ok(check) => check.has_ended(),
            Err(error) => MaybeReady::Ready(Err(error)),
        }
    }

    pub(crate) fn check(&self, sid: &Handle) -> Result<SessionEndCheck, StoreError> {
        Ok(SessionEndCheck { key: self.0.key(None, sid.as_bytes())?, rows: self.0.clone() })
    }
}

#[derive(Debug)]
pub(crate) struct SessionEndCheck {
    rows: Table<()>,
    key: Key,
}

impl SessionEndCheck {
    pub(crate) fn has_ended(&self) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        match self.rows.get_at(&self.key) {
            MaybeReady::Ready(row) => MaybeReady::Ready(row.map(|row| row.is_some())),
            MaybeReady::Pending(row) => MaybeReady::Pending(Box::pin(async move { Ok(row.await?.is_some()) })),
        }
    }
}
