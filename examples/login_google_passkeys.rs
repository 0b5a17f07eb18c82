//! A page behind "Continue with Google", codes by e-mail and passkeys, in axum.
//!
//!     GOOGLE_CLIENT_ID=… GOOGLE_CLIENT_SECRET=… cargo run --example login_google_passkeys --features external-providers
//!
//! Register `http://localhost:3000/authentication/sso/google/callback` as a redirect URI at Google first. Sign in with Google,
//! and add a passkey at `/account/security`. That takes Google and a code by e-mail, which this program prints. Google
//! does not report when it last asked for a password, so Google alone is not enough.

#![expect(clippy::print_stdout, reason = "prints what to open, and codes")]

use std::{env, error::Error, net::SocketAddr};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{
    AuthService, ClientIp, Identifier, NewUser, OtpSender, Passkeys, Session, StoredUsers, Tenant, UserId, Users,
    clock::{Clock, SystemClock},
    delivery::{Message, SendError},
    sso::{ClientSecret, CreateAccount, OidcProvider, ProviderUser, SsoConnection},
    store::{AnyStore, Memory},
    user::EmailAddress,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    let origin = format!("http://localhost:{}", listener.local_addr()?.port());

    // `store::Disk` keeps users, passkeys and sessions across restarts
    let store = AnyStore::from(Memory::new());
    let users = StoredUsers::new(store.clone());
    let client_id = env::var("GOOGLE_CLIENT_ID").map_err(|_| "GOOGLE_CLIENT_ID is not set")?;
    // the ID tokens of Google name the e-mail address, which `NewAccounts` needs. Other providers put only `sub` there: add
    // `.userinfo()` for them
    let google = OidcProvider::new("https://accounts.google.com", &client_id)?
        .secret(ClientSecret::from_env("GOOGLE_CLIENT_SECRET")?);

    let auth = AuthService::builder(&origin, store)
        .users(users.clone())
        .first_party(Tenant::parse("demo")?)
        .client_ip(ClientIp::peer())
        .without_passwords()
        .sso("google", SsoConnection::new(google).label("Google").create_account(NewAccounts(users)))
        .email(Console)
        .passkeys(Passkeys::new("localhost")) // your domain, such as `site.example`
        .insecure_loopback() // plain HTTP; leave it out behind TLS
        .build()?;
    let app = Router::new()
        .route("/account", get(async |session: Session| format!("hello {}", session.user())))
        .layer(auth.session_layer().required())
        .fallback_service(auth);

    println!("open {origin}/account and sign in with Google, then add a passkey at {origin}/account/security");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// Creates accounts for users of Google whose address no account has yet.
struct NewAccounts(StoredUsers);

impl CreateAccount for NewAccounts {
    type Error = Box<dyn Error + Send + Sync>;

    async fn account(&self, tenant: &Tenant, user: &ProviderUser) -> Result<Option<UserId>, Self::Error> {
        // the subject never changes, and addresses can
        let id = UserId::parse(format!("google-{}", user.subject()))?;
        if self.0.by_id(tenant, &id).await?.is_some() {
            return Ok(Some(id));
        }
        let Some(email) = user.email().filter(|_| user.email_verified()) else { return Ok(None) };
        let identifier = Identifier::parse(email)?;
        // an address is no proof: the owner of that account signs in to it by another method
        if self.0.find(tenant, &identifier).await?.is_some() {
            return Ok(None);
        }
        self.0.create(tenant, NewUser::new(id.clone(), identifier).contact(EmailAddress::parse(email)?)).await?;
        Ok(Some(id))
    }
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
