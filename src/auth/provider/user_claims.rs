//! Claims about users: which ones a client gets, and where they come from.

use serde_json::{Map, Value};

use crate::{
    auth::{
        authorize::claims_parameter::{OF_SCOPES, known},
        core::Core,
    },
    client::{Client, Scopes},
    store::StoreError,
    tokens::Grant,
    user::{Account, ClaimTarget, Claims, ClaimsRequest, Contact},
};

/// Returns the claims of the [`Users`](crate::Users) for a grant with this scope.
pub(crate) async fn extra_claims(
    core: &Core,
    account: &Account,
    grant: &Grant,
    scope: &Scopes,
) -> Result<Claims, StoreError> {
    let request = ClaimsRequest::new(grant.client_id())
        .with_scopes(scope.iter())
        .with_names(ClaimTarget::IdToken, grant.id_token.iter().cloned())
        .with_names(ClaimTarget::UserInfo, grant.userinfo.iter().cloned());
    core.users.claims(&grant.who.tenant, account, &request).await
}

/// Removes the names that the client may not ask for. A claim of the account needs the scope that it belongs to. About
/// other claims, the [`Users`](crate::Users) decide.
pub(crate) fn allowed_claims(client: &Client, names: Vec<String>) -> Vec<String> {
    let scopes = client.allowed_scopes();
    let is_of_account = |name: &String| known().any(|own| own == name);
    let may = |name: &String| {
        !is_of_account(name) || scopes.is_some_and(|scopes| claims_of_scopes(scopes).any(|own| own == name))
    };
    names.into_iter().filter(may).collect()
}

/// Returns the claims of the account that have these names.
pub(crate) fn account_claims<'n>(account: &Account, names: impl Iterator<Item = &'n str>) -> Map<String, Value> {
    names.filter_map(|name| Some((name.to_owned(), account_claim(account, name)?))).collect()
}

/// Returns the names of the claims that belong to these scopes.
pub(crate) fn claims_of_scopes(scopes: &Scopes) -> impl Iterator<Item = &'static str> + use<'_> {
    let granted = OF_SCOPES.iter().filter(|(scope, _)| scopes.contains(scope));
    granted.flat_map(|(_, names)| names.iter().copied())
}

fn account_claim(account: &Account, name: &str) -> Option<Value> {
    let email = || preferred_contact(account, |contact| matches!(contact, Contact::Email(_)));
    let phone = || preferred_contact(account, |contact| matches!(contact, Contact::Phone(_)));
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
fn preferred_contact(account: &Account, is: impl Fn(&Contact) -> bool) -> Option<(&Contact, bool)> {
    let all = || account.contacts().filter(|(contact, _)| is(contact));
    all().find(|(_, verified)| *verified).or_else(|| all().next())
}
