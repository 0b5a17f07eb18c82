//! Requests for tokens and about tokens.

use http::Request;
use serde_json::{Value, json};
use tollgate::{
    Secret,
    pkce::{CodeChallenge, CodeVerifier},
};

use crate::{
    issued_tokens::IssuedTokens,
    world::{
        ADA, ADA_PASSWORD, Answer, Browser, INTROSPECTOR, VERIFIER, encode, form_of, parameters, posted, query_of,
        redirect_uri, with,
    },
};

pub(crate) type Fields<'a> = Vec<(&'a str, &'a str)>;

/// A code with its verifier, which only the client knows.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) code: String,
    pub(crate) verifier: String,
}

/// A code from a request with the usual challenge.
impl From<String> for Grant {
    fn from(code: String) -> Self {
        Self { code, verifier: VERIFIER.to_owned() }
    }
}

/// Returns the form fields that redeem a code.
pub(crate) fn redemption<'a>(client: &'a str, Grant { code, verifier }: &'a Grant) -> Fields<'a> {
    vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("code_verifier", verifier),
        ("client_id", client),
        ("redirect_uri", redirect_uri(client)),
    ]
}

/// Returns the fields with one value replaced or added.
pub(crate) fn set<'a>(fields: &[(&'a str, &'a str)], name: &'a str, value: &'a str) -> Fields<'a> {
    let mut fields = without(fields, name);
    fields.push((name, value));
    fields
}

/// Returns the fields without this one.
pub(crate) fn without<'a>(fields: &[(&'a str, &'a str)], name: &str) -> Fields<'a> {
    fields.iter().copied().filter(|(own, _)| *own != name).collect()
}

/// Returns the complete error response of `/token` as text.
pub(crate) fn refused(status: u16, error: &str, detail: &str) -> String {
    format!(
        "{status}\ncontent-type: application/json\npragma: no-cache\n\n\
        {{\"error\":\"{error}\",\"error_description\":\"{detail}\"}}\n"
    )
}

pub(crate) fn is_no_grant(answer: &Answer) -> bool {
    answer.status == 400 && answer.error() == "invalid_grant"
}

impl Browser {
    /// Logs ada in by password and returns the code.
    pub(crate) async fn sign_in(&mut self, client: &str) -> Grant {
        self.sign_in_with(client, &[]).await
    }

    /// Logs ada in with more parameters and returns the code.
    pub(crate) async fn sign_in_with(&mut self, client: &str, more: &[(&str, &str)]) -> Grant {
        let (own, verifier) = self.log_in_with(client, more).await;
        let answer = self.get(&format!("/authorize?{}", query_of(&own))).await;
        let code = answer.redirected("code").unwrap_or_else(|| panic!("no code: {answer:?}"));
        Grant { code, verifier }
    }

    /// Completes a login of ada. Returns the parameters of its request and its verifier. Each login has its own
    /// challenge, because a redeemed challenge can't begin another login.
    pub(crate) async fn log_in_with(&mut self, client: &str, more: &[(&str, &str)]) -> (Value, String) {
        let verifier = Secret::generate().expose().to_owned();
        let challenge = CodeChallenge::from_verifier(&CodeVerifier::parse(&verifier).unwrap()).to_string();
        let own = with(with(parameters(client), &[("code_challenge", &challenge)]), more);
        let started = self.post("/authentication/start", &with(own.clone(), &[("identifier", ADA)])).await;
        let id = started.json()["session_id"].as_str().unwrap_or_else(|| panic!("{started:?}")).to_owned();
        let fields = [("session_id", &*id), ("method", "password"), ("username", ADA), ("password", ADA_PASSWORD)];
        assert_eq!(self.post("/authentication/authenticate", &with(own.clone(), &fields)).await.status, 200);
        assert_eq!(self.post("/authentication/complete", &with(own.clone(), &fields[..1])).await.status, 200);
        (own, verifier)
    }

    /// Completes a login and returns its tokens.
    pub(crate) async fn tokens(&mut self, client: &str, scope: &str) -> IssuedTokens {
        let code = self.sign_in_with(client, &[("scope", scope)]).await;
        IssuedTokens::of(&self.redeem(client, &code).await)
    }

    /// Exchanges a code.
    pub(crate) async fn redeem(&mut self, client: &str, code: &Grant) -> Answer {
        self.form("/token", &redemption(client, code)).await
    }

    pub(crate) async fn refresh(&mut self, client: &str, token: &str) -> Answer {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", client)];
        self.form("/token", &fields).await
    }

    pub(crate) async fn revoke(&mut self, client: &str, token: &str) -> Answer {
        self.form("/revoke", &[("client_id", client), ("token", token)]).await
    }

    pub(crate) async fn log_out(&mut self, client: &str, id_token: &str) -> Answer {
        self.get(&format!("/logout?client_id={client}&id_token_hint={}", encode(id_token))).await
    }

    /// Introspects a token as an API that has the secret of the world.
    pub(crate) async fn ask_about(&mut self, token: &str) -> Answer {
        let request = posted("/introspect").header("authorization", format!("Bearer {INTROSPECTOR}"));
        self.send(request, form_of(&[("token", token), ("token_type_hint", "refresh_token")])).await
    }

    /// Returns the introspection of a token of this client.
    pub(crate) async fn introspect(&mut self, client: &str, token: &str) -> Value {
        let answer = self.ask_about(token).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let known = answer.json();
        assert!(known["client_id"] == client || known == json!({ "active": false }), "{known}");
        known
    }

    /// Calls an endpoint with an access token.
    pub(crate) async fn with_token(&mut self, path: &str, token: &str) -> Answer {
        self.send(Request::get(path).header("authorization", format!("Bearer {token}")), "").await
    }
}
