//! The text that the server prints at the start.

use crate::{
    auth,
    demo::{ACME_KEY, CALLBACK, GLOBEX_KEY, KEY_HEADER, OPERATOR_KEY, PEOPLE},
    facts::Facts,
    login_settings::LoginSettings,
};

/// Returns what the server prints when it starts.
pub(crate) fn text(origin: &str, facts: &Facts, login: &LoginSettings) -> String {
    if facts.is_demo { demo(origin) } else { links(origin, facts, login) }
}

/// Links of the demo to open, and commands to try.
fn demo(origin: &str) -> String {
    let [ada, grace] = &PEOPLE;
    format!(
        "\
Listening on {origin}
Ctrl-C ends it.

Click:  {origin}/demo/         try the limits; log in as {ada} (password: {adas}) or {grace} ({graces})
        {origin}/demo/outbox   the messages with codes, which are also printed here
        {origin}/account       shows the signed-in user; /account/security has passkeys and sessions
        {origin}/events/       who is limited, and every event; opens without a key on this machine
        {space}               programs send the header x-operator-key and the key {OPERATOR_KEY}

Try:
  curl -i -H '{KEY_HEADER}: {ACME_KEY}' {origin}/api/hello
  for i in $(seq 61); do curl -s -o /dev/null -w '%{{http_code}} ' -H '{KEY_HEADER}: {GLOBEX_KEY}' {origin}/api/hello; done
  curl -s {origin}/.well-known/openid-configuration

Log in from a shell (needs openssl). The script creates a verifier, gets tokens and calls APIs with them:
{script}",
        ada = ada.name,
        adas = ada.password,
        grace = grace.name,
        graces = grace.password,
        space = " ".repeat(origin.len()),
        script = script(origin),
    )
}

/// Links of a server with a file of its own.
fn links(origin: &str, facts: &Facts, login: &LoginSettings) -> String {
    let issuer = facts.issuer.as_deref().unwrap_or(origin).trim_end_matches('/');
    let site = auth::site(issuer);
    let mut text = format!("Listening on {origin}\n");
    if login.account_pages.is_some() {
        text += &format!("Users sign in at {issuer}/sign-in, and manage their accounts at {issuer}/account/security\n");
    }
    let keys = match facts.operator_key {
        Some(_) => "the operator's key, or with the API key of a tenant",
        None => "the API key of a tenant",
    };
    text + &format!("The event log is at {site}/events/, with {keys}\n")
}

/// Returns a shell script that gets a token by playing a client and its user. Each challenge works for one login only, so
/// the script creates a new one each time.
fn script(origin: &str) -> String {
    let (ada, password) = (PEOPLE[0].name, PEOPLE[0].password);
    format!(
        r#"  AT={origin}; BACK=$AT{CALLBACK}; JAR=$(mktemp); VERIFIER=$(openssl rand -hex 32)
  CHALLENGE=$(printf %s $VERIFIER | openssl dgst -sha256 -binary | openssl base64 -A | tr +/ -_ | tr -d =)
  P='"client_id":"demo-web","response_type":"code","scope":"openid profile","code_challenge_method":"S256"'
  P="$P,\"redirect_uri\":\"$BACK\",\"code_challenge\":\"$CHALLENGE\""
  call() {{ curl -s -b $JAR -c $JAR -H 'content-type: application/json' $AT/authentication/$1 -d "{{$2,$P}}"; echo; }}
  ID=$(call start '"identifier":"{ada}"' | grep -o '"session_id":"[^"]*"'); echo $ID
  call authenticate "$ID,\"method\":\"password\",\"username\":\"{ada}\",\"password\":\"{password}\""
  call complete "$ID"
  Q="client_id=demo-web&response_type=code&scope=openid%20profile&code_challenge_method=S256&code_challenge=$CHALLENGE"
  CODE=$(curl -s -b $JAR -w '%{{redirect_url}}' "$AT/authorize?$Q&redirect_uri=$BACK" | sed 's/.*code=\([^&]*\).*/\1/')
  F="client_id=demo-web&grant_type=authorization_code&redirect_uri=$BACK&code_verifier=$VERIFIER"
  TOKEN=$(curl -s $AT/token -d "$F&code=$CODE" | sed 's/.*"access_token":"\([^"]*\)".*/\1/'); echo $TOKEN
  curl -s -H "authorization: Bearer $TOKEN" $AT/userinfo; echo
  curl -s -H "authorization: Bearer $TOKEN" $AT/api/me; echo
"#
    )
}
