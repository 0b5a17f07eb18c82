//! The state and the requests of a browser, independent of the transport.

use tollgate::pkce::{CodeChallenge, CodeVerifier};

pub const CALLBACK: &str = "https://app.example/callback";

/// A request: a POST if it has a body.
pub struct Ask {
    pub target: String,
    pub body: Option<String>,
    pub content_type: &'static str,
}

impl Ask {
    pub fn get(target: String) -> Self {
        Self { target, body: None, content_type: "" }
    }

    pub fn by_refresh(token: &str) -> Self {
        Self::by_refresh_of("web", token)
    }

    pub fn by_refresh_of(client: &str, token: &str) -> Self {
        Self::token(format!("grant_type=refresh_token&client_id={client}&refresh_token={token}"))
    }

    /// Creates a refresh that asks for fewer scopes.
    pub fn by_refresh_for(token: &str, scope: &str) -> Self {
        Self::token(format!("grant_type=refresh_token&client_id=web&refresh_token={token}&scope={scope}"))
    }

    fn token(form: String) -> Self {
        Self { target: "/token".to_owned(), body: Some(form), content_type: "application/x-www-form-urlencoded" }
    }
}

/// A browser in one login, and the parameters that its application made up.
#[derive(Clone)]
pub struct Browser {
    cookies: Vec<(String, String)>,
    verifier: String,
    challenge: String,
    pub client: &'static str,
    /// The requested scope, encoded for a query.
    pub scope: &'static str,
    /// The id of the login, once it has begun.
    pub login: String,
}

impl Default for Browser {
    fn default() -> Self {
        let verifier = CodeVerifier::generate();
        let challenge = CodeChallenge::from_verifier(&verifier).to_string();
        let (verifier, login) = (verifier.expose().to_owned(), String::new());
        Self { cookies: Vec::new(), verifier, challenge, client: "web", scope: "openid", login }
    }
}

impl Browser {
    /// Creates the next request for a code in the same browser.
    pub fn again(&self, client: &'static str) -> Self {
        Self { cookies: self.cookies.clone(), client, ..Self::default() }
    }

    /// Creates the request that exchanges the code.
    pub fn by_code(&self, code: &str) -> Ask {
        let (callback, Self { client, verifier, .. }) = ("https%3A%2F%2Fapp.example%2Fcallback", self);
        Ask::token(format!(
            "grant_type=authorization_code&client_id={client}&redirect_uri={callback}&code={code}&code_verifier={verifier}"
        ))
    }

    pub fn start(&self, identifier: &str) -> Ask {
        self.post("start", &format!(r#""identifier":"{identifier}""#))
    }

    pub fn password(&self, username: &str, password: &str) -> Ask {
        let more = format!(r#""method":"password","username":"{username}","password":"{password}""#);
        self.bound("authenticate", &more)
    }

    pub fn code(&self, phone: &str) -> Ask {
        self.bound("authenticate", &format!(r#""method":"sms","phone_number":"{phone}""#))
    }

    pub fn verify(&self, code: &str) -> Ask {
        self.bound("verify-otp", &format!(r#""otp":"{code}""#))
    }

    pub fn complete(&self) -> Ask {
        self.post("complete", &format!(r#""session_id":"{}""#, self.login))
    }

    pub fn authorize(&self) -> Ask {
        Ask::get(format!("/authorize?{}", self.query()))
    }

    /// Returns the parameters of the authorization request.
    pub fn query(&self) -> String {
        let Self { challenge, client, scope, .. } = self;
        format!(
            "client_id={client}&redirect_uri=https%3A%2F%2Fapp.example%2Fcallback&response_type=code&scope={scope}\
             &code_challenge={challenge}&code_challenge_method=S256&state=xyz"
        )
    }

    fn bound(&self, endpoint: &str, more: &str) -> Ask {
        self.post(endpoint, &format!(r#""session_id":"{}",{more}"#, self.login))
    }

    fn post(&self, endpoint: &str, more: &str) -> Ask {
        let (challenge, client, scope) = (&self.challenge, self.client, self.scope.replace('+', " "));
        let body = format!(
            r#"{{"client_id":"{client}","redirect_uri":"{CALLBACK}","response_type":"code","scope":"{scope}","code_challenge":"{challenge}","code_challenge_method":"S256",{more}}}"#
        );
        Ask { target: format!("/authentication/{endpoint}"), body: Some(body), content_type: "application/json" }
    }

    /// Returns the `Cookie` header, or an empty text if there are no cookies.
    pub fn cookies(&self) -> String {
        let pairs: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("; ")
    }

    /// Stores a cookie that a response sets, or drops one that it removes.
    pub fn keep(&mut self, set_cookie: &str) {
        let (pair, attributes) = set_cookie.split_once(';').unwrap_or((set_cookie, ""));
        let Some((name, value)) = pair.split_once('=') else { return };
        self.cookies.retain(|(known, _)| known != name);
        if !attributes.contains("Max-Age=0") && !value.is_empty() {
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Stores the id of the login from the response of start.
    pub fn began(&mut self, body: &str) {
        let after = body.split_once(r#""session_id":""#).map_or("", |(_, after)| after);
        self.login = after.split('"').next().unwrap_or_default().to_owned();
        assert!(!self.login.is_empty(), "no login began: {body}");
    }
}
