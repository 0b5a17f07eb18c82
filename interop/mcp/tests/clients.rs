//! MCP clients that others wrote connect to `examples/mcp_server.rs`, and their user signs in with a real browser.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]
#![expect(clippy::print_stderr, reason = "skipped tests print a message")]

#[path = "../../../tests/support/chromium.rs"]
#[expect(dead_code, reason = "not every test uses all of it")]
mod chromium;
#[path = "../../../tests/support/programs.rs"]
mod programs;

use std::{path::Path, process::Stdio};

use axum::{Router, extract::RawQuery, routing::get};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use chromium::Chromium;
use rmcp::{
    ServiceExt,
    model::CallToolRequestParams,
    transport::{
        StreamableHttpClientTransport,
        auth::{AuthClient, AuthorizationRequest, OAuthState},
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdout, Command},
    sync::mpsc,
};

const PASSWORD: &str = "correct horse battery staple";

/// The example, stopped on drop.
struct Server {
    origin: String,
    _child: Child,
    /// Kept open so that it can continue to print.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    async fn start() -> Self {
        let mut child = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "-p", "tollgate-mcp", "--example", "mcp_server", "--", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let origin = first.strip_prefix("connect an MCP client to ").unwrap().strip_suffix("/mcp").unwrap().to_owned();
        Self { origin, _child: child, _lines: lines }
    }
}

/// Signs a user in on the page that a client opens, and allows what the client asks for. The browser goes back to the client.
async fn sign_in(browser: &mut Chromium, url: &str, user: &str) {
    browser.open(url).await;
    for (field, text) in [("identifier", user), ("secret", PASSWORD)] {
        browser.until(&format!("document.activeElement.id === '{field}' && !document.body.ariaBusy")).await;
        browser.insert(text).await;
        browser.press("Enter").await;
    }
    // the consent is asked for again only for more
    let (back, allow) = ("location.pathname === '/callback'", "button[value=allow]");
    browser.until(&format!("{back} || document.querySelector('{allow}')")).await;
    if browser.ask(back).await != Ok(json!(true)) {
        browser.click(allow).await;
        browser.until(back).await;
    }
}

#[tokio::test]
async fn c135_the_typescript_sdk_finds_the_issuer_signs_in_and_calls_tools() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(node) = programs::program(&["node"]) else { return programs::missing("node is not on PATH") };
    if !directory.join("node_modules").is_dir() {
        return programs::missing("the MCP SDK is not installed: run `npm ci` in interop/mcp");
    }
    let Some(mut browser) = Chromium::start("mcp-typescript").await else { return };
    let server = Server::start().await;
    let mut script = Command::new(node);
    script.args(["main.mjs", &server.origin]).current_dir(directory).kill_on_drop(true).stdout(Stdio::piped());
    let mut script = script.spawn().unwrap();
    let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
    let mut done = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        match line.strip_prefix("open: ") {
            Some(url) => sign_in(&mut browser, url, "ada").await,
            None => done.push(line),
        }
    }
    assert!(script.wait().await.unwrap().success(), "{done:#?}");
    assert_eq!(done.iter().filter(|line| line.starts_with("ok: ")).count(), 6, "{done:#?}");
}

/// Listens where the browser comes back to the client.
async fn callback() -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let redirect_uri = format!("http://{}/callback", listener.local_addr().unwrap());
    let (tell, back) = mpsc::unbounded_channel();
    let app = Router::new().route(
        "/callback",
        get(async move |RawQuery(query): RawQuery| {
            tell.send(query.unwrap_or_default()).unwrap();
            "you can close this page"
        }),
    );
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (redirect_uri, back)
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&BASE64URL.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn c135_the_client_of_rmcp_finds_the_issuer_signs_in_and_calls_tools() {
    let Some(mut browser) = Chromium::start("mcp-rmcp").await else { return };
    let (server, (redirect_uri, mut back)) = (Server::start().await, callback().await);
    let url = format!("{}/mcp", server.origin);

    let mut state = OAuthState::new(&url, None).await.unwrap();
    let request = AuthorizationRequest::new(&redirect_uri).with_preregistered_client("notes-globex");
    state.start_authorization(request.with_scopes(["notes:read", "notes:write"])).await.unwrap();
    sign_in(&mut browser, &state.get_authorization_url().await.unwrap(), "grace").await;
    let came = back.recv().await.unwrap();
    state.handle_callback_url(&format!("{redirect_uri}?{came}")).await.unwrap();

    let manager = state.into_authorization_manager().unwrap();
    let token = manager.get_access_token().await.unwrap();
    let (read, expected) = (claims(&token), ["u-grace", "globex", &url]);
    assert_eq!(["sub", "tenant", "aud"].map(|name| read[name].as_str().unwrap()), expected);
    let client = AuthClient::new(reqwest::Client::new(), manager);
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    let service = ().serve(StreamableHttpClientTransport::with_client(client, config)).await.unwrap();
    let mut names: Vec<_> = service.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
    names.sort();
    assert_eq!(names, ["add_note", "list_notes"]);
    let note = json!({ "text": "from Rust" }).as_object().unwrap().clone();
    service.call_tool(CallToolRequestParams::new("add_note").with_arguments(note)).await.unwrap();
    let listed = service.call_tool(CallToolRequestParams::new("list_notes")).await.unwrap();
    assert_eq!(serde_json::to_value(&listed).unwrap()["content"][0]["text"], "from Rust\n");
    service.cancel().await.unwrap();
}
