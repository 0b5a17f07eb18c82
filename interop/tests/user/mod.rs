//! A user with a browser, who signs in like the login page does.

use openidconnect::url::Url;
use serde_json::{Value, json};

use crate::browser::{Answer, Browser};

/// The parameters that a login is bound to.
const BOUND: [&str; 6] =
    ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"];

/// Channels for one-time codes, with their addresses.
const SECONDS: [(&str, &str, &str); 3] = [
    ("email", "email", "ada@example.com"),
    ("sms", "phone_number", "+15555550100"),
    ("whatsapp", "phone_number", "+15555550100"),
];

/// A person with a browser.
pub(crate) struct User {
    browser: Browser,
    redirect_uri: String,
    /// The number of codes requested so far.
    codes: usize,
}

impl User {
    pub(crate) fn new(origin: &str, redirect_uri: &str) -> Self {
        Self { browser: Browser::new(origin, ""), redirect_uri: redirect_uri.to_owned(), codes: 0 }
    }

    /// Follows redirects to the response for the client.
    pub(crate) async fn visit(&mut self, url: &Url) -> Url {
        let end = self.redirect_uri.clone();
        self.visit_to(url, &end).await
    }

    /// Follows redirects to a URL with this prefix, without opening it.
    pub(crate) async fn visit_to(&mut self, url: &Url, end: &str) -> Url {
        match self.follow(url, end).await {
            (end, None) => end,
            (page, Some(answer)) => panic!("{page}: {answer:?}"),
        }
    }

    /// Follows redirects to this URL or to a page.
    async fn follow(&mut self, url: &Url, end: &str) -> (Url, Option<Answer>) {
        let mut at = url.clone();
        for _ in 0..10 {
            if at.as_str().starts_with(end) {
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

    /// Signs in by password and, if there is a second step, by one-time code.
    pub(crate) async fn log_in(&mut self, url: &Url) -> Url {
        let end = self.redirect_uri.clone();
        let (page, _) = self.follow(url, &end).await;
        let base = page.path().strip_suffix("/authentication/start").unwrap().to_owned();
        let mut all = json!({ "identifier": "ada@example.com" });
        for name in BOUND {
            all[name] = parameter(&page, name).into();
        }
        let started = self.call(&base, "start", &all).await;
        all["session_id"] = started["session_id"].clone();
        // with single sign-on, the first step may already be done
        if started["next_step"] == 1 {
            all["method"] = "password".into();
            all["username"] = "ada".into();
            all["password"] = "correct horse battery staple".into();
            self.call(&base, "authenticate", &all).await;
        }
        if !started["next_step"].is_null() && started["required_steps"] == 2 {
            // a different channel each time, because codes are limited to one per half minute and
            // channel
            let (method, field, address) = SECONDS[self.codes];
            self.codes += 1;
            all["method"] = method.into();
            all[field] = address.into();
            self.call(&base, "authenticate", &all).await;
            all["otp"] = self.code(method).await;
            self.call(&base, "verify-otp", &all).await;
        }
        assert_eq!(self.call(&base, "complete", &all).await["status"], "completed");
        let mut again = page;
        again.set_path(&format!("{base}/authorize"));
        self.visit(&again).await
    }

    async fn call(&mut self, base: &str, endpoint: &str, all: &Value) -> Value {
        let (path, json) = (format!("{base}/authentication/{endpoint}"), [("content-type", "application/json")]);
        let answer = self.browser.send("POST", &path, &json, &all.to_string()).await;
        assert_eq!(answer.status, 200, "{endpoint}: {answer:?}");
        answer.json()
    }

    /// Returns the code sent through this channel. A background task sends it.
    async fn code(&mut self, channel: &str) -> Value {
        for _ in 0..10_000 {
            let sent = self.browser.send("GET", "/demo/outbox", &[("accept", "*/*")], "").await.json();
            if let Some(newest) = sent.as_array().unwrap().iter().rev().find(|message| message["channel"] == channel) {
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
