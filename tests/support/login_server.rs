//! A login service on its own port.

use std::net::SocketAddr;

use axum::Router;
use tokio::{net::TcpListener, task::JoinHandle};
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, Identifier, Limiter, NewUser, Password, Passwords, Plans, Quota,
    StoredUsers, Tenant, UserId,
    auth::AuthServiceBuilder,
    store::{AnyStore, Memory},
    user::{Contact, EmailAddress, PhoneNumber},
};

use super::browser::Registered;

pub(crate) const PASSWORD: &str = "correct horse battery staple";
/// The phone number of the user `ada`. The mailbox of each user is `<name>@example.com`.
pub(crate) const ADAS_PHONE: &str = "+15555550100";
pub(crate) const WEB: Registered<'_> = Registered { id: "web", redirect_uri: "http://127.0.0.1:51004/callback" };

/// A server that stops when this is dropped.
pub(crate) struct LoginServer {
    pub(crate) address: SocketAddr,
    pub(crate) task: JoinHandle<()>,
}

impl Drop for LoginServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LoginServer {
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Creates a login service with this issuer. `ada` and the users in `others` can sign in through
/// the client `web`.
pub(crate) async fn service(issuer: &str, others: impl IntoIterator<Item = String>) -> AuthServiceBuilder {
    let (acme, store) = (Tenant::parse("acme").unwrap(), AnyStore::from(Memory::new()));
    let (people, passwords) = (StoredUsers::new(store.clone()), Passwords::insecure_fast());
    let hash = passwords.hash(Password::new(PASSWORD)).await.unwrap();
    for (number, name) in ["ada".to_owned()].into_iter().chain(others).enumerate() {
        let (id, mailbox) = (UserId::parse(format!("u-{name}")).unwrap(), format!("{name}@example.com"));
        let user = NewUser::new(id, Identifier::parse(&name).unwrap())
            .password(hash.clone())
            .contact(Contact::Email(EmailAddress::parse(mailbox).unwrap()))
            .contact(Contact::Phone(PhoneNumber::parse(format!("+1555555{:04}", 100 + number)).unwrap()));
        people.create(&acme, user).await.unwrap();
    }
    let web = Client::new("web", acme).unwrap().redirect_uri("http://127.0.0.1/callback").unwrap();
    let clients = ClientTable::new([web.scopes("openid").unwrap()]).unwrap();
    AuthService::builder(issuer, store)
        .clients(clients)
        .users(people)
        .client_ip(ClientIp::peer())
        .passwords(passwords)
        .limiter(Limiter::memory(Plans::new(Quota::per_minute(1_000_000).unwrap())))
        .insecure_loopback()
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Serves the login service with axum, mounted at this path.
pub(crate) async fn axum(
    base: &str,
    others: impl IntoIterator<Item = String>,
    mount: impl FnOnce(AuthServiceBuilder) -> Router,
) -> LoginServer {
    let (listener, address) = listen().await;
    let app = mount(service(&format!("http://{address}{base}"), others).await);
    LoginServer { address, task: tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }) }
}
