//! Reads the file of `--config`, which replaces the demo's tenants, clients and users.

use std::{error::Error, fs, path::Path};

use tollgate::{ApiKeys, ClientIp, ClientTable, event::TenantsAndOperator};
use toml::Spanned;

use crate::{
    auth, budgets::Budgets, clients::WrittenClient, demo::KEY_HEADER, facts::Facts, login_settings::LoginSettings,
    person::Person, policies::WrittenPolicies, problems::Problems, secret_text::SecretText,
    server_settings::ServerSettings, written::Written,
};

/// The settings of the file of `--config`.
pub(crate) struct File {
    pub(crate) facts: Facts,
    pub(crate) login: LoginSettings,
    pub(crate) server: ServerSettings,
}

/// Reads the file, and reports all that is wrong with its values at once.
pub(crate) fn read(path: &Path) -> Result<File, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let mut problems = Problems::of(&text);
    let mut written: Written = match problems.read_all() {
        Ok(written) => written,
        Err(error) => return Err(problems.text_with(&error)),
    };
    let server = written.server(directory, &mut problems);
    let login = written.login(directory, &mut problems);
    let facts = written.facts(directory, &mut problems);
    match facts {
        Ok(facts) if problems.is_empty() => Ok(File { facts, login, server }),
        Ok(_) => Err(problems.text().into()),
        Err(error) => Err(problems.text_with(&*error)),
    }
}

impl Written {
    fn facts(self, directory: &Path, problems: &mut Problems<'_>) -> Result<Facts, Box<dyn Error>> {
        if self.tenants.is_none() && !problems.is_incomplete("tenants") {
            problems.note(0..0, "missing field `tenants`");
        }
        let tenants = self.tenants.unwrap_or_default();
        let per_address = self.per_address.as_ref();
        let Budgets { known, keys, plans, per_address } = Budgets::read(&tenants, per_address, directory, problems)?;
        if let Some(written) = &self.account_pages {
            problems.read("account_pages: ", written, |name| known.check(name));
        }
        let tokens = self.tokens.as_ref();
        let tokens = tokens.and_then(|tokens| problems.read("", tokens, |tokens| tokens.read(directory)));
        let key = self.operator_key.as_ref();
        let operator_key = key.and_then(|key| problems.read("operator_key: ", key, |key| operator_key(key, directory)));
        let clients = self.clients.iter().filter_map(|client| {
            let place = format!("clients: {:?}: ", client.get_ref().id);
            problems.read(&place, client, |client: &WrittenClient| known.check(&client.tenant));
            problems.read(&place, client, |client: &WrittenClient| {
                let client = client.read(directory)?;
                ClientTable::new([client.clone()])?;
                Ok::<_, Box<dyn Error>>(client)
            })
        });
        let clients = clients.collect::<Vec<_>>();
        let people = self.users.iter().filter_map(|user| {
            let (line, place) = (problems.line(user.span()), format!("users: {:?}: ", user.get_ref().id));
            problems.read(&place, user, |user| known.check(&user.tenant));
            problems.read(&place, user, |user| user.read(line, directory))
        });
        let people: Vec<Person> = people.collect();
        let policies = self.policies.as_ref().filter(|_| !problems.is_damaged("policies"));
        let policies = policies.and_then(|written| problems.read("", written, WrittenPolicies::read));
        let home_url = self.pages.as_ref().and_then(|theme| theme.get_ref().home_url.clone());
        let pages = self.pages.as_ref().and_then(|theme| problems.read("", theme, |theme| theme.read(directory)));
        let proxies = self.proxies.as_ref();
        let client_ip = proxies.filter(|proxies| !proxies.get_ref().is_empty());
        let client_ip =
            client_ip.and_then(|proxies| problems.read("proxies: ", proxies, |list| ClientIp::behind(list.clone())));
        let is_behind_proxies = client_ip.is_some();
        if let Some(issuer) = &self.issuer {
            problems.read("", issuer, |issuer| auth::check(issuer, Ok));
        }
        // all callers would have the proxy's address, so one of them could spend the budget of all
        let needs_proxies = proxies.is_none_or(|proxies| proxies.get_ref().is_empty());
        if let Some(issuer) = self.issuer.as_ref().filter(|_| needs_proxies && !problems.is_incomplete("proxies")) {
            problems.read("proxies: ", issuer, |issuer| match issuer.starts_with("https://") {
                true => Err("an https issuer needs a proxy in front: add its address, such as \"127.0.0.1\""),
                false => Ok(()),
            });
        }
        Ok(Facts {
            issuer: self.issuer.map(Spanned::into_inner),
            is_behind_proxies,
            client_ip: client_ip.unwrap_or_else(ClientIp::peer),
            keys,
            operator_key,
            plans,
            per_address,
            leases: self.leases,
            redis_plans: self.redis_plans,
            policies: policies.unwrap_or_default(),
            clients: ClientTable::new(clients)?,
            people,
            home_url,
            pages: pages.unwrap_or_default(),
            tokens: std::sync::Arc::new(tokens.unwrap_or_default()),
            #[cfg(feature = "external-providers")]
            provider: None,
            prints_codes: self.insecure_print_codes,
            is_demo: false,
        })
    }
}

/// Reads the operator's key, and checks its length.
fn operator_key(key: &SecretText, directory: &Path) -> Result<String, Box<dyn Error>> {
    let key = key.read(directory)?;
    TenantsAndOperator::new(ApiKeys::new(KEY_HEADER)?).operator_key(&key)?;
    Ok(key)
}
