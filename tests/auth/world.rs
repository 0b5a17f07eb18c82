//! A login service with two tenants, two users and four clients, on a manual clock, and browsers that call it.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, EventLog, Identifier, Limiter, Password, Passwords, PeerAddr, Plans,
    Quota, Secret, Sessions, StoredUsers, Tenant, Tokens, UserId, Users,
    auth::AuthServiceBuilder,
    body::Body,
    clock::{Clock, UnixTime},
    delivery::Outbox,
    password::PasswordHash,
    pkce::{CodeChallenge, CodeVerifier},
    policy::Policy,
    store::{AnyStore, Memory},
    testing::ManualClock,
    user::{Contact, EmailAddress, NewUser, PhoneNumber},
};
use tower::ServiceExt;

use crate::openapi;

pub(crate) const ISSUER: &str = "https://auth.example";
pub(crate) const CALLBACK: &str = "https://app.example/callback";
/// Another redirect URI of `web`.
pub(crate) const WITH_QUERY: &str = "https://app.example/callback?a=1&b=%2Fx+y";
pub(crate) const ADA: &str = "ada@example.com";
pub(crate) const ADA_PASSWORD: &str = "correct horse battery staple";
pub(crate) const ADA_PHONE: &str = "+15555550100";
pub(crate) const GRACE: &str = "grace@example.com";
pub(crate) const GRACE_PASSWORD: &str = "compilers are polite";
pub(crate) const GRACE_PHONE: &str = "+15555550101";
/// The secret of an API that may introspect any token.
pub(crate) const INTROSPECTOR: &str = "aW50cm9zcGVjdHMgYW55IHRva2VuIGluIHRoZSB3b3I";
/// A name without an account.
pub(crate) const NOBODY: &str = "nobody@example.com";

/// The verifier of all requests that don't set their own: the example of RFC 7636, appendix B.
pub(crate) const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

pub(crate) fn challenge() -> String {
    CodeChallenge::from_verifier(&CodeVerifier::parse(VERIFIER).unwrap()).to_string()
}

pub(crate) struct World {
    pub(crate) service: AuthService,
    pub(crate) clock: ManualClock,
    pub(crate) outbox: Outbox,
    pub(crate) log: EventLog,
    pub(crate) users: StoredUsers,
    pub(crate) sessions: Sessions,
    pub(crate) store: AnyStore,
}

/// A resource that `web` may request.
pub(crate) const NOTES: &str = "https://notes.example/mcp";

/// The clients of acme are `web` (one step), `mfa` (two steps) and `native` (loopback). The client of globex is
/// `other`.
pub(crate) fn clients() -> ClientTable {
    let acme = || "acme".parse::<Tenant>().unwrap();
    let client = |id: &str, tenant: Tenant| {
        let client = Client::new(id, tenant).unwrap().scopes("openid profile email offline_access").unwrap();
        client.redirect_uri(CALLBACK).unwrap().origin("https://app.example").unwrap()
    };
    let native = Client::new("native", acme()).unwrap().scopes("openid").unwrap();
    ClientTable::new([
        client("web", acme()).redirect_uri(WITH_QUERY).unwrap().resource(NOTES).unwrap(),
        client("mfa", acme()).policy(Policy::any(2).unwrap()),
        native.redirect_uri("http://127.0.0.1/callback").unwrap(),
        client("other", "globex".parse().unwrap()),
    ])
    .unwrap()
}

fn hash(password: &str) -> PasswordHash {
    static KNOWN: LazyLock<Mutex<BTreeMap<String, PasswordHash>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap();
    known
        .entry(password.to_owned())
        .or_insert_with(|| {
            let hashing = Passwords::insecure_fast();
            let password = Password::new(password.to_owned());
            std::thread::spawn(move || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap()
                    .block_on(hashing.hash(password))
                    .unwrap()
            })
            .join()
            .unwrap()
        })
        .clone()
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Memory::new(), |service| service).await
    }

    /// Creates a world on this store, with more settings.
    pub(crate) async fn with(
        store: impl Into<AnyStore>,
        more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder,
    ) -> Self {
        Self::on(store.into(), ManualClock::new(), more).await
    }

    pub(crate) async fn on(
        store: AnyStore,
        clock: ManualClock,
        more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder,
    ) -> Self {
        let tokens = Tokens::new();
        Self::made(store, clock, clients(), tokens, more).await
    }

    /// Creates a world with these clients and these token settings.
    pub(crate) async fn made(
        store: AnyStore,
        clock: ManualClock,
        clients: ClientTable,
        tokens: Tokens,
        more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder,
    ) -> Self {
        Self::under(ISSUER, (store, clock), clients, tokens, more).await
    }

    /// Creates a world with its own issuer.
    pub(crate) async fn under(
        issuer: &str,
        (store, clock): (AnyStore, ManualClock),
        clients: ClientTable,
        tokens: Tokens,
        more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder,
    ) -> Self {
        let (outbox, log) = (Outbox::new(), EventLog::new());
        let users = StoredUsers::with_clock(store.clone(), clock.clone());
        people(&users).await;
        let limiter =
            Limiter::builder(Plans::new(Quota::per_minute(1_000_000).unwrap())).clock(clock.clone()).build().unwrap();
        let service = AuthService::builder(issuer, store.clone())
            .clients(clients)
            .users(users.clone())
            .client_ip(ClientIp::peer())
            .tokens(tokens)
            .introspector(&Secret::parse(INTROSPECTOR).unwrap())
            .sms(outbox.clone())
            .email(outbox.clone())
            .whatsapp(outbox.clone())
            .passwords(Passwords::insecure_fast())
            .limiter(limiter)
            .events(log.clone())
            .clock(clock.clone());
        let service = more(service).build().unwrap();
        let sessions = service.sessions().clone();
        Self { service, clock, outbox, log, users, sessions, store }
    }

    pub(crate) fn browser(&self) -> Browser {
        Browser { service: self.service.clone(), cookies: BTreeMap::new(), address: [192, 0, 2, 1].into() }
    }

    /// Waits for the newest code sent to this address, and returns it.
    pub(crate) async fn code(&self, to: &str) -> String {
        for _ in 0..100_000 {
            self.settle().await;
            if let Some(message) =
                self.outbox.messages().iter().rev().find(|message| message.to() == to && message.notice().is_none())
            {
                return message.code().to_owned();
            }
            // another thread may be sending it
            std::thread::yield_now();
        }
        panic!("no code was sent to {to}");
    }

    /// Waits until the queue has delivered all its messages.
    pub(crate) async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Returns the time of the wall clock.
    pub(crate) fn time(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }
}

async fn people(users: &StoredUsers) {
    let acme: Tenant = "acme".parse().unwrap();
    for (id, name, email, phone, password) in
        [("u-ada", "ada", ADA, ADA_PHONE, ADA_PASSWORD), ("u-grace", "grace", GRACE, GRACE_PHONE, GRACE_PASSWORD)]
    {
        let id = UserId::parse(id).unwrap();
        if users.by_id(&acme, &id).await.unwrap().is_some() {
            continue;
        }
        let user = NewUser::new(id, Identifier::parse(name).unwrap())
            .identifier(Identifier::parse(email).unwrap())
            .password(hash(password))
            .contact(Contact::Email(EmailAddress::parse(email).unwrap()))
            .contact(Contact::Phone(PhoneNumber::parse(phone).unwrap()));
        users.create(&acme, user).await.unwrap();
    }
}

/// A browser with its cookies and its address.
#[derive(Clone)]
pub(crate) struct Browser {
    pub(crate) service: AuthService,
    pub(crate) cookies: BTreeMap<String, String>,
    pub(crate) address: std::net::IpAddr,
}

/// A complete response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
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

    /// Returns a parameter from the query of a redirect.
    pub(crate) fn redirected(&self, name: &str) -> Option<String> {
        let query = self.header("location").split_once('?')?.1;
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.clone().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
        found.map(|value| percent_encoding::percent_decode_str(&value).decode_utf8().unwrap().into_owned())
    }
}

impl Browser {
    /// Sends a request and stores the cookies of the response.
    pub(crate) async fn send(&mut self, request: http::request::Builder, body: impl Into<String>) -> Answer {
        self.serve(request.body(Body::from(body.into())).unwrap()).await
    }

    /// Sends a request with any body. If it has cookies of its own, the stored ones are not sent.
    pub(crate) async fn serve<B>(&mut self, mut request: Request<B>) -> Answer
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() && !request.headers().contains_key(header::COOKIE) {
            request.headers_mut().insert(header::COOKIE, cookies.join("; ").parse().unwrap());
        }
        request.extensions_mut().insert(PeerAddr((self.address, 1234).into()));
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response: Response<Body> = self.service.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        for set in parts.headers.get_all(header::SET_COOKIE) {
            let (pair, attributes) = set.to_str().unwrap().split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            if attributes.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let answer = Answer { status: parts.status, headers: parts.headers, text };
        openapi::check(&method, &path, &answer);
        answer
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Answer {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request, body.to_string()).await
    }

    pub(crate) async fn get(&mut self, target: &str) -> Answer {
        self.send(Request::builder().method(Method::GET).uri(target).header("accept", "*/*"), "").await
    }

    /// Begins a login and returns its id.
    pub(crate) async fn start(&mut self, client: &str, identifier: &str) -> String {
        let answer = self.post("/authentication/start", &with(parameters(client), &[("identifier", identifier)])).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn call(&mut self, endpoint: &str, client: &str, id: &str, more: &[(&str, &str)]) -> Answer {
        let body = with(with(parameters(client), &[("session_id", id)]), more);
        self.post(&format!("/authentication/{endpoint}"), &body).await
    }

    /// Calls an endpoint of the sign-up or of a reset, such as `sign-up/code`.
    pub(crate) async fn life(&mut self, path: &str, client: &str, id: &str, more: &[(&str, &str)]) -> Answer {
        let body = with(with(parameters(client), &[("session_id", id)]), more);
        self.post(&format!("/{path}"), &body).await
    }

    pub(crate) async fn password(&mut self, client: &str, id: &str, username: &str, password: &str) -> Answer {
        let more = [("method", "password"), ("username", username), ("password", password)];
        self.call("authenticate", client, id, &more).await
    }

    /// Requests a code by `sms`, `email` or `whatsapp`.
    pub(crate) async fn ask(&mut self, client: &str, id: &str, method: &str, address: &str) -> Answer {
        let field = if method == "email" { "email" } else { "phone_number" };
        self.call("authenticate", client, id, &[("method", method), (field, address)]).await
    }

    pub(crate) async fn verify(&mut self, client: &str, id: &str, code: &str) -> Answer {
        self.call("verify-otp", client, id, &[("otp", code)]).await
    }

    pub(crate) async fn complete(&mut self, client: &str, id: &str) -> Answer {
        self.call("complete", client, id, &[]).await
    }

    /// Completes a login of ada or grace by password, up to its code. Returns the login id.
    pub(crate) async fn log_in(&mut self, client: &str, who: &str) -> String {
        let password = if who == GRACE { GRACE_PASSWORD } else { ADA_PASSWORD };
        let id = self.start(client, who).await;
        assert_eq!(self.password(client, &id, who, password).await.status, 200);
        assert_eq!(self.complete(client, &id).await.status, 200);
        id
    }

    /// Posts a form.
    pub(crate) async fn form(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(posted(path), form_of(fields)).await
    }

    pub(crate) async fn status(&mut self, id: &str) -> Answer {
        self.get(&format!("/authentication/status?session_id={id}")).await
    }

    pub(crate) async fn authorize(&mut self, client: &str) -> Answer {
        self.get(&format!("/authorize?{}&state=xyz", query(client))).await
    }
}

/// Returns the six parameters of a client as JSON.
pub(crate) fn parameters(client: &str) -> Value {
    json!({
        "client_id": client,
        "redirect_uri": redirect_uri(client),
        "response_type": "code",
        "scope": "openid",
        "code_challenge": challenge(),
        "code_challenge_method": "S256",
    })
}

/// Returns the six parameters of a client as a query.
pub(crate) fn query(client: &str) -> String {
    query_of(&parameters(client))
}

/// Writes an object of strings as a query.
pub(crate) fn query_of(pairs: &Value) -> String {
    let pairs = pairs.as_object().unwrap().iter();
    form_of(&pairs.map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect::<Vec<_>>())
}

/// Writes fields as a form or a query.
pub(crate) fn form_of(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    pairs.join("&")
}

/// Begins a request that posts a form.
pub(crate) fn posted(path: &str) -> http::request::Builder {
    Request::post(path).header("content-type", "application/x-www-form-urlencoded")
}

pub(crate) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

pub(crate) fn redirect_uri(client: &str) -> &'static str {
    if client == "native" { "http://127.0.0.1:51004/callback" } else { CALLBACK }
}

/// Returns the object with these members set.
pub(crate) fn with(mut object: Value, members: &[(&str, &str)]) -> Value {
    for (name, value) in members {
        object[*name] = json!(value);
    }
    object
}

/// Runs all futures concurrently.
pub(crate) async fn join<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in futures.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(cx) {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().map(Option::unwrap).collect()
}
