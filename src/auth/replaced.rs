//! [`Replaced`]: the sessions that a new one takes the place of. Nobody can show them any more, so what came of them has to
//! end with whatever took their place.
//!
//! Two logins of one browser that finish at the same moment both take the place of the session before, and neither knows of
//! the other. The browser keeps the cookie that comes last: the other session, and what came of it, ends by its time or by
//! an act of the app.

use crate::{
    auth::{
        context::RequestContext,
        sign_out::{self, Ended},
        state::evidence::Evidence,
    },
    store::StoreError,
    util::handle::Handle,
};

/// How many are remembered: the newest.
const MOST: usize = 16;

#[derive(Default)]
pub(crate) struct Replaced {
    /// Of the same user, oldest first.
    pub(crate) own: Vec<Handle>,
    /// Those that are remembered no longer.
    forgotten: Vec<Handle>,
    others: Vec<Ended>,
}

impl Replaced {
    /// What the browser shows where this is to begin, and what that had replaced; be it that it ended by itself.
    pub(crate) async fn by(cx: &RequestContext<'_>, evidence: &Evidence) -> Result<Self, StoreError> {
        let core = cx.core;
        let mut replaced = Self::default();
        for digest in core.sessions.shown(&cx.parts.headers) {
            let Some(before) = core.evidences.of(&digest).await? else { continue };
            let handle = Handle::of(&digest);
            if before.tenant == evidence.tenant && before.user == evidence.user {
                replaced.own.extend(before.replaced);
                replaced.own.push(handle);
            } else {
                let Evidence { tenant, user, .. } = before;
                replaced.others.push(Ended { tenant, user, handle, digest: Some(digest) });
            }
        }
        replaced.forgotten = bound(&mut replaced.own);
        Ok(replaced)
    }

    /// Ends what this user can't end later: the sessions of others, and what came of those that are remembered no longer.
    pub(crate) async fn end_rest(&self, cx: &RequestContext<'_>) -> Result<(), StoreError> {
        sign_out::end_tokens(cx.core, &self.forgotten).await?;
        for session in &self.others {
            sign_out::end(cx.core, session).await?;
        }
        Ok(())
    }
}

/// Takes out those that were replaced longest ago.
pub(crate) fn bound(replaced: &mut Vec<Handle>) -> Vec<Handle> {
    let beyond = replaced.len().saturating_sub(MOST);
    replaced.drain(..beyond).collect()
}
