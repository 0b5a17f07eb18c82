//! The site itself: its tenant, its built-in client, and the paths to which users return.

use std::sync::Arc;

use crate::{
    auth::http::{
        problem::Problem,
        route::{FINISH_SIGN_IN, SIGN_IN, SIGN_OUT},
    },
    client::Client,
    http::{head::Head, return_to},
    support::issuer::Issuer,
    tenant::TenantSource,
};

/// The site on which the service is mounted, and whose users sign in to it directly.
pub(crate) struct FirstParty {
    pub(crate) source: Arc<dyn TenantSource>,
    /// The redirect URI of the built-in client.
    finish: String,
    /// Paths that `return_to` must not name, because they lead back here or sign the user out.
    own_paths: Vec<String>,
}

impl FirstParty {
    pub(crate) fn new(source: Arc<dyn TenantSource>, issuer: &Issuer) -> Self {
        let paths = [SIGN_IN, FINISH_SIGN_IN, SIGN_OUT];
        let own_paths = ["", issuer.path()].iter().flat_map(|base| paths.map(|path| format!("{base}{path}"))).collect();
        Self { source, finish: format!("{}{FINISH_SIGN_IN}", issuer.as_str()), own_paths }
    }

    /// Returns the built-in client of the request's tenant, or `None` if the request has no tenant.
    pub(crate) fn client(&self, head: Head<'_>) -> Option<Client> {
        let tenant = self.source.find(head).ok().flatten()?.to_tenant().ok()?;
        Some(Client::first_party(tenant, self.finish.clone()))
    }

    /// Checks where a user wants to return to. An empty text counts as none.
    pub(crate) fn return_to(&self, text: Option<&str>) -> Result<Option<String>, Problem> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        let path = return_to::local_path(text).ok_or(Problem::invalid("return_to is not a path of this site"))?;
        if return_to::resolved_paths(path).iter().any(|path| self.own_paths.contains(path)) {
            return Err(Problem::invalid("return_to must not lead to the sign-in or the sign-out"));
        }
        Ok(Some(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Tenant;

    #[test]
    fn c122_users_return_to_paths_of_this_site_other_than_the_sign_in_and_the_sign_out() {
        let issuer = Issuer::parse("https://site.example/auth").unwrap();
        let site = FirstParty::new(Arc::new(Tenant::parse("acme").unwrap()), &issuer);
        let returned = |text: &str| site.return_to(Some(text)).map_err(|problem| problem.detail);
        assert_eq!(site.return_to(None).unwrap(), None);
        assert_eq!(returned(""), Ok(None));
        for good in ["/", "/account?tab=1#top", "/auth", "/sign-in-help", "/other/sign-in"] {
            assert_eq!(returned(good), Ok(Some(good.to_owned())));
        }
        for bad in ["//evil.example", "/\\evil.example", "https://evil.example", "/%2Fevil.example", "/a%0d", "a"] {
            assert_eq!(returned(bad), Err("return_to is not a path of this site"), "{bad}");
        }
        for own in [
            "/sign-in",
            "/auth/sign-in?return_to=/",
            "/auth/sign-in/finish",
            "/auth/sign-out",
            "/sign-out#a",
            "/x/../auth/%73ign-in/",
        ] {
            assert_eq!(returned(own), Err("return_to must not lead to the sign-in or the sign-out"), "{own}");
        }
    }
}
