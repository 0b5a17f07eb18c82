//! Claims about users: which ones a client gets, and where they come from.

use serde_json::{Map, Value};

use crate::{
    auth::{
        authorize::claims_parameter::{OF_SCOPES, known},
        core::Core,
        factors::credentials::credential::CurrentProofs,
        state::token_endpoints::TokenEndpoints,
    },
    client::{Client, Scopes},
    session::Authentication,
    store::StoreError,
    tokens::Grant,
    user::{Account, ClaimTarget, Claims, ClaimsRequest, Contact},
    util::public_id::PublicId,
};

/// The account of a grant, and the part of the grant's authentication that still counts.
pub(crate) struct Subject {
    pub(crate) account: Account,
    pub(crate) who: Authentication,
}

/// Finds the account of an authentication. The second value is `None` if nothing of the authentication counts, or too
/// little for a client that `rechecks` its policy. It keeps its `acr` only if every proof counts.
async fn find(
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
pub(crate) async fn subject(
    core: &Core,
    who: &Authentication,
    rechecks: Option<&Client>,
) -> Result<Option<Subject>, StoreError> {
    let found = find(core, who, rechecks).await?;
    Ok(found.and_then(|(account, who)| Some(Subject { account, who: who? })))
}

/// Returns the subject of a family, if the user may still sign in. If no proof counts any more, or too little for a client
/// that `rechecks` its policy, the family is revoked.
pub(crate) async fn subject_of_family(
    core: &Core,
    endpoints: &TokenEndpoints,
    (family, grant): (&PublicId, &Grant),
    rechecks: Option<&Client>,
) -> Result<Option<Subject>, StoreError> {
    match find(core, &grant.who, rechecks).await? {
        Some((account, Some(who))) => Ok(Some(Subject { account, who })),
        Some((_, None)) => {
            endpoints.service.revoke_family(family).await?;
            Ok(None)
        }
        // a disabled account may be enabled again
        None => Ok(None),
    }
}

/// Returns the claims of the [`Users`](crate::Users) for a grant with this scope.
pub(crate) async fn extra(core: &Core, account: &Account, grant: &Grant, scope: &Scopes) -> Result<Claims, StoreError> {
    let request = ClaimsRequest::new(grant.client_id())
        .with_scopes(scope.iter())
        .with_names(ClaimTarget::IdToken, grant.id_token.iter().cloned())
        .with_names(ClaimTarget::UserInfo, grant.userinfo.iter().cloned());
    core.users.claims(&grant.who.tenant, account, &request).await
}

/// Removes the names that the client may not ask for. A claim of the account needs the scope that it belongs to. About
/// other claims, the [`Users`](crate::Users) decide.
pub(crate) fn allowed(client: &Client, names: Vec<String>) -> Vec<String> {
    let scopes = client.allowed_scopes();
    let is_of_account = |name: &String| known().any(|own| own == name);
    let may =
        |name: &String| !is_of_account(name) || scopes.is_some_and(|scopes| of_scopes(scopes).any(|own| own == name));
    names.into_iter().filter(may).collect()
}

/// Returns the claims of the account that have these names.
pub(crate) fn named<'n>(account: &Account, names: impl Iterator<Item = &'n str>) -> Map<String, Value> {
    names.filter_map(|name| Some((name.to_owned(), value(account, name)?))).collect()
}

/// Returns the names of the claims that belong to these scopes.
pub(crate) fn of_scopes(scopes: &Scopes) -> impl Iterator<Item = &'static str> + use<'_> {
    let granted = OF_SCOPES.iter().filter(|(scope, _)| scopes.contains(scope));
    granted.flat_map(|(_, names)| names.iter().copied())
}

fn value(account: &Account, name: &str) -> Option<Value> {
    let email = || contact(account, |contact| matches!(contact, Contact::Email(_)));
    let phone = || contact(account, |contact| matches!(contact, Contact::Phone(_)));
    match name {
        "name" => Some(account.display_name()?.into()),
        "preferred_username" => Some(account.preferred_username()?.into()),
        "email" => Some(email()?.0.as_str().into()),
        "email_verified" => Some(email()?.1.into()),
        "phone_number" => Some(phone()?.0.as_str().into()),
        "phone_number_verified" => Some(phone()?.1.into()),
        _ => None,
    }
}

/// Returns the first verified contact of a kind, or the first one if none is verified.
fn contact(account: &Account, is: impl Fn(&Contact) -> bool) -> Option<(&Contact, bool)> {
    let all = || account.contacts().filter(|(contact, _)| is(contact));
    all().find(|(_, verified)| *verified).or_else(|| all().next())
}
