//! A login service in an axum router, below `/auth`: the sessions that it begins open `/account`, and its requests spend
//! the budget that each tenant has for the API.
//!
//!     cargo run --example login_axum
//!
//! It prints the calls of a login, for you to make.

#![expect(clippy::print_stdout, reason = "it tells what to try")]

use std::{error::Error, net::SocketAddr};

use axum::{Router, extract::ConnectInfo, routing::get};
use tokio::net::TcpListener;
use tollgate::{
    ApiKeys, AuthService, Client, ClientIp, ClientTable, Head, Identifier, Limiter, NewUser, Password, Passwords,
    Quota, Quotas, RateLimitLayer, Session, SessionLayer, StoredUsers, Tenant, UserId,
    store::{AnyStore, Memory},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    print_what_to_try(&origin);
    let app = app(&origin).await?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}

async fn app(origin: &str) -> Result<Router, Box<dyn Error>> {
    let acme = Tenant::parse("acme")?;
    // `store::Disk` in place of it keeps all that over a restart
    let store = AnyStore::from(Memory::new());
    // plain http, on loopback: leave out both `insecure_loopback` where there is TLS
    // one budget for the API and the logins of a tenant
    let limiter = Limiter::memory(Quotas::new(Quota::per_minute(600)?));

    let users = StoredUsers::new(store.clone());
    let hash = Passwords::new().hash(Password::new("correct horse battery staple")).await?;
    users.create(&acme, NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada")?).password(hash)).await?;
    let web = Client::new("web", acme)?.redirect_uri(&format!("{origin}/callback"))?.scopes("openid")?;

    // its endpoints are {origin}/auth/authorize and so on; whether the router strips `/auth` makes no difference
    let auth = AuthService::builder(&format!("{origin}/auth"), store)
        .clients(ClientTable::new([web])?)
        .users(users)
        .limiter(limiter.clone())
        .client_ip(ClientIp::peer().peer_by(peer))
        .insecure_loopback()
        .build()?;

    let limit = RateLimitLayer::new(ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?, limiter);
    let signed_in = SessionLayer::new(auth.sessions().clone()).required();
    Ok(Router::new()
        .nest_service("/auth", auth)
        .route("/account", get(account).layer(signed_in))
        .route("/api/hello", get(async || "hello\n").layer(limit))
        // what `web` would serve: here its code ends
        .route("/callback", get(async || "logged in\n")))
}

/// axum keeps the other end of a connection here.
fn peer(head: Head<'_>) -> Option<SocketAddr> {
    head.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0)
}

async fn account(session: Session) -> String {
    format!("{} of {}\n", session.user(), session.tenant())
}

/// The challenge is that of RFC 7636, appendix B; a client makes one for each login.
fn print_what_to_try(origin: &str) {
    let [query, json] = [("{}={}", "&"), (r#""{}":"{}""#, ",")].map(|(pair, between)| {
        [
            ("client_id", "web"),
            ("redirect_uri", &format!("{origin}/callback")),
            ("response_type", "code"),
            ("scope", "openid"),
            ("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"),
            ("code_challenge_method", "S256"),
        ]
        .map(|(name, value)| pair.replacen("{}", name, 1).replacen("{}", value, 1))
        .join(between)
    });
    let call = |endpoint, members: &str| {
        println!(
            "  curl -b jar -c jar {origin}/auth/authentication/{endpoint} -H 'content-type: application/json' -d '{{{members},{json}}}'"
        );
    };
    println!("listening on http://{}; a login, with the session_id of the first answer in the next:", &origin[7..]);
    call("start", r#""identifier":"ada""#);
    let password = r#""method":"password","username":"ada","password":"correct horse battery staple""#;
    call("authenticate", &format!(r#""session_id":"…",{password}"#));
    call("complete", r#""session_id":"…""#);
    println!("  curl -b jar -c jar -i '{origin}/auth/authorize?{query}'");
    println!("  curl -b jar {origin}/account");
    println!("  curl -i -H 'x-api-key: demo-acme-key' {origin}/api/hello");
}
