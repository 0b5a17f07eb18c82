//! An MCP server with its own sign-in: notes of each user, tools by scope, and a limit for each tenant.
//!
//!     cargo run -p tollgate-mcp --example mcp_server
//!
//! It prints the URL for an MCP client, the client ids, and who can sign in.

#![expect(clippy::print_stdout, reason = "prints how to connect")]

use std::{error::Error, net::SocketAddr, sync::Arc};

use axum::Router;
use http::request::Parts;
use rmcp::{
    ErrorData, ServerHandler,
    handler::server::{tool::Extension, wrapper::Parameters},
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        self as streamable, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use tokio::{net::TcpListener, sync::Mutex};
use tollgate::{
    AccessToken, AuthService, BearerLayer, Client, ClientIp, ClientTable, Identifier, Limiter, NewUser, Password,
    Passwords, Plans, Quota, StoredUsers, Tenant, Tokens, UserId,
    store::{AnyStore, Memory},
};

const PASSWORD: &str = "correct horse battery staple";

/// Each tenant has one MCP client and one user.
const TENANTS: [(&str, &str, &str); 2] = [("acme", "notes-acme", "ada"), ("globex", "notes-globex", "grace")];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(address).await?;
    let origin = format!("http://localhost:{}", listener.local_addr()?.port());
    // the name of this API: clients request tokens for it
    let resource = format!("{origin}/mcp");

    let (store, mut clients) = (AnyStore::from(Memory::new()), Vec::new());
    let users = StoredUsers::new(store.clone());
    for (tenant, client, user) in TENANTS {
        let tenant = Tenant::parse(tenant)?;
        let user = NewUser::new(UserId::parse(format!("u-{user}"))?, Identifier::parse(user)?);
        users.create(&tenant, user.password(Passwords::new().hash(Password::new(PASSWORD)).await?)).await?;
        let client = Client::new(client, tenant)?.name("Notes in your assistant")?.resource(&resource)?.third_party();
        let client = client.redirect_uri("http://127.0.0.1/callback")?; // on any port
        clients.push(client.scopes("notes:read notes:write offline_access")?);
    }
    let auth = AuthService::builder(&origin, store)
        .clients(ClientTable::new(clients)?)
        .users(users)
        .tokens(Tokens::new())
        .client_ip(ClientIp::peer())
        .insecure_loopback() // plain HTTP; leave it out behind TLS
        .build()?;

    // `Verifier::remote` instead, if the login service is another process
    let layer = BearerLayer::new(auth.verifier())
        .require_scope("notes:read")?
        .limit(Limiter::memory(Plans::new(Quota::per_minute(60)?)))
        .resource(&resource)?
        .resource_name("Notes")?
        .resource_scope("notes:read")?
        .resource_scope("notes:write")?;
    // without sessions of MCP, each request counts for the user of its own token
    let (notes, sessions) = (Notes::default(), Arc::new(NeverSessionManager::default()));
    let config = streamable::StreamableHttpServerConfig::default().with_legacy_session_mode(false);
    let mcp = StreamableHttpService::new(move || Ok(notes.clone()), sessions, config.with_json_response(true));
    let document = layer.document_path();
    let api = Router::new().route_service("/mcp", mcp.clone()).route_service(&document, mcp).layer(layer);
    let app = api.fallback_service(auth);

    println!("connect an MCP client to {resource}");
    TENANTS.iter().for_each(|(_, client, user)| println!("client id {client}: sign in as {user} with {PASSWORD:?}"));
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// All notes, each with its user.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<(String, String)>>>);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NewNote {
    /// The text of the note.
    text: String,
}

#[tool_router]
impl Notes {
    #[tool(description = "Lists your notes.")]
    async fn list_notes(&self, Extension(request): Extension<Parts>) -> Result<String, ErrorData> {
        let (user, all) = (caller(&request, "notes:read")?, self.0.lock().await);
        let own = all.iter().filter(|(owner, _)| owner == user);
        Ok(own.map(|(_, text)| format!("{text}\n")).collect())
    }

    #[tool(description = "Adds a note.")]
    async fn add_note(
        &self,
        Extension(request): Extension<Parts>,
        Parameters(NewNote { text }): Parameters<NewNote>,
    ) -> Result<String, ErrorData> {
        let user = caller(&request, "notes:write")?.to_owned();
        self.0.lock().await.push((user, text));
        Ok("added".to_owned())
    }
}

#[tool_handler]
impl ServerHandler for Notes {}

/// Returns the user of a request, if the token has the scope that a tool needs.
fn caller<'a>(request: &'a Parts, scope: &str) -> Result<&'a str, ErrorData> {
    let token = AccessToken::from_extensions(&request.extensions).filter(|token| token.has_scope(scope));
    let lacks = || ErrorData::invalid_request(format!("the access token lacks the scope {scope}"), None);
    token.map(AccessToken::subject).ok_or_else(lacks)
}
