//! Clients in JSON and TOML documents.

use serde::Deserialize;

use super::record::Client;
use crate::{
    policy,
    support::document::{self, Object},
    tenant::Tenant,
    util::error::ConfigError,
};

const SETTING: &str = "clients";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientFile {
    clients: Vec<Object<WrittenClient>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClient {
    id: String,
    tenant: String,
    name: Option<String>,
    #[serde(default)]
    redirect_uris: Vec<String>,
    /// On `localhost`, for development.
    #[serde(default)]
    insecure_localhost: Vec<String>,
    scopes: Vec<String>,
    #[serde(default)]
    origins: Vec<String>,
    policy: Option<Object<policy::file::WrittenPolicy>>,
    #[serde(default)]
    single_sign_on: bool,
    #[serde(default)]
    require_pushed_requests: bool,
    /// The public keys of a machine client.
    jwks: Option<serde_json::Value>,
    audience: Option<String>,
    id_token_algorithm: Option<String>,
    #[serde(default = "yes")]
    refresh_tokens: bool,
    #[serde(default = "yes")]
    id_token_on_refresh: bool,
    #[serde(default)]
    require_dpop: bool,
    #[serde(default)]
    recheck_policy: bool,
    #[serde(default)]
    after_logout: Vec<String>,
    /// On `localhost`, for development.
    #[serde(default)]
    insecure_localhost_after_logout: Vec<String>,
}

fn yes() -> bool {
    true
}

pub(super) fn from_json(text: &str) -> Result<Vec<Client>, ConfigError> {
    document::from_json::<ClientFile>(SETTING, text)?.read()
}

#[cfg(feature = "toml")]
pub(super) fn from_toml(text: &str) -> Result<Vec<Client>, ConfigError> {
    document::from_toml::<ClientFile>(SETTING, text)?.read()
}

impl ClientFile {
    fn read(self) -> Result<Vec<Client>, ConfigError> {
        let read = |(number, Object(written)): (usize, Object<WrittenClient>)| {
            let place = format!("clients[{number}] \"{}\"", written.id.escape_debug());
            written.read().map_err(|error| error.at(&place))
        };
        self.clients.into_iter().enumerate().map(read).collect()
    }
}

impl WrittenClient {
    fn read(self) -> Result<Client, ConfigError> {
        let tenant = Tenant::parse(&self.tenant);
        let tenant = tenant.map_err(|error| ConfigError::new("tenant", self.tenant.escape_debug(), error.detail()))?;
        let mut client = self.client(tenant)?.scopes(&self.distinct_scopes()?)?;
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
        let client = self.with_tokens(client)?;
        Ok(match self.policy {
            Some(Object(policy)) => client.policy(policy.read("policy")?),
            None => client,
        })
    }

    fn client(&self, tenant: Tenant) -> Result<Client, ConfigError> {
        if let Some(keys) = &self.jwks {
            return Client::machine(&self.id, tenant, &keys.to_string());
        }
        Client::new(&self.id, tenant)
    }

    fn with_tokens(&self, mut client: Client) -> Result<Client, ConfigError> {
        if let Some(audience) = &self.audience {
            client = client.audience(audience)?;
        }
        if let Some(name) = &self.id_token_algorithm {
            let algorithm = name.parse().map_err(|error: crate::jose::AlgorithmError| {
                ConfigError::new("id_token_algorithm", name.escape_debug(), error.to_string())
            })?;
            client = client.id_token_algorithm(algorithm);
        }
        if !self.refresh_tokens {
            client = client.without_refresh_tokens();
        }
        if !self.id_token_on_refresh {
            client = client.without_id_token_on_refresh();
        }
        if self.require_dpop {
            client = client.require_dpop();
        }
        if self.recheck_policy {
            client = client.recheck_policy();
        }
        for uri in &self.after_logout {
            client = client.after_logout(uri)?;
        }
        for uri in &self.insecure_localhost_after_logout {
            client = client.insecure_localhost_after_logout(uri)?;
        }
        Ok(client)
    }

    /// Returns the scopes in the form that [`Client::scopes`] expects.
    fn distinct_scopes(&self) -> Result<String, ConfigError> {
        let mut names: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find_map(|pair| matches!(pair, [a, b] if a == b).then(|| pair.first())) {
            return Err(ConfigError::new("scopes", twice.copied().unwrap_or_default(), "is listed twice"));
        }
        if let Some(bad) = names.iter().find(|name| name.contains(' ')) {
            return Err(ConfigError::new("scopes", bad.escape_debug(), "is not a valid scope name"));
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

    #[cfg(feature = "toml")]
    #[test]
    fn a15_machine_clients_are_read_from_toml() {
        let key = r#"{ kty = "OKP", crv = "Ed25519", x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }"#;
        let text = |jwks: &str| {
            format!("[[clients]]\nid = \"billing\"\ntenant = \"acme\"\nscopes = [\"invoices:write\"]\njwks = {jwks}")
        };
        let read = from_toml(&text(&format!("{{ keys = [{key}] }}"))).unwrap().remove(0);
        let jwks = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        let expected = Client::machine("billing", Tenant::parse("acme").unwrap(), jwks).unwrap();
        assert_eq!(read, expected.scopes("invoices:write").unwrap());
        for bad in ["{ keys = [] }", "1", "\"keys\""] {
            assert!(from_toml(&text(bad)).is_err(), "{bad}");
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
        assert!(more.redirect("http://localhost/cb").is_some());
    }

    #[test]
    fn token_settings_are_read() {
        use crate::jose::Algorithm;
        let with = |more: &str| from_json(&GOOD.replace("\"origins\"", &format!("{more},\"origins\"")));
        let written = with(
            r#""audience":"https://api.example","id_token_algorithm":"RS256","refresh_tokens":false,
                "id_token_on_refresh":false,"require_dpop":true,"after_logout":["https://app.example/bye","https://app.example/"],
                "insecure_localhost_after_logout":["http://localhost:3000/bye"]"#,
        );
        let client = expected().audience("https://api.example").unwrap().id_token_algorithm(Algorithm::Rs256);
        let client = client.without_refresh_tokens().without_id_token_on_refresh().require_dpop();
        let client =
            client.after_logout("https://app.example/bye").unwrap().after_logout("https://app.example/").unwrap();
        let client = client.insecure_localhost_after_logout("http://localhost:3000/bye").unwrap();
        assert_eq!(written, Ok(vec![client]));
        assert_eq!(
            with(r#""refresh_tokens":true,"id_token_on_refresh":true,"require_dpop":false,"after_logout":[]"#),
            Ok(vec![expected()])
        );

        let refused = with(r#""id_token_algorithm":"none""#).unwrap_err().to_string();
        let message = "id_token_algorithm: clients[0] \"demo-web\": none is not usable: unknown algorithm: use ES256, EdDSA or RS256";
        assert_eq!(refused, message);
        for bad in [
            r#""audience":"""#,
            r#""after_logout":["http://app.example/"]"#,
            r#""after_logout":["http://localhost/"]"#,
            r#""insecure_localhost_after_logout":["http://app.example/"]"#,
            r#""after_logout":["https://app.example/","https://app.example/"]"#,
            r#""refresh_tokens":"no""#,
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_name_their_place() {
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
                "policy: clients[0] \"demo-web\": policy: 9 steps is not usable: must have 1 to 6 steps",
            ),
            (
                "\"acme\"",
                "\"~acme\"",
                "tenant: clients[0] \"demo-web\": ~acme is not usable: the tenant name is reserved",
            ),
            ("\"profile\"", "\"openid\"", "scopes: clients[0] \"demo-web\": openid is not usable: is listed twice"),
            ("\"profile\"", "\"a b\"", "scopes: clients[0] \"demo-web\": a b is not usable: is not a valid scope name"),
            (
                "\"id\"",
                "\"ID\"",
                "clients: line 1, column 17 is not usable: unknown field `ID`, expected one of `id`, \
              `tenant`, `name`, `redirect_uris`, `insecure_localhost`, `scopes`, `origins`, `policy`, `single_sign_on`, `require_pushed_requests`",
            ),
        ] {
            // the list goes on with fields of optional features
            let says = refused(from, to);
            assert!(says.starts_with(message) && (says == message || says.contains("unknown field")), "{says}");
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
