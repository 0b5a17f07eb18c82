use std::borrow::Cow;

use crate::{
    http::head::Head,
    util::{error::ConfigError, form},
};

/// Decides which requests need a challenge.
#[derive(Clone)]
pub(super) struct Scope {
    /// Without a trailing slash. `None` means every path.
    path: Option<String>,
}

impl Scope {
    pub(super) const EVERYWHERE: Self = Self { path: None };

    pub(super) fn path(path: &str) -> Result<Self, ConfigError> {
        let plain = path.starts_with('/') && !path.contains(['?', '#', '%', '*', '{']);
        ConfigError::refuse_if(!plain, "pkce path", path, "must be a plain path that starts with /")?;
        Ok(Self { path: Some(trim(path).to_owned()) })
    }

    /// Returns whether a request needs a challenge. CORS preflights never do.
    pub(super) fn covers(&self, head: Head<'_>) -> bool {
        !head.is_preflight() && self.path.as_ref().is_none_or(|path| matches_path(head.uri().path(), path))
    }
}

crate::util::fmt::debug_fields!(Scope, |own| path: own.path.as_deref().unwrap_or("every"));

/// Returns whether a router might treat `path` as `wanted`. Some routers decode paths, and some
/// ignore trailing slashes.
fn matches_path(path: &str, wanted: &str) -> bool {
    let path = if path.contains('%') { form::decode_path(path).unwrap_or_default() } else { Cow::Borrowed(path) };
    trim(&path) == wanted
}

fn trim(path: &str) -> &str {
    path.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn equivalent_paths_are_covered() {
        let scope = Scope::path("/oauth/authorize").unwrap();
        let covers = |path: &str| scope.covers(Head::of_request(&Request::get(path).body(()).unwrap()));
        for path in [
            "/oauth/authorize",
            "/oauth/authorize?x=/",
            "/oauth/authorize/",
            "/oauth/%61uthorize",
            "/oauth%2fauthorize%2F",
            "https://example.com/oauth/authorize",
        ] {
            assert!(covers(path), "{path}");
        }
        for path in ["/", "/oauth", "/oauth/authorize/x", "/oauth/authorizex", "/x/oauth/authorize", "/oauth/AUTHORIZE"]
        {
            assert!(!covers(path), "{path}");
        }
    }

    #[test]
    fn the_root_path_is_covered() {
        let scope = Scope::path("/").unwrap();
        assert!(scope.covers(Head::of_request(&Request::get("/?a").body(()).unwrap())));
        assert!(!scope.covers(Head::of_request(&Request::get("/a").body(()).unwrap())));
    }

    #[test]
    fn paths_that_could_never_match_are_rejected() {
        for path in ["", "authorize", "/a?b", "/a#b", "/%61", "/{id}", "/*rest"] {
            assert!(Scope::path(path).is_err(), "{path}");
        }
    }
}
