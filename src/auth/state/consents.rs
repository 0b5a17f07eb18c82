//! [`Consents`]: what users have allowed third-party clients.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    client::{Client, Scopes},
    login::Wanted,
    session::UserId,
    store::{
        AnyStore, StoreError,
        table::{Change, Table},
    },
    tenant::Tenant,
    tokens::Grant,
    util::clock::{Clock, UnixTime},
};

/// The maximum number of clients that a user can allow. One more takes the place of the oldest decision.
const MOST_CLIENTS: usize = 32;

/// The maximum number of names of each kind that are collected from several decisions about a client.
const MOST_NAMES: usize = 64;

/// Decisions don't expire: this is the latest time that a store supports.
const FOREVER: UnixTime = UnixTime::from_nanos(u64::MAX);

/// The access of a client to the account of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) scopes: BTreeSet<String>,
    /// The claims that are requested by name.
    pub(crate) claims: BTreeSet<String>,
    /// The APIs that the tokens are for (RFC 8707).
    pub(crate) resources: BTreeSet<String>,
}

impl Access {
    /// Returns the access that a request asks for.
    pub(crate) fn of_request(scope: &Scopes, wanted: &Wanted) -> Self {
        Self::of_names(scope, [&wanted.id_token, &wanted.userinfo], &wanted.resources)
    }

    /// Returns the access that tokens give.
    pub(crate) fn of_grant(grant: &Grant) -> Self {
        Self::of_names(grant.scope(), [&grant.id_token, &grant.userinfo], &grant.resources)
    }

    fn of_names(scope: &Scopes, claims: [&Vec<String>; 2], resources: &[String]) -> Self {
        Self {
            scopes: scope.iter().map(str::to_owned).collect(),
            claims: claims.into_iter().flatten().cloned().collect(),
            resources: resources.iter().cloned().collect(),
        }
    }

    /// Returns whether this includes everything of `other`.
    fn includes(&self, other: &Self) -> bool {
        self.pairs(other).iter().all(|(own, other)| other.is_subset(own))
    }

    /// Adds `other`. If there are too many names, the earlier ones are dropped.
    fn add(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.scopes, &other.scopes),
            (&mut self.claims, &other.claims),
            (&mut self.resources, &other.resources),
        ] {
            if own.union(other).count() > MOST_NAMES {
                own.clear();
            }
            own.extend(other.iter().cloned());
        }
    }

    fn pairs<'a>(&'a self, other: &'a Self) -> [(&'a BTreeSet<String>, &'a BTreeSet<String>); 3] {
        [(&self.scopes, &other.scopes), (&self.claims, &other.claims), (&self.resources, &other.resources)]
    }
}

/// The decision of a user about one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Consent {
    pub(crate) client_id: String,
    /// The name of the client at the time of the last decision.
    pub(crate) client_name: String,
    /// When the user decided last, in Unix seconds.
    pub(crate) given_at: u64,
    #[serde(flatten)]
    pub(crate) access: Access,
}

/// The decisions of a user, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ConsentList(Vec<Consent>);

impl ConsentList {
    fn find(&self, client: &str) -> Option<&Consent> {
        self.0.iter().find(|consent| consent.client_id == client)
    }

    /// Adds a decision. Also returns the client whose decision had to make room, if any.
    fn with(mut self, client: &Client, access: &Access, now: UnixTime) -> (Self, Option<String>) {
        let earlier = self.find(client.id()).map(|consent| consent.access.clone());
        self.0.retain(|consent| consent.client_id != client.id());
        let evicted = (self.0.len() >= MOST_CLIENTS).then(|| self.0.remove(0).client_id);
        let mut all = earlier.unwrap_or_default();
        all.add(access);
        let (client_id, client_name) = (client.id().to_owned(), client.display_name().to_owned());
        self.0.push(Consent { client_id, client_name, given_at: now.as_secs(), access: all });
        (self, evicted)
    }

    /// Removes the decision about a client. Returns `None` if the user has made no such decision.
    fn without(mut self, client: &str) -> Option<Self> {
        let place = self.0.iter().position(|consent| consent.client_id == client)?;
        self.0.remove(place);
        Some(self)
    }
}

/// The decisions of all users: a row for each user.
#[derive(Clone, Debug)]
pub(crate) struct Consents(Table<ConsentList>);

impl Consents {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "consents", clock))
    }

    /// Returns whether the user has allowed a client all of this. Clients of the operator need no decision.
    pub(crate) async fn allow(
        &self,
        (tenant, user): (&Tenant, &UserId),
        client: &Client,
        access: &Access,
    ) -> Result<bool, StoreError> {
        if !client.is_third_party() {
            return Ok(true);
        }
        let row = self.0.get(Some(tenant), user.as_str().as_bytes()).wait().await?;
        let consent = row.as_ref().and_then(|row| row.value.find(client.id()));
        Ok(consent.is_some_and(|consent| consent.access.includes(access)))
    }

    /// Stores that the user allows a client this, in addition to what they have allowed before. Returns the client whose
    /// decision had to make room, if any.
    pub(crate) async fn give(
        &self,
        (tenant, user): (&Tenant, &UserId),
        client: &Client,
        access: &Access,
    ) -> Result<Option<String>, StoreError> {
        let add = |row: Option<&ConsentList>, now: UnixTime| {
            let (list, evicted) = row.cloned().unwrap_or_default().with(client, access, now);
            Change::Put(list, FOREVER, evicted)
        };
        self.0.update(Some(tenant), user.as_str().as_bytes(), add).await
    }

    /// Returns the decisions of a user, newest first.
    pub(crate) async fn list(&self, tenant: &Tenant, user: &UserId) -> Result<Vec<Consent>, StoreError> {
        let row = self.0.get(Some(tenant), user.as_str().as_bytes()).wait().await?;
        Ok(row.map(|row| row.value.0.into_iter().rev().collect()).unwrap_or_default())
    }

    /// Removes the decision about a client. Returns whether there was one.
    pub(crate) async fn withdraw(&self, tenant: &Tenant, user: &UserId, client: &str) -> Result<bool, StoreError> {
        let remove = |row: Option<&ConsentList>, _| match row.and_then(|row| row.clone().without(client)) {
            Some(list) => Change::Put(list, FOREVER, true),
            None => Change::Keep(false),
        };
        self.0.update(Some(tenant), user.as_str().as_bytes(), remove).await
    }

    /// Removes all decisions of a user.
    pub(crate) async fn forget(&self, tenant: &Tenant, user: &UserId) -> Result<(), StoreError> {
        self.0.remove(Some(tenant), user.as_str().as_bytes()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: &str) -> Client {
        Client::new(id, Tenant::parse("acme").unwrap()).unwrap()
    }

    fn access(scope: &str, claims: &[&str]) -> Access {
        let claims: Vec<_> = claims.iter().map(|name| (*name).to_owned()).collect();
        Access::of_names(&Scopes::parse(scope).unwrap(), [&claims, &Vec::new()], &[])
    }

    #[test]
    fn c134_decisions_add_up_for_a_client_and_concern_no_other() {
        let now = UnixTime::from_secs(9);
        let (list, _) = ConsentList::default().with(&client("a"), &access("openid", &["x"]), now);
        let (list, evicted) = list.with(&client("a"), &access("email openid", &["y"]), now);
        assert_eq!((list.0.len(), evicted), (1, None));
        let given = &list.find("a").unwrap().access;
        assert!(given.includes(&access("email", &["x", "y"])) && given.includes(&access("openid", &[])));
        for more in [
            access("phone", &[]),
            access("openid", &["z"]),
            Access { resources: ["r".to_owned()].into(), ..access("openid", &[]) },
        ] {
            assert!(!given.includes(&more), "{more:?}");
        }
        assert!(list.find("b").is_none() && list.clone().without("b").is_none());
        assert_eq!(list.without("a"), Some(ConsentList::default()));
    }

    #[test]
    fn c134_a_user_has_a_bounded_number_of_decisions_with_a_bounded_number_of_names() {
        let now = UnixTime::from_secs(9);
        let mut list = ConsentList::default();
        for n in 0..MOST_CLIENTS {
            list = list.with(&client(&format!("c{n}")), &access("openid", &[]), now).0;
        }
        // a newer decision about a known client takes no place of another
        let (list, evicted) = list.with(&client("c0"), &access("email", &[]), now);
        assert_eq!((list.0.len(), evicted), (MOST_CLIENTS, None));
        let (list, evicted) = list.with(&client("new"), &access("openid", &[]), now);
        assert_eq!((list.0.len(), evicted.as_deref()), (MOST_CLIENTS, Some("c1")));
        let mut all = Access::default();
        for n in 0..200 {
            let newest = access("openid", &[&format!("claim{n}")]);
            all.add(&newest);
            assert!(all.includes(&newest) && all.claims.len() <= MOST_NAMES);
        }
    }
}
