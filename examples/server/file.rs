//! Reads the file of `--config`, which replaces the demo's tenants, clients and users.

use std::{error::Error, fs, path::Path};

use tollgate::{ClientIp, ClientTable};

use crate::{
    budgets::Budgets, clients::WrittenClient, facts::Facts, login_settings::LoginSettings, person::Person,
    problems::Problems, server_settings::ServerSettings, written::Written,
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
    let mut written: Written = match problems.read_known() {
        Ok(written) => written,
        Err(error) => return Err(problems.text_with(&error)),
    };
    let server = written.server(directory, &mut problems);
    let login = written.login(directory, &mut problems);
    let facts = written.facts(directory, &login, &mut problems);
    match facts {
        Ok(facts) if problems.is_empty() => Ok(File { facts, login, server }),
        Ok(_) => Err(problems.text().into()),
        Err(error) => Err(problems.text_with(&*error)),
    }
}

impl Written {
    fn facts(
        self,
        directory: &Path,
        login: &LoginSettings,
        problems: &mut Problems<'_>,
    ) -> Result<Facts, Box<dyn Error>> {
        let tokens = self.tokens.as_ref();
        let tokens = tokens.and_then(|tokens| problems.read("", tokens, |tokens| tokens.read(directory)));
        let key = self.operator_key.as_ref();
        let operator_key = key.and_then(|key| problems.read("operator_key: ", key, |key| key.read(directory)));
        let clients = self.clients.iter().filter_map(|client| {
            let place = format!("clients: {:?}: ", client.get_ref().id);
            problems.read(&place, client, |client: &WrittenClient| client.read(directory))
        });
        let clients = clients.collect::<Vec<_>>();
        let people = self.users.iter().filter_map(|user| {
            let (line, place) = (problems.line(user.span()), format!("users: {:?}: ", user.get_ref().id));
            problems.read(&place, user, |user| user.read(line, directory))
        });
        let people: Vec<Person> = people.collect();
        let Budgets { known, keys, plans, per_address } = Budgets::read(self.tenants, self.per_address, directory)?;
        let of_clients = clients.iter().map(tollgate::Client::tenant);
        let named = of_clients.chain(people.iter().map(|one| &one.tenant)).chain(&login.account_pages);
        if let Some(tenant) = named.into_iter().find(|one| !known.contains(one)) {
            return Err(format!("tenants: no tenant has the name {:?}", tenant.as_str()).into());
        }
        // all callers would have the proxy's address, so one of them could spend the budget of all
        if self.proxies.is_empty() && self.issuer.as_ref().is_some_and(|issuer| issuer.starts_with("https://")) {
            let error = "proxies: an https issuer needs a proxy in front: add its address, such as \"127.0.0.1\"";
            return Err(error.into());
        }
        Ok(Facts {
            issuer: self.issuer,
            is_behind_proxies: !self.proxies.is_empty(),
            client_ip: if self.proxies.is_empty() { ClientIp::peer() } else { ClientIp::behind(self.proxies)? },
            keys,
            operator_key,
            plans,
            per_address: Some(per_address),
            leases: self.leases,
            redis_plans: self.redis_plans,
            policies: self.policies.read()?,
            clients: ClientTable::new(clients)?,
            people,
            home_url: self.pages.home_url.clone(),
            pages: self.pages.read(directory)?,
            tokens: std::sync::Arc::new(tokens.unwrap_or_default()),
            #[cfg(feature = "external-providers")]
            provider: None,
            prints_codes: self.insecure_print_codes,
            is_demo: false,
        })
    }
}
