//! The audience of access tokens.

use super::form::Posted;
use crate::{
    auth::{
        authorize::resources::{allowed_resources, select_resources},
        core::Core,
        http::problem::{Code, Problem},
    },
    bearer::Audience,
    client::Client,
    tokens::{Grant, TokenService},
};

/// Returns the audience of a token for a grant. A request can name some of the resources that were granted, and no others.
pub(crate) fn narrowed_audience(
    core: &Core,
    tokens: &TokenService,
    (client, grant): (&Client, &Grant),
    posted: &Posted<'_>,
) -> Result<Audience, Problem> {
    let default = [tokens.default_audience(client)];
    let granted: Vec<&str> = match grant.resources.as_slice() {
        [] => default.to_vec(),
        granted => granted.iter().map(String::as_str).collect(),
    };
    // a resource may have been taken from the client since
    let allowed = allowed_resources(core, client);
    if !granted.iter().all(|own| allowed.contains(own)) {
        return Err(Problem::new(Code::InvalidGrant, "the client may no longer use a resource that was granted"));
    }
    Ok(match select_resources(posted.resources(), &granted)? {
        none if none.is_empty() => Audience::of_names(granted),
        named => Audience::of_names(named),
    })
}

/// Returns the audience of a token that a client gets for itself.
pub(crate) fn machine_audience(
    core: &Core,
    tokens: &TokenService,
    client: &Client,
    posted: &Posted<'_>,
) -> Result<Audience, Problem> {
    Ok(match select_resources(posted.resources(), &allowed_resources(core, client))? {
        none if none.is_empty() => Audience::of_names([tokens.default_audience(client)]),
        named => Audience::of_names(named),
    })
}
