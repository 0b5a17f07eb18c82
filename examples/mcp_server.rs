//! An MCP server with its own sign-in: notes of each user, tools by scope, and a limit for each tenant.
//!
//!     cargo run -p tollgate-mcp --example mcp_server
//!
//! It prints the URL for an MCP client, the client ids, and who can sign in.

#![expect(clippy::print_stdout, reason = "prints how to connect")]

use std::{
    collections::HashMap,
    error::Error,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::Router;
use http::request::Parts;
use rmcp::{
    ErrorData, ServerHandler,
    handler::server::{tool::Extension, wrapper::Parameters},
    model::{ServerCapabilities, ServerConfig},
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::TcpListener;
use tollgate::{
    AccessToken, AuthService, BearerLayer, Client, ClientIp, ClientTable, Identifier, Limiter, NewUser, Password,
    Passwords, Plans, Quota, StoredUsers, Tenant, Tokens, UserId,
    store::{AnyStore, Memory},
};

const PASSWORD: &str = "correct horse battery staple";

/// The tenants, each with its MCP client and its user.
const TENANTS: [(&str, &str, &str); 2] = [("acme", "notes-acme", "ada"), ("globex", "notes-globex", "grace")];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(address).await?;
    let origin = format!("http://localhost:{}", listener.local_addr()?.port());
    // the name of this API: clients request tokens for it
    let resource = format!("{origin}/mcp");

    let store = AnyStore::from(Memory::new());
    let users = StoredUsers::new(store.clone());
    let mut clients = Vec::new();
    for (tenant, client, user) in TENANTS {
        let tenant = Tenant::parse(tenant)?;
        let hash = Passwords::new().hash(Password::new(PASSWORD)).await?;
        let id = UserId::parse(format!("u-{user}"))?;
        users.create(&tenant, NewUser::new(id, Identifier::parse(user)?).password(hash)).await?;
        clients.push(
            Client::new(client, tenant)?
                .name("Notes in your assistant")?
                .redirect_uri("http://127.0.0.1/callback")? // any port
                .scopes("notes:read notes:write offline_access")?
                .resource(&resource)?,
        );
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
    let document = layer.document_path();

    let notes = Notes::default();
    // without sessions of MCP, each request counts for the user of its own token
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let mcp = StreamableHttpService::new(move || Ok(notes.clone()), Arc::new(NeverSessionManager::default()), config);
    let app = Router::new()
        .route_service("/mcp", mcp.clone())
        .route_service(&document, mcp)
        .layer(layer)
        .fallback_service(auth);

    println!("connect an MCP client to {resource}");
    for (tenant, client, user) in TENANTS {
        println!("client id {client}: sign in at {tenant} as {user} with the password: {PASSWORD}");
    }
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// The notes of each user.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<HashMap<String, Vec<String>>>>);

#[derive(Deserialize, JsonSchema)]
struct NewNote {
    /// The text of the note.
    text: String,
}

#[tool_router]
impl Notes {
    #[tool(description = "Lists your notes.")]
    async fn list_notes(&self, Extension(request): Extension<Parts>) -> Result<String, ErrorData> {
        let user = caller(&request, "notes:read")?;
        self.change(user, |own| if own.is_empty() { "no notes".to_owned() } else { own.join("\n") })
    }

    #[tool(description = "Adds a note.")]
    async fn add_note(
        &self,
        Extension(request): Extension<Parts>,
        Parameters(NewNote { text }): Parameters<NewNote>,
    ) -> Result<String, ErrorData> {
        let user = caller(&request, "notes:write")?;
        self.change(user, |own| {
            own.push(text);
            format!("{} notes", own.len())
        })
    }
}

impl Notes {
    fn change(&self, user: &str, change: impl FnOnce(&mut Vec<String>) -> String) -> Result<String, ErrorData> {
        let mut all = self.0.lock().map_err(|_| ErrorData::internal_error("the notes are gone", None))?;
        Ok(change(all.entry(user.to_owned()).or_default()))
    }
}

#[tool_handler]
impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// Returns the user of a request, if the token has the scope that a tool needs.
fn caller<'a>(request: &'a Parts, scope: &str) -> Result<&'a str, ErrorData> {
    let token = AccessToken::from_extensions(&request.extensions);
    let token = token.filter(|token| token.has_scope(scope));
    let lacks = || ErrorData::invalid_request(format!("the access token lacks the scope {scope}"), None);
    token.map(AccessToken::subject).ok_or_else(lacks)
}
