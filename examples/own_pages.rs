//! Your own login page in place of the built-in one. Its script drives the JSON endpoints.
//!
//!     cargo run --example own_pages
//!
//! It prints the URL to open, and the name and password of its one user.

#![expect(clippy::print_stdout, reason = "prints what to open")]

use std::{error::Error, net::SocketAddr};

use axum::{
    Router,
    http::header::CONTENT_TYPE,
    response::{Html, IntoResponse},
    routing::get,
};
use tokio::net::TcpListener;
use tollgate::{
    AuthService, ClientIp, Identifier, NewUser, Password, Passwords, Session, StoredUsers, Tenant, UserId,
    auth::Pages,
    store::{AnyStore, Memory},
};

/// The policy of the page allows scripts from this site, and nothing inline.
const LOGIN: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Welcome back</title>
<script src="/my-login.js" type="module"></script>
<h1>Welcome back</h1>
<form id="form">
  <p><label>Name <input id="name" autocomplete="username" required></label></p>
  <p><label>Password <input id="password" type="password" autocomplete="current-password" required></label></p>
  <button>Sign in</button>
</form>
<p id="message" role="alert"></p>
</html>"#;

const SCRIPT: &str = r#"
const query = new URLSearchParams(location.search);
// every call repeats these parameters of the URL
const names = ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"];
const bound = Object.fromEntries(names.map((name) => [name, query.get(name)]));
const find = (id) => document.getElementById(id);

async function call(path, own) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...bound, ...own }),
  });
  const answer = await response.json();
  if (!response.ok) throw answer;
  return answer;
}

find("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  find("message").textContent = "";
  const [username, password] = [find("name").value, find("password").value];
  try {
    const { session_id } = await call("start", { identifier: username, return_to: query.get("return_to") });
    await call("authenticate", { session_id, method: "password", username, password });
    await call("complete", { session_id });
    // the same URL as JSON describes the request, and says where to go on
    const described = await fetch(location.href, { headers: { accept: "application/json" } });
    const { continue_to } = await described.json();
    location.replace(continue_to ?? `../authorize${location.search}`);
  } catch ({ error, retry_after }) {
    const wait = retry_after ? ` Wait ${retry_after} seconds.` : "";
    const isWrong = error === "invalid_credentials";
    find("message").textContent = (isWrong ? "Wrong name or password." : "Please try again.") + wait;
  }
});
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(address).await?;
    let origin = format!("http://{}", listener.local_addr()?);

    let (tenant, store) = (Tenant::parse("demo")?, AnyStore::from(Memory::new()));
    let users = StoredUsers::new(store.clone());
    let hash = Passwords::new().hash(Password::new("correct horse battery staple")).await?;
    users.create(&tenant, NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada")?).password(hash)).await?;

    let auth = AuthService::builder(&origin, store)
        .users(users)
        .first_party(tenant)
        .pages(Pages::new().login_html(LOGIN).error_html("<!doctype html><title>Sorry</title><p>{advice}</p>"))
        .client_ip(ClientIp::peer())
        .insecure_loopback() // plain HTTP; leave it out behind TLS
        .build()?;
    let app = Router::new()
        .route("/", get(home))
        .layer(auth.session_layer().required())
        .route("/my-login.js", get(async || ([(CONTENT_TYPE, "text/javascript")], SCRIPT).into_response()))
        .fallback_service(auth);

    println!("open {origin}/ and sign in as ada with the password: correct horse battery staple");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn home(session: Session) -> Html<String> {
    Html(format!("<h1>Hello {}</h1>", session.user()))
}
