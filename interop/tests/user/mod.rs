//! Who logs in: a browser, and what the page of the login does in it.

use openidconnect::url::Url;
use serde_json::{Value, json};

use crate::browser::{Answer, Browser};

/// What a login is bound to.
const BOUND: [&str; 6] =
    ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"];

/// A person with a browser.
pub(crate) struct User {
    browser: Browser,
    redirect_uri: String,
}

impl User {
    pub(crate) fn new(origin: &str, redirect_uri: &str) -> Self {
        Self { browser: Browser::new(origin, ""), redirect_uri: redirect_uri.to_owned() }
    }

    /// Follows redirects up to the answer for the client.
    pub(crate) async fn visit(&mut self, url: &Url) -> Url {
        match self.follow(url).await {
            (end, None) => end,
            (page, Some(answer)) => panic!("{page}: {answer:?}"),
        }
    }

    /// To the answer for the client, which nobody serves, or to a page on the way.
    async fn follow(&mut self, url: &Url) -> (Url, Option<Answer>) {
        let mut at = url.clone();
        for _ in 0..10 {
            if at.as_str().starts_with(&self.redirect_uri) {
                return (at, None);
            }
            let answer = self.browser.open(at.as_str()).await;
            match answer.header("location") {
                "" => return (at, Some(answer)),
                location => at = at.join(location).unwrap(),
            }
        }
        panic!("{url} goes round in circles");
    }

    /// By password, and where one step is not enough by a code, as the hosted page does.
    pub(crate) async fn log_in(&mut self, url: &Url) -> Url {
        let (page, _) = self.follow(url).await;
        assert_eq!(page.path(), "/authentication/start", "{page}");
        let mut all = json!({ "identifier": "ada@example.com" });
        for name in BOUND {
            all[name] = parameter(&page, name).into();
        }
        let started = self.call("start", &all).await;
        all["session_id"] = started["session_id"].clone();
        all["method"] = "password".into();
        all["username"] = "ada".into();
        all["password"] = "correct horse battery staple".into();
        self.call("authenticate", &all).await;
        if started["required_steps"] == 2 {
            all["method"] = "email".into();
            all["email"] = "ada@example.com".into();
            self.call("authenticate", &all).await;
            all["otp"] = self.code().await;
            self.call("verify-otp", &all).await;
        }
        assert_eq!(self.call("complete", &all).await["status"], "completed");
        let mut again = page;
        again.set_path("/authorize");
        self.visit(&again).await
    }

    async fn call(&mut self, endpoint: &str, all: &Value) -> Value {
        let (path, json) = (format!("/authentication/{endpoint}"), [("content-type", "application/json")]);
        let answer = self.browser.send("POST", &path, &json, &all.to_string()).await;
        assert_eq!(answer.status, 200, "{endpoint}: {answer:?}");
        answer.json()
    }

    /// The newest one-time code, which a task of its own sends.
    async fn code(&mut self) -> Value {
        for _ in 0..10_000 {
            if let Some(newest) = self.browser.open("/demo/outbox").await.json().as_array().unwrap().last() {
                return newest["code"].clone();
            }
        }
        panic!("no code came");
    }
}

/// A parameter of a URL.
pub(crate) fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}
