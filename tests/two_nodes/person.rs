//! A person with a browser, and the application that uses the tokens.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};
use tollgate::{
    Secret,
    pkce::{CodeChallenge, CodeVerifier},
};

use crate::{
    CALLBACK, PASSWORD,
    support::{
        browser::{Answer, Browser, Unanswered},
        process::{describe_port, patiently},
    },
};

#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) browser: Browser,
    pub(crate) origins: Arc<Mutex<[String; 2]>>,
    /// Requests go to both nodes in turn.
    pub(crate) turn: usize,
    pub(crate) name: String,
    pub(crate) client: &'static str,
    pub(crate) verifier: String,
    pub(crate) login: String,
    /// How many requests of all people were answered.
    pub(crate) answered: Arc<AtomicUsize>,
    /// How many requests were lost with a node.
    pub(crate) lost: usize,
    /// Repeats calls while the store is down, as it does with those that were lost with a node.
    pub(crate) awaits_store: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) access: String,
    pub(crate) refresh: String,
    pub(crate) id: String,
}

impl Issued {
    pub(crate) fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{answer:?}");
        let (answer, text) = (answer.json(), |value: &Value| value.as_str().unwrap_or_default().to_owned());
        Self {
            access: text(&answer["access_token"]),
            refresh: text(&answer["refresh_token"]),
            id: text(&answer["id_token"]),
        }
    }
}

/// An answer, and whether it came to the first try.
pub(crate) type Answered = (Answer, bool);

impl Person {
    /// Sends a request to the next node that runs, until one answers.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
        let mut is_first = true;
        loop {
            self.browser.origin = self.origins.lock().unwrap()[self.turn % 2].clone();
            self.turn += 1;
            let Some(answer) = patiently(self.browser.try_send(method, path, headers, body)).await else {
                panic!("{method} {path} gets no answer. {}", self.describe_silence(path).await);
            };
            match answer {
                Ok(answer) if self.awaits_store && is_without_store(&answer) => {
                    is_first = false;
                    self.lost += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(answer) => {
                    assert!(answer.status < 500, "{method} {path}: {answer:?}");
                    self.answered.fetch_add(1, SeqCst);
                    return (answer, is_first);
                }
                Err(Unanswered::Refused) => {}
                Err(Unanswered::Lost) => {
                    is_first = false;
                    self.lost += 1;
                }
            }
        }
    }

    /// Describes a node that does not answer.
    async fn describe_silence(&self, path: &str) -> String {
        let (origin, now) = (&self.browser.origin, self.origins.lock().unwrap().clone());
        let again = timeout(Duration::from_secs(5), Browser::new(origin, "").try_send("GET", path, &[], "")).await;
        let port = origin.rsplit_once(':').unwrap().1.parse().unwrap();
        format!("Asked {origin}, and the nodes are {now:?}. Over a new connection: {again:?}. {}", describe_port(port))
    }

    pub(crate) fn parameters(&self) -> Value {
        let challenge = CodeChallenge::from_verifier(&CodeVerifier::parse(&self.verifier).unwrap()).to_string();
        json!({
            "client_id": self.client, "redirect_uri": CALLBACK, "response_type": "code",
            "scope": "openid", "code_challenge": challenge, "code_challenge_method": "S256",
        })
    }

    /// Calls an endpoint of the login.
    pub(crate) async fn call(&mut self, endpoint: &str, members: Value) -> Answered {
        let mut body = self.parameters();
        body["session_id"] = json!(self.login);
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let path = format!("/authentication/{endpoint}");
        self.ask("POST", &path, &[("content-type", "application/json")], &body.to_string()).await
    }

    pub(crate) async fn form(&mut self, path: &str, fields: &[(&str, &str)]) -> Answered {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        self.ask("POST", path, &form, &encoded(fields.iter().copied())).await
    }

    pub(crate) async fn start(&mut self) {
        // a redeemed challenge can't begin another login
        self.verifier = Secret::generate().expose().to_owned();
        let mut body = self.parameters();
        body["identifier"] = json!(self.name);
        let json = [("content-type", "application/json")];
        let (answer, _) = self.ask("POST", "/authentication/start", &json, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.login = answer.json()["session_id"].as_str().unwrap().to_owned();
    }

    pub(crate) async fn password(&mut self, password: &str) -> Answered {
        let members = json!({ "method": "password", "username": self.name, "password": password });
        self.call("authenticate", members).await
    }

    pub(crate) async fn steps(&mut self) -> u64 {
        let path = format!("/authentication/status?session_id={}", self.login);
        let (answer, _) = self.ask("GET", &path, &[], "").await;
        answer.json()["completed_steps"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
    }

    pub(crate) async fn authorize(&mut self) -> Answered {
        let parameters = self.parameters();
        let pairs = parameters.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap()));
        self.ask("GET", &format!("/authorize?{}", encoded(pairs)), &[("accept", "text/html")], "").await
    }

    pub(crate) async fn redeem(&mut self, code: &str) -> Answered {
        let (client, verifier) = (self.client, self.verifier.clone());
        let fields = [
            ("grant_type", "authorization_code"),
            ("client_id", client),
            ("code", code),
            ("code_verifier", &verifier),
            ("redirect_uri", CALLBACK),
        ];
        self.form("/token", &fields).await
    }

    pub(crate) async fn refresh(&mut self, token: &str) -> Answered {
        let client = self.client;
        self.form("/token", &[("grant_type", "refresh_token"), ("client_id", client), ("refresh_token", token)]).await
    }

    pub(crate) async fn revoke(&mut self, token: &str) {
        let client = self.client;
        assert_eq!(self.form("/revoke", &[("client_id", client), ("token", token)]).await.0.status, 200);
    }

    pub(crate) async fn log_out(&mut self, issued: &Issued) {
        // the next request still sends the cookie
        let mut browser = self.clone();
        let path = format!("/logout?client_id={}&id_token_hint={}", self.client, issued.id);
        let (answer, is_first) = browser.ask("GET", &path, &[("accept", "text/html")], "").await;
        assert!(answer.status == 200 || !is_first && answer.status < 400, "{answer:?}");
        (self.turn, self.lost) = (browser.turn, browser.lost);
    }

    /// Returns the status of the API.
    pub(crate) async fn api(&mut self, access: &str) -> u16 {
        self.ask("GET", "/api", &[("authorization", &format!("Bearer {access}"))], "").await.0.status
    }

    /// Returns the status of a page for signed-in users.
    pub(crate) async fn page(&mut self) -> u16 {
        self.ask("GET", "/account", &[], "").await.0.status
    }

    /// Logs in by password up to the code. Returns `None` if a killed node took the code with it.
    pub(crate) async fn log_in(&mut self) -> Option<String> {
        self.start().await;
        let (answer, is_first) = self.password(PASSWORD).await;
        assert!(answer.status == 200 || !is_first && answer.status == 409, "{answer:?}");
        assert_eq!(self.steps().await, 1, "an answered step is lost");
        let (answer, _) = self.call("complete", json!({})).await;
        assert_eq!((answer.status, answer.json()["status"].as_str()), (200, Some("completed")), "{answer:?}");
        let (answer, is_first) = self.authorize().await;
        let code = answer.redirected("code").filter(|_| answer.header("location").starts_with(CALLBACK));
        assert!(code.is_some() || !is_first, "an answered completion is lost: {answer:?}");
        code
    }

    /// Logs in and redeems the code. Returns `None` if a killed node took the answer with it.
    pub(crate) async fn sign_in(&mut self) -> Option<Issued> {
        let code = self.log_in().await?;
        let (answer, is_first) = self.redeem(&code).await;
        if !is_first && is_no_grant(&answer) {
            return None;
        }
        Some(Issued::of(&answer))
    }

    /// Sends the same call of several clones at once, in turn to both nodes.
    pub(crate) async fn at_once<F>(&self, count: usize, call: impl Fn(Self, usize) -> F) -> Vec<Answer>
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for turn in 0..count {
            tasks.spawn(call(Self { turn, ..self.clone() }, turn));
        }
        tasks.join_all().await.into_iter().map(|(answer, _)| answer).collect()
    }
}

pub(crate) fn encoded<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs = pairs.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns whether the store did not answer the node.
fn is_without_store(answer: &Answer) -> bool {
    let is_redirect = || answer.status == 302 && answer.header("location").contains("error=temporarily_unavailable");
    answer.status == 503 || is_redirect()
}

pub(crate) fn is_no_grant(answer: &Answer) -> bool {
    answer.status == 400 && answer.error() == "invalid_grant"
}

pub(crate) fn count(answers: &[Answer], is: impl Fn(&Answer) -> bool) -> usize {
    answers.iter().filter(|answer| is(answer)).count()
}
