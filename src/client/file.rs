//! Clients as they are written down. One shape serves JSON and TOML.

use serde::Deserialize;

use super::Client;
use crate::{
    document::{self, Object},
    error::ConfigError,
    policy,
    tenant::Tenant,
};

const SETTING: &str = "clients";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    clients: Vec<Object<Written>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    tenant: String,
    name: Option<String>,
    redirect_uris: Vec<String>,
    /// On `localhost`, for development.
    #[serde(default)]
    insecure_localhost: Vec<String>,
    scopes: Vec<String>,
    #[serde(default)]
    origins: Vec<String>,
    policy: Option<Object<policy::file::Written>>,
    #[serde(default)]
    single_sign_on: bool,
    #[serde(default)]
    require_pushed_requests: bool,
}

pub(super) fn from_json(text: &str) -> Result<Vec<Client>, ConfigError> {
    document::from_json::<File>(SETTING, text)?.read()
}

#[cfg(feature = "toml")]
pub(super) fn from_toml(text: &str) -> Result<Vec<Client>, ConfigError> {
    document::from_toml::<File>(SETTING, text)?.read()
}

impl File {
    fn read(self) -> Result<Vec<Client>, ConfigError> {
        let read = |(number, Object(written)): (usize, Object<Written>)| {
            let place = format!("clients[{number}] \"{}\"", written.id.escape_debug());
            written.read().map_err(|error| error.at(&place))
        };
        self.clients.into_iter().enumerate().map(read).collect()
    }
}

impl Written {
    fn read(self) -> Result<Client, ConfigError> {
        let tenant = Tenant::parse(&self.tenant);
        let tenant = tenant.map_err(|error| ConfigError::new("tenant", self.tenant.escape_debug(), error.detail()))?;
        let mut client = Client::new(&self.id, tenant)?.scopes(&self.distinct_scopes()?)?;
        for uri in &self.redirect_uris {
            client = client.redirect_uri(uri)?;
        }
        for uri in &self.insecure_localhost {
            client = client.insecure_localhost(uri)?;
        }
        for origin in &self.origins {
            client = client.origin(origin)?;
        }
        if let Some(name) = &self.name {
            client = client.name(name)?;
        }
        if self.require_pushed_requests {
            client = client.require_pushed_requests();
        }
        if self.single_sign_on {
            client = client.single_sign_on();
        }
        Ok(match self.policy {
            Some(Object(policy)) => client.policy(policy.read("policy")?),
            None => client,
        })
    }

    /// As [`Client::scopes`] takes them.
    fn distinct_scopes(&self) -> Result<String, ConfigError> {
        let mut names: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find_map(|pair| matches!(pair, [a, b] if a == b).then(|| pair.first())) {
            return Err(ConfigError::new("scopes", twice.copied().unwrap_or_default(), "stands there twice"));
        }
        if let Some(bad) = names.iter().find(|name| name.contains(' ')) {
            return Err(ConfigError::new("scopes", bad.escape_debug(), "is no name of a scope"));
        }
        Ok(names.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn expected() -> Client {
        let client = Client::new("demo-web", Tenant::parse("acme").unwrap()).unwrap();
        let client = client.redirect_uri("http://127.0.0.1:8080/demo/callback").unwrap();
        let client = client.scopes("openid profile email").unwrap().origin("https://app.example").unwrap();
        client.policy(Policy::any(2).unwrap())
    }

    #[cfg(feature = "toml")]
    #[test]
    fn clients_are_read_from_toml() {
        let text = r#"
            [[clients]]
            id = "demo-web"
            tenant = "acme"
            redirect_uris = ["http://127.0.0.1:8080/demo/callback"]
            scopes = ["openid", "profile", "email"]
            origins = ["https://app.example"]
            policy = { steps = 2 }
        "#;
        assert_eq!(from_toml(text), Ok(vec![expected()]));
        let error = from_toml(&text.replace("origins", "origin")).unwrap_err().to_string();
        assert!(error.starts_with("clients: line 7 is not usable: unknown field `origin`, expected one of"), "{error}");
        for bad in ["", "[clients]\nid = 1", "clients = 1", &format!("{text}\nid = \"x\""), "[[clients]]\n"] {
            assert!(from_toml(bad).is_err(), "{bad}");
        }
    }

    const GOOD: &str = r#"{"clients":[{"id":"demo-web","tenant":"acme","redirect_uris":["http://127.0.0.1:8080/demo/callback"],
        "scopes":["openid","profile","email"],"origins":["https://app.example"],"policy":{"steps":2}}]}"#;

    #[test]
    fn clients_are_read_from_json() {
        assert_eq!(from_json(GOOD), Ok(vec![expected()]));
        let more = GOOD.replace(
            "\"origins\"",
            "\"name\":\"Demo\",\"single_sign_on\":true,\"require_pushed_requests\":true,\"insecure_localhost\":[\"http://localhost/cb\"],\"origins\"",
        );
        let more = from_json(&more).unwrap().remove(0);
        assert_eq!(more.display_name(), "Demo");
        assert!(more.needs_pushed_requests() && more.has_single_sign_on() && !expected().has_single_sign_on());
        assert!(more.accepts_redirect("http://localhost/cb"));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        let refused = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            from_json(&GOOD.replace(from, to)).unwrap_err().to_string()
        };
        for (from, to, message) in [
            (
                "http://127.0.0.1:8080",
                "http://app.example",
                "redirect URI: clients[0] \"demo-web\": http://app.example/demo/callback is not usable: must be https, \
                 except on 127.0.0.1 or [::1]",
            ),
            (
                "\"steps\":2",
                "\"steps\":9",
                "policy: clients[0] \"demo-web\": policy: 9 steps is not usable: must have 1 to 5 steps",
            ),
            (
                "\"acme\"",
                "\"~acme\"",
                "tenant: clients[0] \"demo-web\": ~acme is not usable: the name of the tenant is reserved",
            ),
            ("\"profile\"", "\"openid\"", "scopes: clients[0] \"demo-web\": openid is not usable: stands there twice"),
            ("\"profile\"", "\"a b\"", "scopes: clients[0] \"demo-web\": a b is not usable: is no name of a scope"),
            (
                "\"id\"",
                "\"ID\"",
                "clients: line 1, column 17 is not usable: unknown field `ID`, expected one of `id`, \
              `tenant`, `name`, `redirect_uris`, `insecure_localhost`, `scopes`, `origins`, `policy`, `single_sign_on`, `require_pushed_requests`",
            ),
        ] {
            assert_eq!(refused(from, to), message);
        }
        for (from, to) in [
            ("\"demo-web\"", "\"\""),
            ("[\"openid\",\"profile\",\"email\"]", "[]"),
            ("\"openid\"", "\"\""),
            ("\"openid\"", "\"open\\\\id\""),
            ("[\"openid\",\"profile\",\"email\"]", "\"openid\""),
            ("https://app.example", "*"),
            ("{\"steps\":2}", "[2,null]"),
            ("{\"steps\":2}", "{}"),
            ("\"tenant\"", "\"id\""),
            ("{\"clients\"", "{\"x\":1,\"clients\""),
        ] {
            refused(from, to);
        }
        for bad in ["", "[]", "{}", "null", r#"{"clients":[[]]}"#, r#"{"clients":{}}"#] {
            assert!(from_json(bad).is_err(), "{bad}");
        }
    }
}
