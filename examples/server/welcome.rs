//! What is said at the start.

use crate::demo::{ACME_KEY, CALLBACK, GLOBEX_KEY, KEY_HEADER, OPERATOR_KEY, PEOPLE};

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
