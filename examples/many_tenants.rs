//! One application that many tenants use, each with its own users.
//!
//!     cargo run --example many_tenants
//!
//! It prints the URLs to open. The documentation of the module `client` lists the pitfalls.

#![expect(clippy::print_stdout, reason = "it tells what to open")]

use std::{collections::HashSet, error::Error, net::SocketAddr, sync::Arc};

use axum::{Router, extract::ConnectInfo, response::Html, routing::get};
use tokio::net::TcpListener;
use tollgate::{
    AccessToken, AuthService, BearerLayer, Client, ClientIp, Identifier, Limiter, NewUser, Password, Passwords, Plans,
    Quota, RateLimitLayer, StoredUsers, Tenant, Tokens, UserId,
    bearer::AccessTokenTenant,
    client::Clients,
    store::{AnyStore, Memory, StoreError},
};

/// Derives a client for each tenant: `app.acme` for `acme`, which returns to `/acme/callback`.
struct OneApp {
    origin: String,
    /// In your application, a database with a small cache in front.
    tenants: HashSet<Tenant>,
}

impl Clients for OneApp {
    async fn find(&self, client_id: &str) -> Result<Option<Arc<Client>>, StoreError> {
        // callers can ask for any text: nothing is derived from it before the tenant is found
        let tenant = client_id.strip_prefix("app.").and_then(|name| Tenant::parse(name).ok());
        let known = tenant.filter(|tenant| self.tenants.contains(tenant));
        Ok(known.and_then(|tenant| self.client(tenant)).map(Arc::new))
    }

    async fn allows_origin(&self, _: &str) -> Result<bool, StoreError> {
        Ok(false) // no page of another origin calls the login service
    }
}

impl OneApp {
    fn client(&self, tenant: Tenant) -> Option<Client> {
        let (id, callback) = (format!("app.{tenant}"), format!("{}/{tenant}/callback", self.origin));
        Client::new(&id, tenant).ok()?.redirect_uri(&callback).ok()?.scopes("openid").ok()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(address).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let (store, mut tenants) = (AnyStore::from(Memory::new()), HashSet::new());
    let users = StoredUsers::new(store.clone());
    for (name, password) in [("acme", "correct horse battery staple"), ("globex", "compilers are polite")] {
        let tenant = Tenant::parse(name)?;
        let hash = Passwords::new().hash(Password::new(password)).await?;
        // names are unique in a tenant, ids in all of them
        let user = NewUser::new(UserId::parse(format!("ada-of-{name}"))?, Identifier::parse("ada")?);
        users.create(&tenant, user.password(hash)).await?;
        println!("open {origin}/{name}/ and sign in as ada with the password: {password}");
        tenants.insert(tenant);
    }
    let address =
        ClientIp::peer().peer_by(|head| head.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0));
    let auth = AuthService::builder(&origin, store)
        .clients(OneApp { origin: origin.clone(), tenants })
        .users(users)
        .client_ip(address)
        .tokens(Tokens::new())
        .insecure_loopback() // plain HTTP; leave it out behind TLS
        .build()?;
    let by_tenant = Limiter::memory(Plans::new(Quota::const_per_minute::<600>()));
    let api = Router::new()
        .route("/me", get(me))
        .layer(RateLimitLayer::new(AccessTokenTenant, by_tenant)) // a budget for each tenant
        .layer(BearerLayer::new(auth.verifier()));
    let app = Router::new()
        // the application, which runs in the browser
        .route("/{tenant}/", get(async || PAGE))
        .route("/{tenant}/callback", get(async || PAGE))
        .nest("/api", api)
        .fallback_service(auth);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

const PAGE: Html<&str> = Html(include_str!("many_tenants.html"));

async fn me(token: AccessToken) -> String {
    format!("{} of {}", token.subject(), token.tenant().map_or("no tenant", Tenant::as_str))
}
