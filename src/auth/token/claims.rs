//! What is told of a user.

use serde_json::{Map, Value};

use crate::{
    client::Scopes,
    user::{Account, Contact},
};

/// Every claim about a user that can be asked for by name.
pub(super) const CLAIMS: &[&str] =
    &["name", "preferred_username", "email", "email_verified", "phone_number", "phone_number_verified"];

/// The claims of these names that the account has.
pub(super) fn named<'n>(account: &Account, names: impl Iterator<Item = &'n str>) -> Map<String, Value> {
    names.filter_map(|name| Some((name.to_owned(), value(account, name)?))).collect()
}

/// The claims that a scope stands for (OpenID Connect Core §5.4).
pub(super) fn of_scopes(scopes: &Scopes) -> impl Iterator<Item = &'static str> + use<'_> {
    scopes
        .iter()
        .flat_map(|scope| match scope {
            "profile" => &["name", "preferred_username"][..],
            "email" => &["email", "email_verified"],
            "phone" => &["phone_number", "phone_number_verified"],
            _ => &[],
        })
        .copied()
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
