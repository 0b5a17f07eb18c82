//! Resource indicators (RFC 8707): the APIs for which a client requests tokens.

use crate::{
    auth::{
        core::Core,
        http::problem::{Code, Problem},
    },
    client::{Client, normal_resource},
};

/// The only parameter that may be repeated.
pub(crate) const RESOURCE: &str = "resource";

/// The maximum number of resources of a request. All of them are audiences of one token.
const MOST: usize = 8;

/// Returns the resources that a client may request: those that the operator lists, and the audience of tokens without any.
pub(crate) fn allowed_resources<'a>(core: &'a Core, client: &'a Client) -> Vec<&'a str> {
    let default = core.tokens.as_ref().map(|tokens| tokens.service.default_audience(client));
    client.resources().chain(default).collect()
}

/// Returns the resources that a request names, sorted and each once. All of them must be allowed. Empty values count as
/// missing.
pub(crate) fn select_resources<'v>(
    named: impl Iterator<Item = &'v str>,
    allowed: &[&str],
) -> Result<Vec<String>, Problem> {
    let mut selected: Vec<String> = Vec::new();
    for uri in named.filter(|uri| !uri.is_empty()) {
        let normal = normal_resource(uri)
            .ok_or_else(|| invalid_target("resource must be an absolute URI without a fragment"))?;
        let own = allowed.iter().find(|own| normal_resource(own) == Some(normal));
        let own = own.ok_or_else(|| invalid_target("resource is not allowed for this request"))?;
        if let Err(place) = selected.binary_search_by(|other| other.as_str().cmp(own)) {
            if selected.len() == MOST {
                return Err(invalid_target("at most 8 resources can be requested"));
            }
            selected.insert(place, (*own).to_owned());
        }
    }
    Ok(selected)
}

fn invalid_target(detail: &'static str) -> Problem {
    Problem::new(Code::InvalidTarget, detail)
}
