//! What is told of a user.

use serde_json::{Map, Value};

pub(crate) use crate::auth::authorize::claims::all;
use crate::{
    auth::{authorize::claims::OF_SCOPES, context::RequestContext},
    client::{Client, Scopes},
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    user::{Account, Contact, Identifier},
};

/// Those of these names that the client may know: what it asks for by name, it could have asked for by a scope.
pub(crate) fn allowed(client: &Client, names: Vec<String>) -> Vec<String> {
    let scopes = client.allowed_scopes();
    let may = |name: &String| scopes.is_some_and(|scopes| of_scopes(scopes).any(|own| own == name));
    names.into_iter().filter(may).collect()
}

/// The account that something was given for, if it may still log in.
pub(crate) async fn account(
    cx: &RequestContext<'_>,
    (tenant, user): (&Tenant, &UserId),
    _: &Identifier,
) -> Result<Option<Account>, StoreError> {
    let account = cx.core.users.by_id(tenant, user).await?;
    Ok(account.filter(|account| account.id() == user && !account.is_disabled()))
}

/// The claims of these names that the account has.
pub(crate) fn named<'n>(account: &Account, names: impl Iterator<Item = &'n str>) -> Map<String, Value> {
    names.filter_map(|name| Some((name.to_owned(), value(account, name)?))).collect()
}

/// The claims that scopes stand for.
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

/// The first contact of a kind that is verified, else the first.
fn contact(account: &Account, is: impl Fn(&Contact) -> bool) -> Option<(&Contact, bool)> {
    let all = || account.contacts().filter(|(contact, _)| is(contact));
    all().find(|(_, verified)| *verified).or_else(|| all().next())
}
