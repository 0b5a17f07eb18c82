//! The user of a grant, and which of their proofs still count.

use crate::{
    auth::{core::Core, factors::credentials::credential::CurrentProofs, state::token_endpoints::TokenEndpoints},
    client::Client,
    session::Authentication,
    store::StoreError,
    tokens::Grant,
    user::Account,
    util::public_id::PublicId,
};

/// The account of a grant, and the part of the grant's authentication that still counts.
pub(crate) struct Subject {
    pub(crate) account: Account,
    pub(crate) who: Authentication,
}

/// Returns the account of an authentication, and the part of it that still counts: `None` if nothing does, or too little for
/// the policy of `rechecks`. The `acr` is kept only if every proof counts.
async fn find_subject(
    core: &Core,
    who: &Authentication,
    rechecks: Option<&Client>,
) -> Result<Option<(Account, Option<Authentication>)>, StoreError> {
    let Some(current) = core.current_proofs(who, core.keyed().await?).await? else { return Ok(None) };
    let rechecks = rechecks.filter(|client| client.tokens.recheck_policy);
    let is_enough = !current.proofs.is_empty()
        && rechecks.is_none_or(|client| core.meets_policy(&who.tenant, client.demands(), &current));
    let CurrentProofs { account, proofs, .. } = current;
    let acr = who.acr.clone().filter(|_| proofs.len() == who.proofs.len());
    let counting = is_enough.then(|| Authentication { proofs, acr, ..who.clone() });
    Ok(Some((account, counting)))
}

/// Returns the subject of a grant, if the user may still sign in and any proof counts. Changes nothing.
pub(crate) async fn subject_of_grant(
    core: &Core,
    who: &Authentication,
    rechecks: Option<&Client>,
) -> Result<Option<Subject>, StoreError> {
    let found = find_subject(core, who, rechecks).await?;
    Ok(found.and_then(|(account, who)| Some(Subject { account, who: who? })))
}

/// Returns the subject of a family, if the user may still sign in. If no proof counts any more, or too little for a client
/// that `rechecks` its policy, the family is revoked.
pub(crate) async fn find_subject_or_revoke(
    core: &Core,
    endpoints: &TokenEndpoints,
    (family, grant): (&PublicId, &Grant),
    rechecks: Option<&Client>,
) -> Result<Option<Subject>, StoreError> {
    match find_subject(core, &grant.who, rechecks).await? {
        Some((account, Some(who))) => Ok(Some(Subject { account, who })),
        Some((_, None)) => {
            endpoints.service.revoke_family(family).await?;
            Ok(None)
        }
        // a disabled account may be enabled again
        None => Ok(None),
    }
}
