//! The logins of this browser in which something was proved, and how a sign-out ends them.

use std::sync::Arc;

use http::HeaderMap;

use crate::{
    auth::{context::RequestContext, http::cookies::PresentedLogin, state::logins::StoredLogin},
    http::cookie::SetCookie,
    login::{Login, LoginCall},
    store::StoreError,
    tenant::Tenant,
};

/// The logins of this browser in which something was proved: those of one tenant, or all.
pub(crate) struct ProvedLogins<'c> {
    open: Vec<(&'c PresentedLogin<'c>, StoredLogin)>,
    /// Spent logins. The response of the request that spent one can still be on its way.
    spent: Vec<Arc<Login>>,
}

impl<'c> ProvedLogins<'c> {
    pub(crate) async fn find(
        cx: &RequestContext<'_>,
        presented: &'c [PresentedLogin<'c>],
        tenant: Option<&Tenant>,
    ) -> Result<Self, StoreError> {
        let (mut open, mut spent) = (Vec::new(), Vec::new());
        for cookie in presented {
            let Some(stored) = cx.core.logins.find(&cookie.digest).await? else { continue };
            let login = &stored.value;
            let is_named = cookie.name == cx.core.cookies.name_of(&login.id);
            if !is_named || tenant.is_some_and(|tenant| *tenant != login.tenant) {
                continue;
            }
            if login.spent_for().is_some() {
                spent.push(stored.value);
            } else if !login.proofs.is_empty() && !login.has_ended(cx.core.logins.now()) {
                open.push((cookie, stored));
            }
        }
        Ok(Self { open, spent })
    }

    /// Ends the logins of this browser at a tenant. The headers remove their cookies, and that of the session.
    pub(crate) async fn end_in_browser(
        cx: &RequestContext<'_>,
        tenant: &Tenant,
        headers: &mut HeaderMap,
    ) -> Result<(), StoreError> {
        let presented = cx.core.cookies.read_login_cookies(&cx.parts.headers);
        for removal in ProvedLogins::find(cx, &presented, Some(tenant)).await?.end(cx).await? {
            removal.append_to(headers);
        }
        cx.core.sessions.removal(tenant).append_to(headers);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Ends the logins, so that none of them signs the user in again, and the sessions that they were spent for. Returns the
    /// cookies that remove theirs.
    pub(crate) async fn end(&self, cx: &RequestContext<'_>) -> Result<Vec<SetCookie>, StoreError> {
        for (cookie, stored) in &self.open {
            let update = cx.core.logins.apply(&cookie.digest, stored.clone(), &LoginCall::End).await?;
            // one that was spent since it was found has ended too, but its session has not
            if let Some(update) = update {
                end_session(cx, &update.stored.value).await?;
            }
        }
        for login in &self.spent {
            end_session(cx, login).await?;
        }
        Ok(self.open.iter().filter_map(|(cookie, _)| cx.core.cookies.removal(cookie.name)).collect())
    }
}

/// Ends the session that a login was spent for, if it was.
async fn end_session(cx: &RequestContext<'_>, login: &Login) -> Result<(), StoreError> {
    match (login.spent_for(), login.subject.user()) {
        (Some(sid), Some(user)) => cx.core.sessions.end_or_prevent(&login.tenant, &user.id, &sid).await,
        _ => Ok(()),
    }
}
