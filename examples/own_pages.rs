//! Your own login page in place of the built-in one. Its script, `own_pages.js`, drives the JSON endpoints.
//!
//!     cargo run --example own_pages
//!
//! It prints the URL to open, the name and password of its one user, and codes. `/account/security` asks for two steps
//! before a change: the login page handles this, too.

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
    AuthService, ClientIp, Identifier, NewUser, OtpSender, Password, Passwords, Session, StoredUsers, Tenant, UserId,
    auth::{Pages, Totp},
    clock::{Clock, SystemClock},
    delivery::{Message, SendError},
    store::{AnyStore, Memory},
    user::EmailAddress,
};

/// The policy of the page allows scripts from this site, and nothing inline.
const LOGIN: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Welcome back</title>
<script src="/my-login.js" type="module"></script>
<img src="/logo.svg" alt="" width="48" height="48">
<h1>Welcome back</h1>
<form id="form">
  <p><label>Name <input id="name" autocomplete="username" required></label></p>
  <p><label>Password <input id="password" type="password" autocomplete="current-password" required></label></p>
  <button>Sign in</button>
</form>
<form id="code-form" hidden>
  <p><label><span id="from"></span> <input id="code" autocomplete="one-time-code" required></label></p>
  <button>Continue</button>
</form>
<p id="message" role="alert"></p>
</html>"#;

/// Pages of your own can show images of this site.
const LOGO: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><circle cx=".5" cy=".5" r=".5" fill="#1f5fbf"/></svg>"##;

const SCRIPT: &str = include_str!("own_pages.js");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(address).await?;
    let origin = format!("http://{}", listener.local_addr()?);

    let (tenant, store) = (Tenant::parse("demo")?, AnyStore::from(Memory::new()));
    let users = StoredUsers::new(store.clone());
    let hash = Passwords::new().hash(Password::new("correct horse battery staple")).await?;
    let ada = NewUser::new(UserId::parse("u-1")?, Identifier::parse("ada")?).password(hash);
    users.create(&tenant, ada.contact(EmailAddress::parse("ada@example.com")?)).await?;

    let auth = AuthService::builder(&origin, store)
        .users(users)
        .first_party(tenant)
        .email(Console)
        .totp(Totp::new()) // can be set up at /account/security, after two steps
        .pages(Pages::new().login_html(LOGIN).error_html("<!doctype html><title>Sorry</title><p>{advice}</p>{link}"))
        .client_ip(ClientIp::peer())
        .insecure_loopback() // plain HTTP; leave it out behind TLS
        .build()?;
    let app = Router::new()
        .route("/", get(home))
        .layer(auth.session_layer().required())
        .route("/my-login.js", get(async || ([(CONTENT_TYPE, "text/javascript")], SCRIPT).into_response()))
        .route("/logo.svg", get(async || ([(CONTENT_TYPE, "image/svg+xml")], LOGO).into_response()))
        .fallback_service(auth);

    println!("open {origin}/ and sign in as ada with the password: correct horse battery staple");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// Prints messages. Use `delivery::Smtp` or `delivery::Webhook` to send them.
struct Console;

impl OtpSender for Console {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let (_, now) = SystemClock::new().read();
        println!("{}: {}", message.to(), message.text(now));
        Ok(())
    }
}

async fn home(session: Session) -> Html<String> {
    Html(format!("<h1>Hello {}</h1>", session.user()))
}
