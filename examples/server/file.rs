//! Reads the file of `--config`, which replaces the demo's tenants, clients and users.

use std::{error::Error, fs, path::Path};

use serde::Deserialize;
use tollgate::{ClientIp, ClientTable, PasswordHash, Tenant};
use toml::Spanned;

use crate::{
    budgets::{Budgets, WrittenTenant},
    clients::WrittenClient,
    facts::Facts,
    person::{Person, Proof},
    policies::WrittenPolicies,
    tokens,
};

/// The contents of the file. `config.toml` in this folder lists every key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    issuer: Option<String>,
    #[serde(default)]
    proxies: Vec<String>,
    operator_key: Option<String>,
    #[serde(default)]
    insecure_print_codes: bool,
    per_address: Option<u32>,
    #[serde(default)]
    leases: bool,
    #[serde(default)]
    redis_plans: bool,
    #[serde(default)]
    tokens: tokens::Written,
    tenants: Vec<WrittenTenant>,
    clients: Vec<Spanned<WrittenClient>>,
    #[serde(default)]
    policies: WrittenPolicies,
    #[serde(default)]
    users: Vec<Spanned<WrittenUser>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenUser {
    tenant: String,
    id: String,
    name: Option<String>,
    identifiers: Vec<String>,
    password_hash: Option<String>,
    email: Option<String>,
    phone: Option<String>,
}

pub(crate) fn read(path: &Path) -> Result<Facts, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let file: File = toml::from_str(&text)?;
    let Budgets { known, keys, plans, per_address } = Budgets::read(file.tenants, file.per_address)?;
    let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let clients = file.clients.iter().map(|client| {
        let (line, client) = (line(client.span().start), client.get_ref());
        client.read().map_err(|error| format!("line {line}: clients: {:?}: {error}", client.id))
    });
    let clients = ClientTable::new(clients.collect::<Result<Vec<_>, _>>()?)?;
    let people = file.users.into_iter().map(|user| (line(user.span().start), user.into_inner()));
    let people: Vec<Person> = people.map(|(line, user)| user.read(line)).collect::<Result<_, _>>()?;
    let of_clients = clients.iter().map(|client| client.tenant());
    if let Some(tenant) = of_clients.chain(people.iter().map(|one| &one.tenant)).find(|one| !known.contains(one)) {
        return Err(format!("tenants: no tenant has the name {:?}", tenant.as_str()).into());
    }
    // all callers would have the proxy's address, so one of them could spend the budget of all
    if file.proxies.is_empty() && file.issuer.as_ref().is_some_and(|issuer| issuer.starts_with("https://")) {
        return Err("proxies: an https issuer needs a proxy in front: add its address, such as \"127.0.0.1\"".into());
    }
    Ok(Facts {
        issuer: file.issuer,
        is_behind_proxies: !file.proxies.is_empty(),
        client_ip: if file.proxies.is_empty() { ClientIp::peer() } else { ClientIp::behind(file.proxies)? },
        keys,
        operator_key: file.operator_key,
        plans,
        per_address: Some(per_address),
        leases: file.leases,
        redis_plans: file.redis_plans,
        policies: file.policies.read()?,
        clients,
        people,
        tokens: std::sync::Arc::new(file.tokens.read()?),
        #[cfg(feature = "external-providers")]
        provider: None,
        prints_codes: file.insecure_print_codes,
        is_demo: false,
    })
}

impl WrittenUser {
    fn read(self, line: usize) -> Result<Person, String> {
        let error = |why: &dyn std::fmt::Display| format!("line {line}: users: {:?}: {why}", self.id);
        let tenant = Tenant::parse(&self.tenant).map_err(|why| error(&why))?;
        let hash = self.password_hash.as_ref().map(PasswordHash::parse).transpose().map_err(|why| error(&why))?;
        Ok(Person {
            tenant,
            id: self.id,
            name: self.name,
            identifiers: self.identifiers,
            password: hash.map(Proof::Hash),
            email: self.email,
            phone: self.phone,
            line: Some(line),
        })
    }
}
