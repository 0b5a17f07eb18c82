//! [`Revocations`]: revoked families, sessions and users.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use super::{grant::Grant, issued_claims};
use crate::{
    bearer::AccessTokenClaims,
    gate::MaybeReady,
    session::{EndMark, EndedSessions, Generation, Generations, UserId},
    store::{
        AnyStore, BoxFuture, StoreError,
        table::{Change, RowCheck, Table},
    },
    tenant::Tenant,
    util::{
        clock::{Clock, UnixTime},
        public_id::PublicId,
    },
};

type Answer = MaybeReady<BoxFuture<'static, Result<bool, StoreError>>>;

/// Everything that invalidates tokens before they expire: revoked families, ended sessions, and users whose generation
/// was raised.
#[derive(Clone, Debug)]
pub(super) struct Revocations {
    families: Table<()>,
    sessions: EndedSessions,
    generations: Generations,
}

impl Revocations {
    pub(super) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self {
            families: Table::new(store.clone(), "revoked_tokens", Arc::clone(&clock)),
            sessions: EndedSessions::new(store.clone(), Arc::clone(&clock)),
            generations: Generations::new(store, clock),
        }
    }

    /// Marks a family as revoked, so that its access tokens are refused. `lives` is how long any of them could still be valid.
    pub(super) async fn revoke_family(&self, family: &PublicId, lives: Duration) -> Result<(), StoreError> {
        let put = |_: Option<&()>, now| Change::Put((), now + lives, ());
        self.families.update(None, family.as_bytes(), put).await
    }

    pub(super) async fn has_revoked_family(&self, family: &PublicId) -> Result<bool, StoreError> {
        Ok(self.families.get(None, family.as_bytes()).wait().await?.is_some())
    }

    /// Returns whether the session or the user of a grant has lost all tokens.
    pub(super) async fn has_ended(&self, grant: &Grant) -> Result<bool, StoreError> {
        let who = &grant.who;
        if self.generations.current(&who.tenant, &who.user).wait().await? > who.generation {
            return Ok(true);
        }
        self.has_lost_session(grant).await
    }

    /// Returns whether a grant ended with its session.
    pub(super) async fn has_lost_session(&self, grant: &Grant) -> Result<bool, StoreError> {
        Ok(!grant.outlives_session() && self.sessions.contains(&grant.session).wait().await?)
    }

    /// Prepares the check of an access token, which is repeated for every request.
    pub(super) fn check(&self, claims: &AccessTokenClaims) -> Result<RevocationCheck, StoreError> {
        let family =
            issued_claims::family_of(&claims.jti).map(|id| self.families.check(None, id.as_bytes())).transpose()?;
        let session =
            claims.sid.as_deref().and_then(PublicId::parse).map(|sid| self.sessions.check(&sid)).transpose()?;
        let tenant = claims.tenant.as_deref().and_then(|tenant| Tenant::parse(tenant).ok());
        // a user may have the same id as a machine client
        let user = tenant.zip(UserId::parse(&claims.sub).ok()).filter(|_| !claims.is_machine());
        let user = user.map(|(tenant, user)| self.generations.check(&tenant, &user)).transpose()?;
        let generation = issued_claims::generation(claims);
        Ok(RevocationCheck { families: self.families.clone(), family, session, user, generation, issued: claims.iat })
    }

    /// Returns whether the store may have lost the revocation of a token that was issued then. Ask it last, because each
    /// other call can show that something is lost.
    pub(super) fn may_have_lost(&self, issued: u64) -> bool {
        may_have_lost(&self.families, issued)
    }

    /// Returns the time to write into an access token that is issued now, in seconds. It is later than now if the store may
    /// have lost something in this very second, because a token of this second may be older than the loss.
    pub(super) fn issue_time(&self, now: UnixTime) -> u64 {
        now.as_secs().max(self.families.complete_since().as_secs_ceil())
    }

    /// Returns the time before which everything that was begun has ended.
    pub(super) fn cutoff(&self) -> MaybeReady<BoxFuture<'static, Result<UnixTime, StoreError>>> {
        self.families.cutoff()
    }
}

fn may_have_lost(marks: &Table<()>, issued: u64) -> bool {
    UnixTime::from_secs(issued) < marks.complete_since()
}

/// A repeatable check of one access token. It allocates nothing if the store answers at once.
pub(super) struct RevocationCheck {
    families: Table<()>,
    family: Option<RowCheck<()>>,
    session: Option<RowCheck<EndMark>>,
    user: Option<RowCheck<Generation>>,
    /// The generation of the user when the token was issued.
    generation: u64,
    /// When the token was issued.
    issued: u64,
}

impl RevocationCheck {
    pub(super) fn is_revoked(&self) -> Answer {
        let own = self.generation;
        let family = self.family.as_ref().map(|family| family.finds(|()| true));
        let session = self.session.as_ref().map(|session| session.finds(|mark| mark.has_ended));
        let user = self.user.as_ref().map(|user| user.finds(move |current| u64::from(*current) > own));
        // once it is known, `may_have_lost` compares it
        let cutoff = Some(self.families.cutoff().map(|cutoff| cutoff.map(|_| false)));
        let mut pending = Vec::new();
        for answer in [family, session, user, cutoff].into_iter().flatten() {
            match answer {
                MaybeReady::Ready(Ok(false)) => {}
                MaybeReady::Ready(answer) => return MaybeReady::Ready(answer),
                MaybeReady::Pending(future) => pending.push(future),
            }
        }
        if pending.is_empty() {
            return MaybeReady::Ready(Ok(may_have_lost(&self.families, self.issued)));
        }
        let (families, issued) = (self.families.clone(), self.issued);
        MaybeReady::Pending(Box::pin(async move {
            // all at once, because each may take a round trip
            let is_revoked = poll_fn(|context| {
                let mut found = Ok(false);
                pending.retain_mut(|answer| match answer.as_mut().poll(context) {
                    Poll::Ready(answer) => {
                        found = answer.and_then(|own| found.clone().map(|others| own || others));
                        false
                    }
                    Poll::Pending => true,
                });
                match found {
                    Ok(false) if !pending.is_empty() => Poll::Pending,
                    found => Poll::Ready(found),
                }
            });
            let is_revoked = is_revoked.await?;
            // the calls may have shown that it has moved
            families.cutoff().wait().await?;
            Ok(is_revoked || may_have_lost(&families, issued))
        }))
    }
}
