//! A page behind a password login, in axum.
//!
//!     cargo run --example login_axum
//!
//! It prints the URL to open, and the name and password of its one user.

#![expect(clippy::print_stdout, reason = "prints what to open")]

use std::{error::Error, net::SocketAddr};

use axum::{Router, response::Html, routing::get};
use tokio::net::TcpListener;
use tollgate::{
    AuthService, ClientIp, Identifier, NewUser, Password, Passwords, Session, StoredUsers, Tenant, UserId,
    store::{AnyStore, Memory},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(address).await?;
    let origin = format!("http://{}", listener.local_addr()?);

    // `store::Disk` keeps users and sessions across restarts
    let (tenant, store) = (Tenant::parse("demo")?, AnyStore::from(Memory::new()));
    let users = StoredUsers::new(store.clone());
    let hash = Passwords::new().hash(Password::new("correct horse battery staple")).await?;
    users.create(&tenant, NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada")?).password(hash)).await?;

    let auth = AuthService::builder(&origin, store)
        .users(users)
        .first_party(tenant)
        .client_ip(ClientIp::peer())
        .insecure_loopback() // plain HTTP; leave it out behind TLS
        .build()?;
    let app =
        Router::new().route("/account", get(account)).layer(auth.session_layer().required()).fallback_service(auth);

    println!("open {origin}/account and sign in as ada with the password: correct horse battery staple");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn account(session: Session) -> Html<String> {
    let user = session.user();
    Html(format!(r#"<h1>Hello {user}</h1><form method="post" action="/sign-out"><button>Sign out</button></form>"#))
}
