//! [`Consents`]: the consents of users to third-party clients.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    client::{Client, Scopes},
    login::Wanted,
    session::UserId,
    store::{
        AnyStore, StoreError,
        table::{Change, Table, Value},
    },
    tenant::Tenant,
    tokens::Grant,
    util::clock::{Clock, UnixTime},
};

/// The maximum number of clients that a user can allow. A further one replaces the oldest.
const MOST_CLIENTS: usize = 32;

/// The maximum number of decisions about a client that count. A further one replaces the oldest.
const MOST_DECISIONS: usize = 8;

/// The maximum length of the row of a user. Stores take 64 KiB.
const LONGEST: usize = 48 * 1024;

/// The access of a client to the account of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) scopes: BTreeSet<String>,
    /// The claims that are requested by name.
    pub(crate) claims: BTreeSet<String>,
    /// The APIs that the tokens are for (RFC 8707): the requested resources, or the audience of tokens without a resource.
    pub(crate) resources: BTreeSet<String>,
}

impl Access {
    /// Returns the access that a request asks for. `audience` is that of tokens without a resource.
    pub(crate) fn of_request(scope: &Scopes, wanted: &Wanted, audience: Option<&str>) -> Self {
        Self::of_names(scope, [&wanted.id_token, &wanted.userinfo], &wanted.resources, audience)
    }

    /// Returns the access that tokens give. `audience` is that of tokens without a resource.
    pub(crate) fn of_grant(grant: &Grant, audience: &str) -> Self {
        Self::of_names(grant.scope(), [&grant.id_token, &grant.userinfo], &grant.resources, Some(audience))
    }

    fn of_names(scope: &Scopes, claims: [&Vec<String>; 2], resources: &[String], audience: Option<&str>) -> Self {
        let audience = audience.filter(|_| resources.is_empty()).map(str::to_owned);
        Self {
            scopes: scope.iter().map(str::to_owned).collect(),
            claims: claims.into_iter().flatten().cloned().collect(),
            resources: resources.iter().cloned().chain(audience).collect(),
        }
    }

    /// Returns whether this includes everything of `other`.
    fn includes(&self, other: &Self) -> bool {
        other.scopes.is_subset(&self.scopes)
            && other.claims.is_subset(&self.claims)
            && other.resources.is_subset(&self.resources)
    }
}

/// The consent of a user to one third-party client, from [`AuthService::consents`](crate::AuthService::consents).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Consent {
    pub(crate) client_id: String,
    /// The name of the client at the time of the last decision.
    pub(crate) client_name: String,
    /// The time of the last decision, in Unix seconds.
    pub(crate) given_at: u64,
    /// The access that all decisions allow together.
    #[serde(flatten)]
    pub(crate) access: Access,
}

impl Consent {
    /// Returns the id of the client.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Returns the name of the client at the time of the last decision.
    pub fn client_name(&self) -> &str {
        &self.client_name
    }

    /// Returns the time of the last decision, in Unix seconds.
    pub fn given_at(&self) -> u64 {
        self.given_at
    }

    /// Returns the scopes of all decisions.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.access.scopes.iter().map(String::as_str)
    }

    /// Returns the claims that the client may request by name.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.access.claims.iter().map(String::as_str)
    }

    /// Returns the APIs for which the client may request tokens.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.access.resources.iter().map(String::as_str)
    }
}

/// The decisions of a user about one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Decisions {
    client_id: String,
    client_name: String,
    given_at: u64,
    /// The access that each decision allows, the newest last. Decisions don't add up: scopes that were allowed for one API are
    /// not allowed for another.
    allowed: Vec<Access>,
}

impl Decisions {
    fn allow(&self, access: &Access) -> bool {
        self.allowed.iter().any(|one| one.includes(access))
    }

    /// Adds a decision, unless an earlier one includes it. It replaces those that it includes.
    fn add(&mut self, access: &Access) {
        let wider = self.allowed.iter().position(|one| one.includes(access)).map(|place| self.allowed.remove(place));
        self.allowed.retain(|one| !access.includes(one));
        self.allowed.push(wider.unwrap_or_else(|| access.clone()));
        if self.allowed.len() > MOST_DECISIONS {
            self.allowed.remove(0);
        }
    }

    fn into_shown(self) -> Consent {
        let Self { client_id, client_name, given_at, allowed } = self;
        let mut access = Access::default();
        for one in allowed {
            access.scopes.extend(one.scopes);
            access.claims.extend(one.claims);
            access.resources.extend(one.resources);
        }
        Consent { client_id, client_name, given_at, access }
    }
}

/// The decisions of a user about all clients, the client of the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ConsentList(Vec<Decisions>);

impl ConsentList {
    fn find(&self, client: &str) -> Option<&Decisions> {
        self.0.iter().find(|decisions| decisions.client_id == client)
    }

    /// Adds a decision. Also returns the clients whose decisions had to make room.
    fn with(mut self, client: &Client, access: &Access, now: UnixTime) -> Result<(Self, Vec<String>), StoreError> {
        let place = self.0.iter().position(|decisions| decisions.client_id == client.id());
        let allowed = place.map(|place| self.0.remove(place).allowed).unwrap_or_default();
        let (client_id, client_name) = (client.id().to_owned(), client.display_name().to_owned());
        let mut own = Decisions { client_id, client_name, given_at: now.as_secs(), allowed };
        own.add(access);
        self.0.push(own);
        let mut evicted = Vec::new();
        while self.0.len() > 1 && (self.0.len() > MOST_CLIENTS || self.encode_row()?.len() > LONGEST) {
            evicted.push(self.0.remove(0).client_id);
        }
        while self.encode_row()?.len() > LONGEST
            && let Some(own) = self.0.last_mut()
            && own.allowed.len() > 1
        {
            own.allowed.remove(0);
        }
        Ok((self, evicted))
    }

    /// Removes the decisions about a client. Returns `None` if there was no decision.
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

    /// Returns whether the user has allowed a third-party client all of this.
    pub(crate) async fn allow(
        &self,
        (tenant, user): (&Tenant, &UserId),
        client: &Client,
        access: &Access,
    ) -> Result<bool, StoreError> {
        let row = self.0.get(Some(tenant), user.as_str().as_bytes()).wait().await?;
        let decisions = row.as_ref().and_then(|row| row.value.find(client.id()));
        Ok(decisions.is_some_and(|decisions| decisions.allow(access)))
    }

    /// Stores a decision that allows a client this access, in addition to earlier ones. Returns the clients whose decisions had
    /// to make room.
    pub(crate) async fn give(
        &self,
        (tenant, user): (&Tenant, &UserId),
        client: &Client,
        access: &Access,
    ) -> Result<Vec<String>, StoreError> {
        let add =
            |row: Option<&ConsentList>, now: UnixTime| match row.cloned().unwrap_or_default().with(client, access, now)
            {
                Ok((list, evicted)) => Change::Put(list, UnixTime::FOREVER, Ok(evicted)),
                Err(error) => Change::Keep(Err(error)),
            };
        self.0.update(Some(tenant), user.as_str().as_bytes(), add).await?
    }

    /// Returns the consents of a user, newest first.
    pub(crate) async fn list(&self, tenant: &Tenant, user: &UserId) -> Result<Vec<Consent>, StoreError> {
        let row = self.0.get(Some(tenant), user.as_str().as_bytes()).wait().await?;
        Ok(row.map(|row| row.value.0.into_iter().rev().map(Decisions::into_shown).collect()).unwrap_or_default())
    }

    /// Removes the decisions about a client. Returns whether there was one.
    pub(crate) async fn withdraw(&self, tenant: &Tenant, user: &UserId, client: &str) -> Result<bool, StoreError> {
        let remove = |row: Option<&ConsentList>, _| match row.and_then(|row| row.clone().without(client)) {
            Some(list) => Change::Put(list, UnixTime::FOREVER, true),
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
        Access::of_names(&Scopes::parse(scope).unwrap(), [&claims, &Vec::new()], &[], None)
    }

    fn with(list: ConsentList, id: &str, access: &Access) -> (ConsentList, Vec<String>) {
        list.with(&client(id), access, UnixTime::from_secs(9)).unwrap()
    }

    fn for_api(scope: &str, api: &str) -> Access {
        Access { resources: [api.to_owned()].into(), ..access(scope, &[]) }
    }

    #[test]
    fn c134_each_decision_counts_for_its_client_and_they_do_not_add_up() {
        let list = with(ConsentList::default(), "a", &access("openid", &["x"])).0;
        let (list, evicted) = with(list, "a", &access("email openid", &["y"]));
        assert_eq!((list.0.len(), evicted), (1, Vec::new()));
        let list = with(list, "a", &for_api("read", "r")).0;
        let list = with(list, "a", &for_api("write", "s")).0;
        let given = list.find("a").unwrap();
        for some in [access("openid", &["x"]), access("email", &["y"]), for_api("read", "r"), for_api("write", "s")] {
            assert!(given.allow(&some), "{some:?}");
        }
        for more in [
            access("phone", &[]),
            access("openid", &["x", "y"]),
            access("email", &["x"]),
            for_api("write", "r"),
            for_api("read", "s"),
            for_api("openid", "r"),
        ] {
            assert!(!given.allow(&more), "{more:?}");
        }
        // people see them together
        let shown = given.clone().into_shown().access;
        assert!(shown.includes(&access("openid email read write", &["x", "y"])));
        assert!(list.find("b").is_none() && list.clone().without("b").is_none());
        assert_eq!(list.without("a"), Some(ConsentList::default()));
    }

    #[test]
    fn c134_a_decision_replaces_those_that_it_includes() {
        let allowed = |list: &ConsentList| list.find("a").unwrap().allowed.clone();
        let (openid, both) = (access("openid", &[]), access("openid email", &[]));
        let mut list = ConsentList::default();
        for (next, expected) in [
            (&openid, vec![openid.clone()]),
            (&both, vec![both.clone()]),
            (&for_api("read", "r"), vec![both.clone(), for_api("read", "r")]),
            // what is included already is the newest now
            (&openid, vec![for_api("read", "r"), both.clone()]),
        ] {
            list = with(list, "a", next).0;
            assert_eq!(allowed(&list), expected);
        }
        for n in 0..20 {
            list = with(list, "a", &for_api("read", &format!("r{n}"))).0;
        }
        assert_eq!(allowed(&list), (12..20).map(|n| for_api("read", &format!("r{n}"))).collect::<Vec<_>>());
    }

    #[test]
    fn c134_a_user_has_a_bounded_number_of_decisions() {
        let mut list = ConsentList::default();
        for n in 0..MOST_CLIENTS {
            list = with(list, &format!("c{n}"), &access("openid", &[])).0;
        }
        // a newer decision about a known client takes no place of another
        let (list, evicted) = with(list, "c0", &access("email", &[]));
        assert_eq!((list.0.len(), evicted), (MOST_CLIENTS, Vec::new()));
        let (list, evicted) = with(list, "new", &access("openid", &[]));
        assert_eq!((list.0.len(), evicted), (MOST_CLIENTS, vec!["c1".to_owned()]));
    }

    #[test]
    fn c134_the_row_of_a_user_has_a_bounded_length() {
        let long = |n: usize| for_api("openid", &format!("{n}{}", "r".repeat(12 * 1024)));
        let mut list = ConsentList::default();
        let mut evicted = Vec::new();
        for n in 0..6 {
            let (next, more) = with(list, &format!("c{n}"), &long(n));
            assert!(
                next.encode_row().unwrap().len() <= LONGEST && next.find(&format!("c{n}")).unwrap().allow(&long(n))
            );
            evicted.extend(more);
            list = next;
        }
        assert_eq!(evicted, ["c0", "c1", "c2"]);
        for n in 6..20 {
            list = with(list, "c5", &long(n)).0;
            assert!(list.encode_row().unwrap().len() <= LONGEST && list.find("c5").unwrap().allow(&long(n)));
        }
        assert_eq!((list.0.len(), list.find("c5").unwrap().allowed.len()), (1, 3));
    }
}
