//! An HTTP client with cookies that performs logins like a browser, over real sockets.

use std::{collections::BTreeMap, net::IpAddr};

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};

/// The example of RFC 7636, appendix B.
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

#[derive(Clone, Debug)]
pub(crate) struct Browser {
    client: Client<HttpConnector, Full<Bytes>>,
    pub(crate) origin: String,
    /// The path of the login service.
    base: &'static str,
    pub(crate) cookies: BTreeMap<String, String>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unanswered {
    /// There was no connection, so the request was not sent.
    Refused,
    /// The connection broke. The server may have acted on the request.
    Lost,
}

impl Browser {
    /// Connects to the server with this origin over HTTP/1.1.
    pub(crate) fn new(origin: &str, base: &'static str) -> Self {
        Self::with(origin, base, false, None)
    }

    pub(crate) fn http2(origin: &str, base: &'static str) -> Self {
        Self::with(origin, base, true, None)
    }

    /// Connects over HTTP/1.1 from this local address.
    pub(crate) fn from_address(origin: &str, base: &'static str, from: IpAddr) -> Self {
        Self::with(origin, base, false, Some(from))
    }

    fn with(origin: &str, base: &'static str, http2: bool, from: Option<IpAddr>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(from);
        let client = Client::builder(TokioExecutor::new()).http2_only(http2).build(connector);
        Self { client, origin: origin.to_owned(), base, cookies: BTreeMap::new() }
    }

    /// Sends a request to a path or to an absolute URL of the server.
    pub(crate) async fn send(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.try_send(method, target, headers, body).await.unwrap()
    }

    /// Sends a request, which the server may not live to answer.
    pub(crate) async fn try_send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, Unanswered> {
        let path = target.strip_prefix(&self.origin).unwrap_or(target);
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.origin));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for (name, value) in &self.cookies {
            request = request.header(header::COOKIE, format!("{name}={value}"));
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let unanswered = |is_refused| if is_refused { Unanswered::Refused } else { Unanswered::Lost };
        let response = self.client.request(request).await.map_err(|error| unanswered(error.is_connect()))?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| Unanswered::Lost)?.to_bytes();
        for set in parts.headers.get_all(header::SET_COOKIE) {
            let (pair, attributes) = set.to_str().unwrap().split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            match attributes.contains("Max-Age=0") || attributes.contains("01 Jan 1970") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        let text = String::from_utf8(body.to_vec()).unwrap();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, text })
    }

    /// Opens a page.
    pub(crate) async fn open(&mut self, target: &str) -> Answer {
        self.send("GET", target, &[("accept", "text/html")], "").await
    }

    /// Calls a login endpoint with these members and the parameters of the client.
    pub(crate) async fn call(&mut self, endpoint: &str, client: &Registered<'_>, members: Value) -> Answer {
        let mut body = client.parameters();
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let path = format!("{}/authentication/{endpoint}", self.base);
        self.send("POST", &path, &[("content-type", "application/json")], &body.to_string()).await
    }

    /// Starts a login and returns its id.
    pub(crate) async fn start(&mut self, client: &Registered<'_>, identifier: &str) -> String {
        let started = self.call("start", client, json!({ "identifier": identifier })).await;
        assert_eq!(started.status, 200, "{started:?}");
        started.json()["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn authorize(&mut self, client: &Registered<'_>) -> Answer {
        let target = format!("{}/authorize?{}", self.base, client.query());
        self.open(&target).await
    }

    /// Completes a login and returns the authorization code.
    pub(crate) async fn finish(&mut self, client: &Registered<'_>, id: &str) -> String {
        let completed = self.call("complete", client, json!({ "session_id": id })).await;
        assert_eq!((completed.status, completed.json()["status"].as_str()), (200, Some("completed")));
        let last = self.authorize(client).await;
        assert_eq!(last.status, 302, "{last:?}");
        assert!(last.header("location").starts_with(client.redirect_uri), "{last:?}");
        assert_eq!(last.redirected("state").as_deref(), Some("a state"));
        last.redirected("code").unwrap()
    }

    /// Performs a complete password login and returns the authorization code.
    pub(crate) async fn log_in(&mut self, client: &Registered<'_>, name: &str, password: &str) -> String {
        let first = self.authorize(client).await;
        let page = format!("{}/authentication/start?{}", self.base, client.query());
        assert_eq!((first.status, first.header("location")), (302, page.as_str()), "{first:?}");
        assert_eq!(self.open(&page).await.status, 200);
        let id = self.start(client, name).await;
        let members = json!({ "session_id": id, "method": "password", "username": name, "password": password });
        let step = self.call("authenticate", client, members).await;
        assert_eq!((step.status, step.json()["remaining_steps"].as_u64()), (200, Some(0)), "{step:?}");
        self.finish(client, &id).await
    }
}

/// A client of the service.
#[derive(Clone, Copy)]
pub(crate) struct Registered<'a> {
    pub(crate) id: &'a str,
    pub(crate) redirect_uri: &'a str,
}

impl Registered<'_> {
    pub(crate) fn parameters(&self) -> Value {
        json!({
            "client_id": self.id,
            "redirect_uri": self.redirect_uri,
            "response_type": "code",
            "scope": "openid",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        })
    }

    fn query(&self) -> String {
        let mut all = self.parameters();
        all["state"] = json!("a state");
        let pairs =
            all.as_object().unwrap().iter().map(|(name, value)| {
                format!("{name}={}", utf8_percent_encode(value.as_str().unwrap(), NON_ALPHANUMERIC))
            });
        pairs.collect::<Vec<_>>().join("&")
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns a parameter of the redirect.
    pub(crate) fn redirected(&self, name: &str) -> Option<String> {
        let (_, query) = self.header("location").split_once('?')?;
        let (_, value) = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?;
        Some(percent_decode_str(value).decode_utf8().unwrap().into_owned())
    }
}
