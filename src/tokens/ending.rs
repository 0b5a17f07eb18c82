//! How tokens end before they expire.

use super::{
    family_list::FamilyList,
    grant::Grant,
    service::{LAST_ACCESS, TokenService},
};
use crate::{
    session::UserId,
    store::{StoreError, table::Change},
    support::run_to_completion::RunToCompletion,
    tenant::Tenant,
    util::public_id::PublicId,
};

impl TokenService {
    /// Revokes all tokens issued from one code. Runs to completion, so that a caller who disconnects can't leave some of
    /// them valid.
    pub(crate) async fn revoke_family(&self, id: &PublicId) -> Result<(), StoreError> {
        let (service, id) = (self.clone(), *id);
        RunToCompletion::new(async move { service.end_family(&id).await }).await
    }

    /// Revokes all tokens of a client for a user. Runs to completion, and continues where it stopped if it is repeated.
    pub(crate) async fn revoke_client(
        &self,
        tenant: &Tenant,
        user: &UserId,
        client_id: &str,
    ) -> Result<(), StoreError> {
        let (service, tenant, key) = (self.clone(), tenant.clone(), FamilyList::id_of(user, client_id));
        RunToCompletion::new(async move {
            let Some(list) = service.0.lists.get(Some(&tenant), &key).wait().await? else { return Ok(()) };
            for family in list.value.ids() {
                service.end_family(&family).await?;
            }
            Ok(())
        })
        .await
    }

    /// Access tokens end first: if a later step fails, the client can ask again.
    pub(super) async fn end_family(&self, id: &PublicId) -> Result<(), StoreError> {
        self.0.revocations.revoke_family(id, LAST_ACCESS).await?;
        let Some(ended) = self.0.families.take_value(None, id.as_bytes()).await? else { return Ok(()) };
        let grant = ended.value.grant;
        let forget = |list: Option<&FamilyList>, _| match list.and_then(|list| list.clone().without(id)) {
            Some(list) => {
                let ends = list.ends();
                Change::Put(list, ends, ())
            }
            None => Change::Keep(()),
        };
        self.0.lists.update(Some(&grant.who.tenant), &FamilyList::id(&grant), forget).await
    }

    /// Returns whether the session or the user of a grant has lost all tokens.
    pub(crate) async fn has_ended(&self, grant: &Grant) -> Result<bool, StoreError> {
        self.0.revocations.has_ended(grant).await
    }

    /// Returns whether a grant ended with its session. Its user may have lost all tokens too.
    pub(crate) async fn has_lost_session(&self, grant: &Grant) -> Result<bool, StoreError> {
        self.0.revocations.has_lost_session(grant).await
    }
}
