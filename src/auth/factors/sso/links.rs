//! Links to accounts at other identity providers: how they are found, added and removed, and the calls of the account page that
//! list and remove them.

use serde::Serialize;

use super::row::MOST_LINKS;
use super::{providers::provider_label, row::SsoLink};
use crate::auth::factors::credentials::{credential::CredentialId, table::Added};
use crate::{
    auth::{
        factors::{
            credentials::{
                credential::Credential,
                row::Credentials,
                table::{CredentialTable, MayChange, Removed},
            },
            enrolment::call::{self, AccountCall},
        },
        http::{
            answer,
            problem::{EndpointResult, Problem},
            route::LinkChange,
        },
    },
    delivery::NoticeKind,
    login::Keyed,
    policy::Method,
    session::{Proof, Session, UserId},
    store::StoreError,
    tenant::Tenant,
};

/// A link, as the account page shows it.
#[derive(Serialize)]
pub(crate) struct LinkShown<'a> {
    id: String,
    provider: &'a str,
    label: &'a str,
    name: &'a str,
    created_at: u64,
    /// Whether this session ends when the link is removed.
    ends_session: bool,
}

/// Returns the links of the user who calls.
pub(crate) fn list_sso_links<'a>(call: &'a AccountCall<'_>, keyed: &Keyed) -> Vec<LinkShown<'a>> {
    let shown = |link: &'a SsoLink| LinkShown {
        id: link.shown_id(keyed),
        provider: &link.provider,
        label: provider_label(call.cx.core, call.tenant(), &link.provider).unwrap_or(&link.provider),
        name: &link.name,
        created_at: link.created_at,
        ends_session: ends_with(call.session(), link, keyed),
    };
    call.credentials.iter().flat_map(|row| &row.links).map(shown).collect()
}

/// Serves the calls about links.
pub(crate) async fn serve_link_change(change: LinkChange, call: &AccountCall<'_>) -> EndpointResult {
    match change {
        LinkChange::Begin => super::connect::start_provider_link(call).await,
        LinkChange::Delete => unlink_provider(call).await,
    }
}

/// Unlinks an account at another identity provider.
async fn unlink_provider(call: &AccountCall<'_>) -> EndpointResult {
    let id = call.fields.id.as_deref().ok_or(Problem::invalid("id is missing"))?;
    call.require_fresh()?;
    let keyed = call.cx.core.keyed().await?;
    let mut links = call.credentials.iter().flat_map(|row| &row.links);
    let link = links.find(|link| link.is_shown_as(id, keyed));
    call.require_current().await?;
    let removed = match link {
        Some(link) => call.cx.core.credentials.remove_link(call.owner(), link, call.may_change()).await?,
        None => Removed::Unknown,
    };
    call::removed(removed, "this user has no link with this id")?;
    call.changed(NoticeKind::LinkRemoved).await;
    Ok(answer::no_content())
}

/// Returns whether a session ends if this link is removed in it, because no other proof is left that can stand alone.
fn ends_with(session: &Session, link: &SsoLink, keyed: &Keyed) -> bool {
    let mark = Some(link.mark(keyed));
    let stands_alone = |proof: &Proof| Method::from_name(&proof.method).is_none_or(Method::can_be_first);
    let mut rest = session.proofs().iter().filter(|proof| proof.mark != mark);
    !session.proofs().is_empty() && !rest.any(stands_alone)
}

impl CredentialTable {
    /// Finds the user that an account at another identity provider is linked to: by the connection, the issuer and the subject.
    pub(crate) async fn by_link(
        &self,
        tenant: &Tenant,
        (provider, issuer, subject): (&str, &str, &str),
    ) -> Result<Option<(UserId, SsoLink)>, StoreError> {
        let id = CredentialId::Link { provider, issuer, subject };
        let found = self.by_id(tenant, id).await?;
        Ok(found.and_then(|(user, row)| Some((user, row.links.into_iter().find(|link| link.link_id() == id)?))))
    }

    /// Links an account at another identity provider. If the user has unlinked it before, it is linked again only if the user
    /// vouches for it.
    pub(crate) async fn add_link(
        &self,
        owner: (&Tenant, &UserId),
        link: &SsoLink,
        is_by_user: bool,
    ) -> Result<Added, StoreError> {
        let add = |row: &mut Credentials| {
            let may = row.links.len() < MOST_LINKS && (is_by_user || !row.unlinked.may_contain(link.link_id()));
            if may {
                row.unlinked.remove(link.link_id());
                row.links.push(link.clone());
                return Added::Done;
            }
            Added::Refused
        };
        self.add(owner, link.link_id(), add, |row| remove_link_from_row(row, link)).await
    }

    /// Removes a link that was added a moment ago, as if it had never been there.
    pub(crate) async fn discard_link(&self, owner: (&Tenant, &UserId), link: &SsoLink) -> Result<Removed, StoreError> {
        self.remove(owner, link.link_id(), |row| remove_link_from_row(row, link), |_, _| true).await
    }

    /// Removes a link for its user, if `may` allows it. A hook of the operator can't make it again.
    pub(crate) async fn remove_link(
        &self,
        owner: (&Tenant, &UserId),
        link: &SsoLink,
        may: impl MayChange,
    ) -> Result<Removed, StoreError> {
        let unlink = |row: &mut Credentials| {
            remove_link_from_row(row, link);
            row.unlinked.add(link.link_id());
        };
        self.remove(owner, link.link_id(), unlink, may).await
    }
}

fn remove_link_from_row(row: &mut Credentials, link: &SsoLink) {
    row.links.retain(|own| own.link_id() != link.link_id());
}
