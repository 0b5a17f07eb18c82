//! Five tenants with clients that share sessions, and the steps of logins there.

use http::{Request, Response, header};
use serde_json::Value;
use tollgate::{
    Client, ClientTable, Identifier, Password, Passwords, Secret, Session, SessionLayer, Tenant, Tokens, UserId,
    auth::AuthServiceBuilder,
    body::Body,
    password::PasswordHash,
    pkce::{CodeChallenge, CodeVerifier},
    policy::Policy,
    store::{AnyStore, Memory},
    testing::ManualClock,
    user::{Contact, EmailAddress, NewUser},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    special_worlds::put_keys,
    token_requests::Grant,
    world::{ADA, Answer, Browser, CALLBACK, World, parameters, query_of, with},
};

pub(crate) const TENANTS: [&str; 5] = ["acme", "globex", "third", "fourth", "fifth"];

pub(crate) fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

pub(crate) fn user(id: &str) -> UserId {
    UserId::parse(id).unwrap()
}

pub(crate) fn name(text: &str) -> Identifier {
    Identifier::parse(text).unwrap()
}

pub(crate) fn mailbox(address: &str) -> Contact {
    Contact::Email(EmailAddress::parse(address).unwrap())
}

pub(crate) async fn hashed(password: &str) -> PasswordHash {
    Passwords::insecure_fast().hash(Password::new(password.to_owned())).await.unwrap()
}

/// Each tenant has `<tenant>-web` and `<tenant>-two` (two steps) without single sign-on, and `<tenant>-shop` and
/// `<tenant>-bank` (two steps) with it.
fn clients() -> ClientTable {
    let client = |of: &str, kind: &str| {
        let client = Client::new(&format!("{of}-{kind}"), tenant(of)).unwrap();
        client.scopes("openid profile email offline_access").unwrap().redirect_uri(CALLBACK).unwrap()
    };
    let two = || Policy::any(2).unwrap();
    let of_tenant = |of: &'static str| {
        let (web, twice) = (client(of, "web"), client(of, "two").policy(two()));
        let (shop, bank) = (client(of, "shop"), client(of, "bank").policy(two()));
        [web, twice, shop.single_sign_on(), bank.single_sign_on()]
    };
    ClientTable::new(TENANTS.into_iter().flat_map(of_tenant)).unwrap()
}

pub(crate) async fn world() -> World {
    world_with(|service| service).await
}

pub(crate) async fn world_with(more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder) -> World {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    node(store, ManualClock::new(), more).await
}

/// Creates one of several services on a store that has keys.
pub(crate) async fn node(
    store: AnyStore,
    clock: ManualClock,
    more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder,
) -> World {
    World::made(store, clock, clients(), Tokens::new(), more).await
}

/// A login in progress.
#[derive(Clone)]
pub(crate) struct Begun {
    own: Value,
    pub(crate) id: String,
    verifier: String,
    /// The response to its start.
    pub(crate) started: Value,
}

impl Begun {
    /// Returns the parameters that the login is bound to.
    pub(crate) fn own(&self) -> &Value {
        &self.own
    }
}

/// Creates a challenge and its verifier.
pub(crate) fn challenge() -> (String, String) {
    let verifier = Secret::generate().expose().to_owned();
    (CodeChallenge::from_verifier(&CodeVerifier::parse(&verifier).unwrap()).to_string(), verifier)
}

impl World {
    pub(crate) async fn create(&self, tenant: &Tenant, id: &str, identifier: &str, address: &str, password: &str) {
        let new = NewUser::new(user(id), name(identifier)).password(hashed(password).await).contact(mailbox(address));
        self.users.create(tenant, new).await.unwrap();
    }

    /// Returns the name of the session cookie of a tenant.
    pub(crate) fn cookie_of(&self, tenant: &Tenant) -> String {
        let removal = self.sessions.removal(tenant).header_value();
        removal.to_str().unwrap().split('=').next().unwrap().to_owned()
    }

    pub(crate) async fn sessions_of(&self, tenant: &Tenant, id: &str) -> Vec<Session> {
        self.sessions.list(tenant, &user(id)).await.unwrap()
    }

    /// Returns the `sid` of the session that an application behind a layer sees in this browser.
    pub(crate) async fn seen(&self, tenant: Option<&Tenant>, browser: &Browser) -> Option<String> {
        let inner = service_fn(async |request: Request<Body>| {
            let session = Session::from_extensions(request.extensions()).map(|session| session.sid().to_string());
            Ok::<_, std::convert::Infallible>(Response::new(session))
        });
        let layer = SessionLayer::new(self.sessions.clone());
        let layer = match tenant {
            Some(tenant) => layer.tenant(tenant.clone()),
            None => layer,
        };
        let cookies: Vec<_> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = Request::get("/account").header(header::COOKIE, cookies.join("; "));
        layer.layer(inner).oneshot(request.body(Body::empty()).unwrap()).await.unwrap().into_body()
    }

    pub(crate) async fn change_password(&self, tenant: &Tenant, id: &str, password: &str) {
        self.users.set_password(tenant, &user(id), Some(hashed(password).await)).await.unwrap();
    }

    /// Replaces one verified mailbox with another.
    pub(crate) async fn change_contact(&self, tenant: &Tenant, id: &str, old: &str, new: &str) {
        self.users.verify_contact(tenant, &user(id), mailbox(new)).await.unwrap();
        self.users.remove_contact(tenant, &user(id), &mailbox(old)).await.unwrap();
    }

    /// Replaces one sign-in name with another.
    pub(crate) async fn rename(&self, tenant: &Tenant, id: &str, old: &str, new: &str) {
        self.users.add_identifier(tenant, &user(id), &name(new)).await.unwrap();
        self.users.remove_identifier(tenant, &user(id), &name(old)).await.unwrap();
    }
}

impl Browser {
    /// Begins a login with its own challenge.
    pub(crate) async fn begin(&mut self, client: &str, more: &[(&str, &str)]) -> Begun {
        let (challenge, verifier) = challenge();
        let own = with(with(parameters(client), &[("code_challenge", &challenge)]), more);
        self.begun(own.clone(), own, verifier).await
    }

    /// Begins a login of ada with her choice whether to stay signed in.
    pub(crate) async fn begin_remembered(&mut self, client: &str, remember: Option<bool>) -> Begun {
        let (challenge, verifier) = challenge();
        let own = with(parameters(client), &[("code_challenge", &challenge)]);
        let mut body = with(own.clone(), &[("identifier", ADA)]);
        if let Some(remember) = remember {
            body["remember"] = remember.into();
        }
        self.begun(own, body, verifier).await
    }

    async fn begun(&mut self, own: Value, body: Value, verifier: String) -> Begun {
        let answer = self.post("/authentication/start", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let started = answer.json();
        Begun { own, id: started["session_id"].as_str().unwrap().to_owned(), verifier, started }
    }

    pub(crate) async fn step(&mut self, login: &Begun, endpoint: &str, more: &[(&str, &str)]) -> Answer {
        let body = with(with(login.own.clone(), &[("session_id", &login.id)]), more);
        self.post(&format!("/authentication/{endpoint}"), &body).await
    }

    pub(crate) async fn prove_password(&mut self, login: &Begun, name: &str, password: &str) -> Answer {
        let fields = [("method", "password"), ("username", name), ("password", password)];
        self.step(login, "authenticate", &fields).await
    }

    /// Requests a code by e-mail and enters it, if one was sent.
    pub(crate) async fn prove_mailbox(&mut self, world: &World, login: &Begun, address: &str) -> Answer {
        let sent = world.outbox.messages().len();
        let answer = self.step(login, "authenticate", &[("method", "email"), ("email", address)]).await;
        if answer.status != 200 {
            return answer;
        }
        world.settle().await;
        let code = world.outbox.messages().get(sent).map_or("000000".to_owned(), |message| message.code().to_owned());
        self.step(login, "verify-otp", &[("otp", &code)]).await
    }

    /// Confirms a login and returns to `/authorize` for its code.
    pub(crate) async fn finish(&mut self, login: &Begun) -> Result<Grant, Answer> {
        self.step(login, "complete", &[]).await;
        self.return_of(login).await
    }

    /// Returns to `/authorize` for the code of a login.
    pub(crate) async fn return_of(&mut self, login: &Begun) -> Result<Grant, Answer> {
        let answer = self.return_whole(login).await;
        let code = answer.redirected("code").ok_or(answer)?;
        Ok(Grant { code, verifier: login.verifier.clone() })
    }

    /// Returns to `/authorize`, and returns the complete response.
    pub(crate) async fn return_whole(&mut self, login: &Begun) -> Answer {
        self.get(&format!("/authorize?{}", query_of(&login.own))).await
    }

    /// Removes the cookie of a login, so that this browser no longer has it.
    pub(crate) fn forget(&mut self, login: &Begun) {
        self.cookies.remove(&format!("__Host-auth_session_{}", &login.id[..8]));
    }

    /// Completes a login with new proofs only: a password, and an e-mail code if an address is given.
    pub(crate) async fn sign_in_as(
        &mut self,
        world: &World,
        client: &str,
        (name, password): (&str, &str),
        address: Option<&str>,
        more: &[(&str, &str)],
    ) -> Grant {
        let login = self.begin(client, &[&[("identifier", name), ("prompt", "login")], more].concat()).await;
        let answer = self.prove_password(&login, name, password).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        if let Some(address) = address {
            let answer = self.prove_mailbox(world, &login, address).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        self.finish(&login).await.unwrap()
    }

    /// Requests a code without any page (`prompt=none`).
    pub(crate) async fn silently(&mut self, client: &str) -> Result<Grant, Answer> {
        let (challenge, verifier) = challenge();
        let own = with(parameters(client), &[("code_challenge", &challenge), ("prompt", "none")]);
        let answer = self.get(&format!("/authorize?{}", query_of(&own))).await;
        let code = answer.redirected("code").ok_or(answer)?;
        Ok(Grant { code, verifier })
    }
}
