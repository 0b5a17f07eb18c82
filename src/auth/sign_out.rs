//! How a signed-in session ends or gets a new secret, with what came of it.

use crate::{
    auth::{inner::Inner, replaced, service::AuthService},
    http::cookie::SetCookie,
    session::{Session, UserId},
    store::StoreError,
    tenant::Tenant,
    util::{
        handle::Handle,
        secret::{Digest, Secret},
    },
};

impl AuthService {
    /// Ends a signed-in session: for a sign-out of your own, beside [`Sessions::removal`](crate::Sessions::removal).
    ///
    /// Its tokens end with it, and those of the sessions that it took the place of in its browser, but not what was given to
    /// last beyond it (`offline_access`). `/logout` does the same. [`Sessions::revoke`](crate::Sessions::revoke) ends the
    /// session alone.
    pub async fn sign_out(&self, session: &Session) -> Result<(), StoreError> {
        end(&self.0, &Ended::of(session)).await
    }

    /// Gives a signed-in session a new secret, as [`Sessions::rotate`](crate::Sessions::rotate) does, and lets it count for
    /// what the one before did: for single sign-on, and as what its tokens end with.
    pub async fn rotate(&self, session: &Session) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let (running, secret) = (self.0.running(), Secret::generate());
        // a session that lives has its evidence
        if let Some(mut evidence) = running.evidences.of(&session.digest()).await? {
            evidence.replaced.push(session.handle());
            end_tokens(&self.0, &replaced::bound(&mut evidence.replaced)).await?;
            running.evidences.keep(&secret.digest(), session.expires(), &evidence).await?;
        }
        let rotated = running.sessions.rotate_with(&secret, session).await?;
        let useless = if rotated.is_some() { session.digest() } else { secret.digest() };
        running.evidences.forget(&useless).await;
        Ok(rotated)
    }
}

/// A session that is to end, as far as it is known.
pub(crate) struct Ended {
    pub(crate) tenant: Tenant,
    pub(crate) user: UserId,
    pub(crate) handle: Handle,
    pub(crate) digest: Option<Digest>,
}

impl Ended {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            tenant: session.tenant().clone(),
            user: session.user().clone(),
            handle: session.handle(),
            digest: Some(session.digest()),
        }
    }
}

/// Ends a session, if it still lives, and what came of it.
pub(crate) async fn end(inner: &Inner, ended: &Ended) -> Result<(), StoreError> {
    let Ended { tenant, user, handle, digest } = ended;
    let (running, mut digest) = (inner.running(), *digest);
    if digest.is_none() {
        digest = running.sessions.listed(tenant, user, handle).await?;
    }
    end_tokens(inner, &[*handle]).await?;
    // nobody can show the sessions any more that it took the place of
    if let Some(digest) = &digest
        && let Some(evidence) = running.evidences.of(digest).await?
    {
        end_tokens(inner, &evidence.replaced).await?;
    }
    // last, so that what fails before can be asked for again
    running.sessions.revoke_one(tenant, user, handle).await?;
    if let Some(digest) = digest {
        running.evidences.forget(&digest).await;
    }
    #[cfg(feature = "tokens")]
    if inner.config.tokens.is_some() {
        inner.journal().tally(crate::event::EventKind::TokenRevoked, Some(tenant), None);
    }
    Ok(())
}

/// Ends the tokens that came of these sessions.
pub(crate) async fn end_tokens(inner: &Inner, sessions: &[Handle]) -> Result<(), StoreError> {
    for session in sessions {
        inner.running().ended_sessions.mark(session).await?;
    }
    Ok(())
}
