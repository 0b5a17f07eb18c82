//! The login service, and who may log in through which client.

use std::{error::Error, net::SocketAddr};

use axum::extract::ConnectInfo;
use tollgate::{AuthService, EventLog, Head, Limiter, StoredUsers, store::AnyStore};

use crate::{facts::Facts, outbox::Outbox, tokens};

/// The parts that the login service shares with the rest of the server.
pub(crate) struct Shared<'s> {
    pub(crate) issuer: &'s str,
    pub(crate) store: &'s AnyStore,
    pub(crate) limiter: &'s Limiter,
    pub(crate) log: &'s EventLog,
}

pub(crate) async fn service(shared: &Shared<'_>, facts: Facts, outbox: &Outbox) -> Result<AuthService, Box<dyn Error>> {
    let Shared { issuer, store, limiter, log } = *shared;
    let users = StoredUsers::new(store.clone());
    for person in facts.people {
        let id = person.id.clone();
        person.add_to(&users).await.map_err(|error| format!("users: {id:?}: {error}"))?;
    }
    let auth = AuthService::builder(issuer, store.clone())
        .clients(facts.clients)
        .users(users)
        .policies(facts.policies)
        // one budget with the API
        .limiter(limiter.clone())
        .client_ip(facts.client_ip.peer_by(peer))
        .events(log.clone());
    let mut auth = facts.tokens.set_on(auth);
    if let Some(quota) = facts.per_address {
        auth = auth.per_address(quota);
    }
    if facts.prints_codes {
        // yours are `delivery::Smtp`, `delivery::Webhook` or a sender of your own
        auth = auth.sms(outbox.clone()).email(outbox.clone()).whatsapp(outbox.clone());
    }
    if is_plain(issuer) {
        auth = auth.insecure_loopback();
    }
    let auth = auth.build()?;
    tokens::prepare(&auth).await?;
    Ok(auth)
}

/// Without TLS there are no `Secure` cookies.
pub(crate) fn is_plain(issuer: &str) -> bool {
    issuer.starts_with("http://")
}

/// The scheme and host of the issuer, which may have a path.
pub(crate) fn site(issuer: &str) -> &str {
    issuer.match_indices('/').nth(2).map_or(issuer, |(end, _)| issuer.split_at(end).0)
}

/// axum keeps the other end of a connection here.
pub(crate) fn peer(head: Head<'_>) -> Option<SocketAddr> {
    head.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0)
}
