//! How a signed-in session ends or gets a new secret, with what came of it.

use crate::{
    auth::{core::Core, replaced, service::AuthService},
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
        let (core, secret) = (&*self.0, Secret::generate());
        // a session that lives has its evidence
        if let Some(mut evidence) = core.evidences.of(&session.digest()).await? {
            evidence.replaced.push(session.handle());
            end_tokens(&self.0, &replaced::bound(&mut evidence.replaced)).await?;
            core.evidences.keep(&secret.digest(), session.expires(), &evidence).await?;
        }
        let rotated = core.sessions.rotate_with(&secret, session).await?;
        let useless = if rotated.is_some() { session.digest() } else { secret.digest() };
        core.evidences.forget(&useless).await;
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
pub(crate) async fn end(core: &Core, ended: &Ended) -> Result<(), StoreError> {
    let Ended { tenant, user, handle, digest } = ended;
    let mut digest = *digest;
    if digest.is_none() {
        digest = core.sessions.listed(tenant, user, handle).await?;
    }
    end_tokens(core, &[*handle]).await?;
    // nobody can show the sessions any more that it took the place of
    if let Some(digest) = &digest
        && let Some(evidence) = core.evidences.of(digest).await?
    {
        end_tokens(core, &evidence.replaced).await?;
    }
    // last, so that what fails before can be asked for again
    core.sessions.revoke_one(tenant, user, handle).await?;
    if let Some(digest) = digest {
        core.evidences.forget(&digest).await;
    }
    #[cfg(feature = "tokens")]
    if core.tokens.is_some() {
        core.journal.tally(crate::event::EventKind::TokenRevoked, Some(tenant), None);
    }
    Ok(())
}

/// Ends the tokens that came of these sessions.
pub(crate) async fn end_tokens(core: &Core, sessions: &[Handle]) -> Result<(), StoreError> {
    #[cfg(feature = "tokens")]
    if let Some(config) = &core.tokens {
        for session in sessions {
            config.tokens.revoke_session(session).await?;
        }
    }
    let _ = (core, sessions);
    Ok(())
}
