//! A login service on a plain hyper server, HTTP/1 and HTTP/2, below a base path, with one-time codes by e-mail.
//!
//!     cargo run --example login_hyper
//!
//!     curl -i http://127.0.0.1:3000/auth/openapi.json
//!
//! Codes are printed; a real server sends them through `delivery::Smtp` or `delivery::Webhook`.

#![expect(clippy::print_stdout, reason = "prints its address and the codes")]

use std::{convert::Infallible, error::Error};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::net::TcpListener;
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, Identifier, NewUser, PeerAddr, Quota, StoredUsers, Tenant, UserId,
    auth::AbuseLimits,
    body::Body,
    clock::{Clock, SystemClock},
    delivery::{Message, OtpSender, SendError},
    store::{AnyStore, Memory},
    user::EmailAddress,
};
use tower::{ServiceExt, service_fn};

/// The base path of the login service.
const BASE: &str = "/auth";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let auth = auth(&origin).await?;
    println!("listening on {origin}");

    let server = auto::Builder::new(TokioExecutor::new());
    loop {
        let (stream, peer) = listener.accept().await?;
        let auth = auth.clone();
        let route = service_fn(move |mut request: Request<Incoming>| {
            // failures are counted per address, and only this loop knows the address
            request.extensions_mut().insert(PeerAddr(peer));
            let auth = auth.clone();
            async move {
                match request.uri().path().strip_prefix(BASE) {
                    // the service knows its base path from its issuer
                    Some(below) if below.starts_with('/') => auth.oneshot(request).await,
                    _ => Ok::<_, Infallible>(elsewhere(request.uri().path())),
                }
            }
        });
        let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(route)).into_owned();
        tokio::spawn(connection);
    }
}

async fn auth(origin: &str) -> Result<AuthService, Box<dyn Error>> {
    let (acme, store) = (Tenant::parse("acme")?, AnyStore::from(Memory::new()));
    let users = StoredUsers::new(store.clone());
    let ada = NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada@example.com")?)
        .contact(EmailAddress::parse("ada@example.com")?);
    users.create(&acme, ada).await?;
    let web = Client::new("web", acme)?.redirect_uri(&format!("{origin}/callback"))?.scopes("openid")?;
    Ok(AuthService::builder(&format!("{origin}{BASE}"), store)
        .clients(ClientTable::new([web])?)
        .users(users)
        .client_ip(ClientIp::peer())
        .email(Printed)
        .without_passwords()
        // one address may spend 60 of the tenant's 600 requests a minute on the login service
        .abuse_limits(
            AbuseLimits::new()
                .requests_per_address(Quota::per_minute(60)?)
                .messages_per_address(Quota::per_minute(10)?),
        )
        // for plain HTTP on a loopback address; leave it out behind TLS
        .insecure_loopback()
        .build()?)
}

/// Prints messages instead of sending them.
struct Printed;

impl OtpSender for Printed {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let (_, now) = SystemClock::new().read();
        println!("{}: {}", message.to(), message.text(now));
        Ok(())
    }
}

/// Serves all other paths, such as the redirect URI.
fn elsewhere(path: &str) -> Response<Body> {
    let found = path == "/callback";
    let mut response = Response::new(Body::from(if found { "logged in\n" } else { "nothing is here\n" }));
    if !found {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}
