//! [`Replaced`]: the sessions that a new one takes the place of. Nobody can show them any more, so what came of them has to
//! end with whatever took their place.
//!
//! Two logins of one browser that finish at the same moment both take the place of the session before, and neither knows of
//! the other. The browser keeps the cookie that comes last: the other session, and what came of it, ends by its time or by
//! an act of the app.

use super::{evidence::Evidence, visit::Visit};
use crate::{handle::Handle, store::StoreError};

/// How many are remembered: the newest.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Of the same user, oldest first.
    pub(super) own: Vec<Handle>,
    #[cfg(feature = "tokens")]
    others: Vec<Handle>,
}

impl Replaced {
    /// What the browser shows where this is to begin, and what that had replaced; be it that it ended by itself.
    pub(super) async fn by(visit: &Visit<'_>, evidence: &Evidence) -> Result<Self, StoreError> {
        let running = visit.inner.running();
        let mut replaced = Self::default();
        for digest in running.sessions.shown(&visit.parts.headers) {
            let Some(before) = running.evidences.of(&digest).await? else { continue };
            let is_own = before.tenant == evidence.tenant && before.user == evidence.user;
            let mut all = before.replaced;
            all.push(Handle::of(&digest));
            if is_own {
                replaced.own.extend(all);
            } else {
                #[cfg(feature = "tokens")]
                replaced.others.extend(all);
            }
        }
        bound(&mut replaced.own);
        Ok(replaced)
    }

    /// Ends what came of the sessions of other users, for this user can't do it later.
    #[cfg(feature = "tokens")]
    pub(super) async fn end_others(&self, visit: &Visit<'_>) -> Result<(), StoreError> {
        let Some(config) = &visit.inner.config.tokens else { return Ok(()) };
        for session in &self.others {
            config.tokens.revoke_session(session).await?;
        }
        Ok(())
    }
}

/// Forgets those that were replaced longest ago.
pub(super) fn bound(replaced: &mut Vec<Handle>) {
    let beyond = replaced.len().saturating_sub(MOST);
    replaced.drain(..beyond);
}
