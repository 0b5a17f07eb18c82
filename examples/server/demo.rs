//! The facts of the demo. They are public: real keys are made at random and kept out of the source.

use std::error::Error;

use tollgate::{ApiKeys, ConfigError, Quota, Quotas, Tenant};

pub(crate) const KEY_HEADER: &str = "x-api-key";
pub(crate) const OPERATOR_KEY: &str = "demo-operator-key";

pub(crate) const ACME: &str = "acme";
const ACME_KEY: &str = "demo-acme-key";
const GLOBEX: &str = "globex";
const GLOBEX_KEY: &str = "demo-globex-key";

pub(crate) const CLIENTS: [&str; 3] = ["demo-web", "demo-mfa", "demo-native"];
/// What the clients may ask for, and where they get their answers.
pub(crate) const SCOPES: &str = "openid profile email";
pub(crate) const CALLBACK: &str = "/demo/callback";
pub(crate) const NATIVE_CALLBACK: &str = "/callback";
pub(crate) const AFTER_LOGOUT: &str = "/demo/";

/// A user of acme.
pub(crate) struct Person {
    pub(crate) name: &'static str,
    pub(crate) full_name: &'static str,
    pub(crate) password: &'static str,
    pub(crate) email: &'static str,
    pub(crate) phone: &'static str,
}

pub(crate) const PEOPLE: [Person; 2] = [
    Person {
        name: "ada",
        full_name: "Ada Lovelace",
        password: "correct horse battery staple",
        email: "ada@example.com",
        phone: "+15555550100",
    },
    Person {
        name: "grace",
        full_name: "Grace Hopper",
        password: "compilers are polite",
        email: "grace@example.com",
        phone: "+15555550101",
    },
];

/// Whose key is whose.
pub(crate) fn keys() -> Result<ApiKeys, ConfigError> {
    ApiKeys::new(KEY_HEADER)?.key(ACME_KEY, ACME)?.key(GLOBEX_KEY, GLOBEX)
}

/// How many requests each may send in any minute.
pub(crate) fn quotas() -> Result<Quotas, Box<dyn Error>> {
    let per_minute = |limit| Quota::per_minute(limit)?.named("per-minute");
    let quotas = Quotas::new(per_minute(600)?);
    quotas.set(Tenant::parse(GLOBEX)?, per_minute(60)?);
    Ok(quotas)
}

/// Where to click, and what to try.
pub(crate) fn welcome(origin: &str) -> String {
    let [ada, grace] = &PEOPLE;
    format!(
        "\
Listening on {origin}. Ctrl-C ends it.

Click:  {origin}/demo/         log in as {ada} (password: {adas}) or {grace} ({graces})
        {origin}/demo/outbox   the one-time codes; they are printed here, too
        {origin}/account       who is signed in
        {origin}/events/       the event log, live: of globex with header {KEY_HEADER}, key {GLOBEX_KEY};
        {space}                of all with header x-operator-key, key {OPERATOR_KEY}

Try:
  curl -i -H '{KEY_HEADER}: {ACME_KEY}' {origin}/api/hello
  for i in $(seq 61); do curl -s -o /dev/null -w '%{{http_code}} ' -H '{KEY_HEADER}: {GLOBEX_KEY}' {origin}/api/hello; done
  curl -i -c jar -H 'content-type: application/json' {origin}/authentication/start -d '{start}'
",
        ada = ada.name,
        adas = ada.password,
        grace = grace.name,
        graces = grace.password,
        space = " ".repeat(origin.len()),
        start = start(origin),
    )
}

/// The body of a request that begins a login, with the challenge of RFC 7636, appendix B.
fn start(origin: &str) -> String {
    format!(
        r#"{{"identifier":"{}","client_id":"demo-web","redirect_uri":"{origin}{CALLBACK}","response_type":"code","scope":"openid","code_challenge":"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM","code_challenge_method":"S256"}}"#,
        PEOPLE[0].name
    )
}
