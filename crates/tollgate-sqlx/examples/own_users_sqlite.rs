//! Accounts of your own: one table in SQLite, whose users can sign up, set a forgotten password, and change or delete their
//! account.
//!
//! Run it with `cargo run -p tollgate-sqlx --example own_users_sqlite` and open http://localhost:8080/. Messages appear in the
//! terminal. A file name as the argument keeps the accounts. A second argument is another port than 8080.

#![allow(clippy::print_stdout, reason = "prints messages")]

use std::error::Error;

use axum::{Router, response::Html, routing::get};
use sqlx::{Row, SqlitePool, sqlite::SqliteRow};
use tokio::net::TcpListener;
use tollgate::{
    AuthService, ClientIp, Identifier, NewUser, Session, Tenant, UserId, Users,
    auth::SignUp,
    delivery::{Message, OtpSender, SendError},
    password::PasswordHash,
    store::{AnyStore, Memory},
    user::{Account, AccountChange, Contact, EmailAddress, NewAccount, OfferedChange, PasswordUpgrade},
};

/// The table. An address is a name and a mailbox, so it is unique. Ids are never given away again (`autoincrement`), because
/// clients know users by them. The site has one tenant.
const TABLE: &str = "create table if not exists people (
    id integer primary key autoincrement,
    address text not null unique,
    name text,
    password text,
    locked integer not null default 0)";

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone)]
struct People(SqlitePool);

fn account(row: SqliteRow) -> Result<Account, Failure> {
    let id: i64 = row.try_get("id")?;
    let address = EmailAddress::parse(row.try_get::<String, _>("address")?)?;
    let mut account = Account::new(user_id(id)?).contact(address).disabled(row.try_get("locked")?);
    if let Some(hash) = row.try_get::<Option<String>, _>("password")? {
        account = account.password(PasswordHash::parse(hash)?);
    }
    let name: Option<String> = row.try_get("name")?;
    Ok(name.into_iter().fold(account, Account::name))
}

fn user_id(id: i64) -> Result<UserId, Failure> {
    Ok(UserId::parse(format!("p-{id}"))?)
}

/// Returns the number of an id, or one that no row has.
fn number(id: &UserId) -> i64 {
    id.as_str().strip_prefix("p-").and_then(|number| number.parse().ok()).unwrap_or(-1)
}

/// Returns the outcome of a statement that changes one row, or none.
fn changed(done: Result<sqlx::sqlite::SqliteQueryResult, sqlx::Error>) -> Result<AccountChange, Failure> {
    match done {
        Ok(done) if done.rows_affected() == 0 => Ok(AccountChange::Outdated),
        Ok(_) => Ok(AccountChange::Done),
        Err(error) if is_taken(&error) => Ok(AccountChange::Taken),
        Err(error) => Err(error.into()),
    }
}

fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

impl Users for People {
    type Error = Failure;

    async fn find(&self, _: &Tenant, identifier: &Identifier) -> Result<Option<Account>, Failure> {
        let query = sqlx::query("select * from people where address = $1").bind(identifier.as_str());
        query.fetch_optional(&self.0).await?.map(account).transpose()
    }

    async fn by_id(&self, _: &Tenant, id: &UserId) -> Result<Option<Account>, Failure> {
        let query = sqlx::query("select * from people where id = $1").bind(number(id));
        query.fetch_optional(&self.0).await?.map(account).transpose()
    }

    async fn upgrade_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<PasswordUpgrade, Failure> {
        Ok(match Users::set_password(self, tenant, account, new).await? {
            AccountChange::Done => PasswordUpgrade::Replaced,
            _ => PasswordUpgrade::PasswordChanged,
        })
    }

    fn offers(&self, change: OfferedChange) -> bool {
        use OfferedChange::{Create, Remove, SetContact, SetName, SetPassword};
        matches!(change, Create | SetPassword | SetName | SetContact | Remove)
    }

    async fn create(&self, _: &Tenant, new: NewUser) -> Result<NewAccount, Failure> {
        let address = new.identifiers().first().map(Identifier::as_str);
        let insert = sqlx::query("insert into people (address, name, password) values ($1, $2, $3)")
            .bind(address)
            .bind(new.account().display_name())
            .bind(new.account().password_hash().map(PasswordHash::as_str));
        match insert.execute(&self.0).await {
            Ok(done) => Ok(NewAccount::Created(user_id(done.last_insert_rowid())?)),
            Err(error) if is_taken(&error) => Ok(NewAccount::Taken),
            Err(error) => Err(error.into()),
        }
    }

    /// Without a mark of its own, an account has one that comes from the hash: so the hash must be as it was read. So must the
    /// address, which may have proved who the user is.
    async fn set_password(&self, _: &Tenant, account: &Account, new: PasswordHash) -> Result<AccountChange, Failure> {
        let address = account.contacts().next().map(|(contact, _)| contact.as_str());
        let update = sqlx::query("update people set password = $1 where id = $2 and password is $3 and address is $4")
            .bind(new.as_str())
            .bind(number(account.id()))
            .bind(account.password_hash().map(PasswordHash::as_str))
            .bind(address);
        changed(update.execute(&self.0).await)
    }

    async fn set_name(&self, _: &Tenant, id: &UserId, name: Option<&str>) -> Result<AccountChange, Failure> {
        let update = sqlx::query("update people set name = $1 where id = $2").bind(name).bind(number(id));
        changed(update.execute(&self.0).await)
    }

    /// A person has one address, so it can only be replaced.
    async fn set_contact(
        &self,
        _: &Tenant,
        id: &UserId,
        old: Option<&Contact>,
        new: Option<&Contact>,
    ) -> Result<AccountChange, Failure> {
        let (Some(Contact::Email(old)), Some(Contact::Email(new))) = (old, new) else {
            return Ok(AccountChange::NotOffered);
        };
        let update = sqlx::query("update people set address = $1 where id = $2 and address = $3")
            .bind(new.as_str())
            .bind(number(id))
            .bind(old.as_str());
        changed(update.execute(&self.0).await)
    }

    async fn remove(&self, _: &Tenant, id: &UserId) -> Result<AccountChange, Failure> {
        changed(sqlx::query("delete from people where id = $1").bind(number(id)).execute(&self.0).await)
    }
}

/// Prints messages. In production, send them with `delivery::Smtp`.
struct Terminal;

impl OtpSender for Terminal {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let now = tollgate::clock::Clock::read(&tollgate::clock::SystemClock::new()).1;
        println!("to {}: {}", message.to(), message.text(now));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_else(|| ":memory:".to_owned());
    let port = arguments.next().map_or(Ok(8080), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("localhost", port)).await?;
    let origin = format!("http://localhost:{}", listener.local_addr()?.port());
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file).create_if_missing(true);
    // a database in memory lives in one connection
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
    sqlx::query(TABLE).execute(&pool).await?;

    let auth = AuthService::builder(&origin, AnyStore::from(Memory::new()))
        .users(People(pool))
        .first_party(Tenant::parse("acme")?)
        .sign_up(SignUp::Open)
        .email(Terminal)
        .client_ip(ClientIp::peer())
        .insecure_loopback()
        .build()?;
    let home = async |session: Option<Session>| {
        Html(match session {
            Some(session) => format!("You are {}. <a href=/account/security>Your account</a>", session.user()),
            None => {
                "<a href='/sign-up?return_to=/'>Create an account</a> or <a href='/sign-in?return_to=/'>sign in</a>"
                    .to_owned()
            }
        })
    };
    let app = Router::new().route("/", get(home)).layer(auth.session_layer()).fallback_service(auth);
    println!("{origin}/");
    axum::serve(listener, app.into_make_service_with_connect_info::<std::net::SocketAddr>()).await?;
    Ok(())
}
