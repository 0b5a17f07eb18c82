//! The facts of the demo. They are public: real keys are made at random and kept out of the source.

use std::{error::Error, net::SocketAddr};

use tollgate::{ApiKeys, ConfigError, Quota, Quotas, Tenant};

pub(crate) const KEY_HEADER: &str = "x-api-key";
pub(crate) const OPERATOR_KEY: &str = "demo-operator-key";

const ACME: (&str, &str, u32) = ("acme", "demo-acme-key", 600);
const GLOBEX: (&str, &str, u32) = ("globex", "demo-globex-key", 60);

/// Whose key is whose.
pub(crate) fn keys() -> Result<ApiKeys, ConfigError> {
    let (acme, globex) = (ACME, GLOBEX);
    ApiKeys::new(KEY_HEADER)?.key(acme.1, acme.0)?.key(globex.1, globex.0)
}

/// How many requests each may send in any minute.
pub(crate) fn quotas() -> Result<Quotas, Box<dyn Error>> {
    let per_minute = |limit| Quota::per_minute(limit)?.named("per-minute");
    let quotas = Quotas::new(per_minute(60)?);
    for (name, _, limit) in [ACME, GLOBEX] {
        quotas.set(Tenant::parse(name)?, per_minute(limit)?);
    }
    Ok(quotas)
}

/// Where to click, and what to try.
pub(crate) fn welcome(listening: SocketAddr) -> String {
    let (acme, globex) = (ACME.1, GLOBEX.1);
    format!(
        "\
Listening on http://{listening}. Ctrl-C ends it.

Click:  http://{listening}/events/   the event log, live: of globex with header {KEY_HEADER}, key {globex};
        of all with header x-operator-key, key {OPERATOR_KEY}

Try:
  curl -i -H '{KEY_HEADER}: {acme}' http://{listening}/api/hello
  for i in $(seq 61); do curl -s -o /dev/null -w '%{{http_code}} ' -H '{KEY_HEADER}: {globex}' http://{listening}/api/hello; done
  curl -s -H 'x-operator-key: {OPERATOR_KEY}' http://{listening}/events/log
"
    )
}
