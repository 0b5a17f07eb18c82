//! [`Revoked`]: what was taken back before its time.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    gate::MaybeReady,
    session::UserId,
    store::{
        AnyStore, BoxFuture, Key, StoreError,
        table::{Change, Stored, Table},
    },
    tenant::Tenant,
    util::{
        clock::{Clock, UnixTime},
        handle::Handle,
        secret::Digest,
    },
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

/// What of a user was begun before then does not count any more; of a family or a session nothing does.
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
        match self.names([Some(name), None, None], began) {
            Ok(names) => names.are_revoked(),
            Err(error) => MaybeReady::Ready(Err(error)),
        }
    }

    /// What began then and can be taken back by any of these names.
    pub(super) fn names(&self, names: [Option<Name<'_>>; 3], began: UnixTime) -> Result<Names, StoreError> {
        let mut ready = [const { None }; 3];
        for (place, name) in ready.iter_mut().zip(names) {
            let Some(name) = name else { continue };
            let (tenant, id) = name.key();
            // a user can log in anew; a family or a session that has ended is never begun again, whatever a clock says
            let began = if matches!(name, Name::User(..)) { began } else { UnixTime::from_nanos(0) };
            *place = Some((self.0.key(tenant, &id)?, began));
        }
        Ok(Names { marks: self.0.clone(), names: ready })
    }
}

/// Names that are asked about again and again: where the store answers at once, nothing is made for it.
pub(super) struct Names {
    marks: Table<Mark>,
    /// Each with what began then.
    names: [Option<(Key, UnixTime)>; 3],
}

impl Names {
    /// Whether any of them was taken back; at once where the store answers at once.
    pub(super) fn are_revoked(&self) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        let told = |mark: Option<&Stored<Mark>>, began: UnixTime| {
            mark.is_some_and(|mark| began.as_nanos() <= mark.value.before)
        };
        let mut pending = Vec::new();
        for (key, began) in self.names.iter().flatten() {
            match self.marks.get_at(key) {
                MaybeReady::Ready(Ok(mark)) if told(mark.as_ref(), *began) => return MaybeReady::Ready(Ok(true)),
                MaybeReady::Ready(Ok(_)) => {}
                MaybeReady::Ready(Err(error)) => return MaybeReady::Ready(Err(error)),
                MaybeReady::Pending(future) => pending.push((future, *began)),
            }
        }
        if pending.is_empty() {
            return MaybeReady::Ready(Ok(false));
        }
        MaybeReady::Pending(Box::pin(async move {
            for (mark, began) in pending {
                if told(mark.await?.as_ref(), began) {
                    return Ok(true);
                }
            }
            Ok(false)
        }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::Memory, testing::ManualClock};

    #[tokio::test]
    async fn a_session_that_ended_stays_so_where_a_clock_was_ahead_when_it_began() {
        let clock = ManualClock::new();
        let revoked = Revoked::new(Memory::new().into(), Arc::new(clock.clone()));
        let (session, tenant, user) =
            (Handle::from_bytes([7; 16]), Tenant::parse("acme").unwrap(), UserId::parse("ada").unwrap());
        let now = clock.unix(clock.now());
        let names = [Name::Session(&session), Name::Family(&session), Name::User(&tenant, &user)];
        for name in names {
            revoked.mark(name, Duration::from_secs(60)).await.unwrap();
        }
        let mut ended = Vec::new();
        for began in [now, now + Duration::from_secs(5)] {
            for name in names {
                ended.push(revoked.has(name, began).wait().await.unwrap());
            }
        }
        // a user may have logged in since
        assert_eq!(ended, [true, true, true, true, true, false]);
    }
}
