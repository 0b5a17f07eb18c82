//! The identity provider of `--sso-demo`: a second tollgate on another port, with users of its own.

use std::{error::Error, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, StoredUsers, Tenant, Tokens,
    sso::{OidcProvider, SsoConnection},
    store::{AnyStore, Memory},
};

use crate::{
    person::{Person, Proof},
    providers::NewAccounts,
    tokens,
    users::AccountTable,
};

/// The name of the provider in URLs, and our client id there.
const NAME: &str = "example-id";
const CLIENT: &str = "demo";

/// Name, full name, e-mail address and password of its users.
const PEOPLE: [(&str, &str, &str, &str); 2] = [
    ("alan", "Alan Turing", "alan@example.com", "can machines think"),
    ("ada", "Ada Lovelace", "ada@example.com", "notes on the engine"),
];

/// The server prints this at its start.
pub(crate) const WELCOME: &str = "
Single sign-on: choose \"Example ID\" at the login. Its users are alan (password: can machines think), who gets a new
account here, and ada (notes on the engine). For ada, click \"two steps\", and sign in with her password here first:
that links her account, and from then on Example ID alone is enough.
";

/// Serves the provider for a server at this origin, and returns its issuer.
pub(crate) async fn start(origin: &str, port: u16) -> Result<String, Box<dyn Error>> {
    // its own host name keeps its cookies apart
    let listener = match TcpListener::bind(("127.0.0.1", port)).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind(("127.0.0.1", 0)).await?,
    };
    let issuer = format!("http://{}", listener.local_addr()?);
    let (store, tenant) = (AnyStore::from(Memory::new()), Tenant::parse(NAME)?);
    let users = StoredUsers::new(store.clone());
    for (name, full_name, email, password) in PEOPLE {
        let person = Person {
            tenant: tenant.clone(),
            id: format!("id-{name}"),
            name: Some(full_name.to_owned()),
            identifiers: vec![name.to_owned(), email.to_owned()],
            password: Some(Proof::Password(password)),
            email: Some(email.to_owned()),
            phone: None,
            line: None,
        };
        users.create(&tenant, person.account().await?).await?;
    }
    let client = Client::new(CLIENT, tenant)?
        .insecure_localhost(&format!("{origin}/authentication/sso/{NAME}/callback"))?
        .scopes("openid profile email")?
        .name("Demo")?;
    let auth = AuthService::builder(&issuer, store)
        .clients(ClientTable::new([client])?)
        .users(users)
        .client_ip(ClientIp::peer())
        .tokens(Tokens::new())
        .insecure_loopback()
        .build()?;
    tokens::prepare(&auth).await?;
    let service = Router::new().fallback_service(auth).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(issuer)
}

/// Returns the connection to the provider, and its name.
pub(crate) fn connection(issuer: &str, users: &AccountTable) -> Result<(&'static str, SsoConnection), Box<dyn Error>> {
    let provider = OidcProvider::new(issuer, CLIENT)?.userinfo();
    let connection = SsoConnection::new(provider)
        .label("Example ID")
        // the provider manages the mailboxes of this domain
        .trust_email_domain("example.com")?
        .create_account(NewAccounts { provider: NAME.to_owned(), users: users.clone() });
    Ok((NAME, connection))
}
