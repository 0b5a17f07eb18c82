//! The tenants, clients and users of the demo. Their keys are public. Real keys are random and kept out of the source.

use std::error::Error;

use tollgate::{ApiKeys, Client, ClientIp, ClientTable, ConfigError, Plans, Policies, Quota, Tenant, policy::Policy};

use crate::{
    facts::Facts,
    person::{Person, Proof},
};

pub(crate) const KEY_HEADER: &str = "x-api-key";
pub(crate) const OPERATOR_KEY: &str = "demo-operator-key";
pub(crate) const ACME: &str = "acme";
pub(crate) const ACME_KEY: &str = "demo-acme-key";
pub(crate) const GLOBEX_KEY: &str = "demo-globex-key";

/// Encrypts the keys of authenticator apps.
pub(crate) const SEAL: &str = "ZGVtbyBzZWFsIHRoYXQgaXMga25vd24gdG8gYWxsLi4";
/// An authentication level that any client can request in `acr_values`.
pub(crate) const TWO_STEPS: &str = "two-steps";
pub(crate) const CLIENTS: [&str; 4] = ["demo-web", "demo-mfa", "demo-native", "demo-partner"];
/// The scopes of the clients.
pub(crate) const SCOPES: &str = "openid profile email";
pub(crate) const CALLBACK: &str = "/demo/callback";
pub(crate) const NATIVE_CALLBACK: &str = "/callback";
pub(crate) const AFTER_LOGOUT: &str = "/demo/";

/// A user of acme.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    full_name: &'static str,
    pub(crate) password: &'static str,
    pub(crate) email: &'static str,
    pub(crate) phone: &'static str,
}

pub(crate) const PEOPLE: [Known; 2] = [
    Known {
        name: "ada",
        full_name: "Ada Lovelace",
        password: "correct horse battery staple",
        email: "ada@example.com",
        phone: "+15555550100",
    },
    Known {
        name: "grace",
        full_name: "Grace Hopper",
        password: "compilers are polite",
        email: "grace@example.com",
        phone: "+15555550101",
    },
];

/// Returns the demo settings for a server at this origin.
pub(crate) fn facts(origin: &str) -> Result<Facts, Box<dyn Error>> {
    let per_minute = |limit| Quota::per_minute(limit)?.with_name("per-minute");
    let plans = Plans::new(per_minute(600)?);
    let acme = Tenant::parse(ACME)?;
    plans.set(acme.clone(), per_minute(600)?);
    plans.set(Tenant::parse("globex")?, per_minute(60)?);
    Ok(Facts {
        issuer: None,
        client_ip: ClientIp::peer(),
        is_behind_proxies: false,
        keys: ApiKeys::new(KEY_HEADER)?.key(ACME_KEY, ACME)?.key(GLOBEX_KEY, "globex")?,
        operator_key: Some(OPERATOR_KEY.to_owned()),
        plans,
        per_address: None, // by the letter of the interface, any request spends the tenant's budget
        leases: false,
        redis_plans: false,
        policies: Policies::default().acr(TWO_STEPS, Policy::any(2)?)?,
        clients: clients(origin, &acme)?,
        pages: crate::theme::demo_pages(origin),
        home_url: Some(AFTER_LOGOUT.to_owned()),
        people: PEOPLE.iter().map(|known| known.of(&acme)).collect(),
        tokens: std::sync::Arc::default(),
        prints_codes: true,
        #[cfg(feature = "external-providers")]
        provider: None,
        is_demo: true,
    })
}

/// `demo-web` needs one step, `demo-mfa` two. A user who is signed in to one only needs the missing steps for the other.
/// `demo-native` is an app that listens on any port of 127.0.0.1, and each of its requests needs a new login. The demo plays it at
/// `/callback`. `demo-partner` belongs to somebody else, so the user decides about it.
fn clients(origin: &str, acme: &Tenant) -> Result<ClientTable, ConfigError> {
    let client = |id: &str, callback: &str| {
        Client::new(id, acme.clone())?
            .insecure_localhost(&format!("{origin}{callback}"))?
            .insecure_localhost_after_logout(&format!("{origin}{AFTER_LOGOUT}"))?
            .scopes(SCOPES)
    };
    let [web, mfa, native, partner] = CLIENTS;
    ClientTable::new([
        client(web, CALLBACK)?.name("Demo")?.single_sign_on(),
        client(partner, CALLBACK)?.name("Demo, a partner")?.single_sign_on().third_party(),
        client(mfa, CALLBACK)?.name("Demo, two steps")?.policy(Policy::any(2)?).single_sign_on(),
        client(native, NATIVE_CALLBACK)?
            .redirect_uri("http://127.0.0.1/callback")?
            .after_logout("http://127.0.0.1/demo/")?
            .name("Demo, native app")?,
    ])
}

impl Known {
    fn of(&self, tenant: &Tenant) -> Person {
        Person {
            tenant: tenant.clone(),
            id: self.name.to_owned(),
            name: Some(self.full_name.to_owned()),
            identifiers: vec![self.name.to_owned(), self.email.to_owned()],
            password: Some(Proof::Password(self.password)),
            email: Some(self.email.to_owned()),
            phone: Some(self.phone.to_owned()),
            line: None,
        }
    }
}
