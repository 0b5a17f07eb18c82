use std::{borrow::Cow, sync::Arc};

use crate::{
    http::head::Head,
    util::{error::ConfigError, form},
};

/// Decides which requests need a challenge.
#[derive(Clone)]
pub(super) struct Scope {
    /// Without a trailing slash. `None` means every path.
    path: Option<String>,
    condition: Option<Arc<Condition>>,
}

type Condition = dyn Fn(Head<'_>) -> bool + Send + Sync;

impl Scope {
    pub(super) const EVERYWHERE: Self = Self { path: None, condition: None };

    pub(super) fn path(path: &str) -> Result<Self, ConfigError> {
        let plain = path.starts_with('/') && !path.contains(['?', '#', '%', '*', '{']);
        ConfigError::refuse_if(!plain, "pkce path", path, "must be a plain path that starts with /")?;
        Ok(Self { path: Some(trim(path).to_owned()), condition: None })
    }

    pub(super) fn narrowed(self, condition: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { path: self.path, condition: Some(Arc::new(condition)) }
    }

    /// Returns whether a request needs a challenge. CORS preflights never do.
    pub(super) fn covers(&self, head: Head<'_>) -> bool {
        if head.is_preflight() {
            return false;
        }
        let on_path = self.path.as_ref().is_none_or(|path| matches_path(head.uri().path(), path));
        on_path && self.condition.as_ref().is_none_or(|condition| condition(head))
    }
}

crate::util::fmt::debug_fields!(Scope, |own| path: own.path.as_deref().unwrap_or("every"), condition: own.condition.is_some());

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
    use http::{Method, Request};

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
    fn a_condition_narrows_the_scope() {
        let posts = |head: Head<'_>| head.method() == Method::POST;
        let covers = |scope: Scope, method: &str| {
            scope.covers(Head::of_request(&Request::builder().method(method).uri("/a").body(()).unwrap()))
        };
        assert!(covers(Scope::path("/a").unwrap().narrowed(posts), "POST"));
        assert!(!covers(Scope::path("/a").unwrap().narrowed(posts), "GET"));
        assert!(!covers(Scope::path("/b").unwrap().narrowed(posts), "POST"));
        assert!(covers(Scope::EVERYWHERE.narrowed(posts), "POST"));
        assert!(!covers(Scope::EVERYWHERE.narrowed(posts), "GET"));
    }

    #[test]
    fn paths_that_could_never_match_are_rejected() {
        for path in ["", "authorize", "/a?b", "/a#b", "/%61", "/{id}", "/*rest"] {
            assert!(Scope::path(path).is_err(), "{path}");
        }
    }
}
