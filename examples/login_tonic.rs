//! A login service and a gRPC service on one port. Browsers log in at `/auth`, where an application gets tokens. The health
//! service answers only calls with an access token.
//!
//!     cargo run --example login_tonic 127.0.0.1:50051
//!
//!     curl -i http://127.0.0.1:50051/auth/openapi.json
//!     grpc_health_probe -addr 127.0.0.1:50051                    # Unauthenticated
//!     grpc_health_probe -addr 127.0.0.1:50051 -rpc-header "authorization: Bearer $TOKEN"

#![expect(clippy::print_stdout, reason = "prints its address")]

use std::{error::Error, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
use tollgate::{
    AuthService, BearerLayer, Client, ClientIp, ClientTable, Identifier, NewUser, Password, Passwords, StoredUsers,
    Tenant, Tokens, UserId,
    store::{AnyStore, Memory},
};
use tonic::service::Routes;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50051".into())).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let store = AnyStore::from(Memory::new());
    let issuer = format!("{origin}/auth");
    let auth = auth(&issuer, store).await?;
    auth.prepare().await?;

    // every call needs a token: gRPC clients send it as metadata and get errors as a gRPC status
    let (_reporter, health) = tonic_health::server::health_reporter();
    let grpc = Routes::new(health).into_axum_router().layer(BearerLayer::new(auth.verifier()));

    println!("listening on {origin}");
    // gRPC needs HTTP/2, browsers without TLS speak HTTP/1.1: this serves both
    let app = Router::new().nest_service("/auth", auth).fallback_service(grpc);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn auth(issuer: &str, store: AnyStore) -> Result<AuthService, Box<dyn Error>> {
    let acme = Tenant::parse("acme")?;
    let users = StoredUsers::new(store.clone());
    let hash = Passwords::new().hash(Password::new("correct horse battery staple")).await?;
    users.create(&acme, NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada")?).password(hash)).await?;
    let native = Client::new("native", acme)?.redirect_uri("http://127.0.0.1/callback")?.scopes("openid")?;
    Ok(AuthService::builder(issuer, store)
        .clients(ClientTable::new([native])?)
        .users(users)
        .tokens(Tokens::new())
        .client_ip(ClientIp::peer())
        // for plain HTTP on a loopback address; leave it out behind TLS
        .insecure_loopback()
        .build()?)
}
