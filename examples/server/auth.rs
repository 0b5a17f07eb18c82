//! The login service, and who may log in through which client.

use std::{error::Error, net::SocketAddr};

use axum::extract::ConnectInfo;
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, EventLog, Head, Identifier, Limiter, NewUser, Password, Passwords,
    Policy, Sessions, StoredUsers, Tenant, UserId,
    store::AnyStore,
    user::{EmailAddress, PhoneNumber},
};

use crate::{demo, outbox::Outbox};

pub(crate) async fn service(
    origin: &str,
    store: &AnyStore,
    sessions: &Sessions,
    limiter: &Limiter,
    log: &EventLog,
    outbox: &Outbox,
) -> Result<AuthService, Box<dyn Error>> {
    let users = StoredUsers::new(store.clone());
    add_people(&users).await?;
    Ok(AuthService::new(origin, store.clone(), clients(origin)?, users)?
        .sms(outbox.clone())
        .email(outbox.clone())
        .whatsapp(outbox.clone())
        // what a login begins, `SessionLayer` finds
        .sessions(sessions.clone())
        // one budget with the API
        .limiter(limiter.clone())
        .client_ip(ClientIp::peer().peer_by(peer))
        .events(log.clone())
        // plain http: leave this out where there is TLS
        .insecure_loopback()?
        .check()?)
}

/// axum keeps the other end of a connection here.
fn peer(head: Head<'_>) -> Option<SocketAddr> {
    head.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0)
}

/// `demo-web` needs one step, `demo-mfa` two; `demo-native` is an app that listens on any port.
fn clients(origin: &str) -> Result<ClientTable, Box<dyn Error>> {
    let acme = Tenant::parse(demo::ACME)?;
    let client = |id: &str, redirect: &str| Client::new(id, acme.clone())?.redirect_uri(redirect)?.scopes(demo::SCOPES);
    let callback = format!("{origin}{}", demo::CALLBACK);
    let without_port = origin.rsplit_once(':').map_or(origin, |(host, _)| host);
    let native = format!("{without_port}{}", demo::NATIVE_CALLBACK);
    let after = format!("{origin}{}", demo::AFTER_LOGOUT);
    Ok(ClientTable::new([
        client("demo-web", &callback)?.name("Demo")?.after_logout(&after)?,
        client("demo-mfa", &callback)?.name("Demo, two steps")?.policy(Policy::any(2)?).after_logout(&after)?,
        client("demo-native", &native)?
            .name("Demo, native app")?
            .after_logout(&format!("{without_port}{}", demo::AFTER_LOGOUT))?,
    ])?)
}

async fn add_people(users: &StoredUsers) -> Result<(), Box<dyn Error>> {
    let (acme, passwords) = (Tenant::parse(demo::ACME)?, Passwords::new());
    for person in demo::PEOPLE {
        let id = UserId::parse(person.name)?;
        // they are there already, if `--data` kept them
        if users.get(&acme, &id).await?.is_some() {
            continue;
        }
        let user = NewUser::new(id, Identifier::parse(person.name)?)
            .identifier(Identifier::parse(person.email)?)
            .name(person.full_name)
            .password(passwords.hash(Password::new(person.password)).await?)
            .contact(EmailAddress::parse(person.email)?)
            .contact(PhoneNumber::parse(person.phone)?);
        users.create(&acme, user).await?;
    }
    Ok(())
}
