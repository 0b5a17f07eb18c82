//! The stages that calls need: their client, their login, or the site on which the service is mounted.

use std::sync::Arc;

use http::Method;

use super::{RequestContext, incoming::IncomingRequest};
use crate::{
    auth::{
        first_party::site::FirstParty,
        http::problem::{Code, Problem},
        state::logins::StoredLogin,
    },
    client::Client,
    login::LoginId,
    store::StoreError,
    tenant::Tenant,
    util::secret::SecretDigest,
};

/// The result of looking up a client.
type FoundClient = Result<Option<Arc<Client>>, StoreError>;

/// Which clients a call can be about.
#[derive(Clone, Copy)]
pub(crate) enum ClientReach {
    /// Registered clients.
    Registered,
    /// The built-in client of this site too.
    Login,
}

/// A call about a login that was begun in this browser, from an origin that may call.
pub(crate) struct OwnLogin<'a> {
    pub(crate) cx: RequestContext<'a>,
    /// The digest of the login's secret.
    pub(crate) digest: SecretDigest,
    pub(crate) stored: StoredLogin,
}

/// A call to the site on which the service is mounted.
pub(crate) struct SiteCall<'a> {
    pub(crate) cx: RequestContext<'a>,
    pub(crate) site: &'a FirstParty,
    /// The built-in client of the request's tenant.
    pub(crate) client: Client,
}

impl<'a> IncomingRequest<'a> {
    /// Finds the client of a navigation and charges its tenant, or the address if the client is unknown.
    pub(crate) async fn charged_client(
        &mut self,
        id: Option<&str>,
        reach: ClientReach,
    ) -> Result<(RequestContext<'a>, Option<Arc<Client>>), Problem> {
        let client = self.find_client(id, reach).await?;
        let cx = self.charge_with_reserve(tenant_of(&client)).await?;
        Ok((cx, client?))
    }

    /// Finds the client of a call like [`charged_client`](Self::charged_client), and checks that the origin may call. Returns
    /// the context of a charged request even if it is refused.
    pub(crate) async fn charged_caller(
        &mut self,
        id: Option<&str>,
        reach: ClientReach,
    ) -> Result<(RequestContext<'a>, Result<Option<Arc<Client>>, Problem>), Problem> {
        let found = self.find_client(id, reach).await?;
        self.let_read(found.as_ref().ok().and_then(Option::as_deref));
        let cx = self.charge_with_reserve(tenant_of(&found)).await?;
        let client = match found {
            Ok(client) => self.check_origin(client.as_deref().map(Client::tenant)).map(|()| client),
            Err(error) => Err(error.into()),
        };
        Ok((cx, client))
    }

    /// Finds the login that a call is about, if it was begun in this browser. Charges the request and checks the origin.
    ///
    /// A missing cookie, a wrong cookie and an unknown login get the same answer.
    pub(crate) async fn own_login(
        &mut self,
        client_id: Option<&str>,
        session_id: Option<&str>,
    ) -> Result<OwnLogin<'a>, Problem> {
        self.begin_lookup().await?;
        let found = self.login(session_id).await;
        let own = found.as_ref().ok().and_then(Option::as_ref).map(|(_, stored)| &stored.value);
        // the login's client is proved, the client that the call names is not
        let client = self.login_client(own.map(|login| &*login.binding.client_id).or(client_id)).await;
        let known = client.as_ref().ok().and_then(Option::as_deref);
        self.let_read(known);
        let cx = self.charge_with_reserve(own.map(|login| &login.tenant).or(known.map(Client::tenant))).await?;
        let (client, found) = (client?, found?);
        self.check_origin(client.as_deref().map(Client::tenant))?;
        if session_id.is_none() {
            return Err(Problem::invalid("session_id is missing"));
        }
        let unknown = || Problem::new(Code::InvalidSession, "this browser has no login with this session_id");
        let (digest, stored) = found.ok_or_else(unknown)?;
        Ok(OwnLogin { cx, digest, stored })
    }

    /// Finds the login with which a user comes back from another site, and charges the request. The browser names that site
    /// as the origin, so the origin is not checked.
    pub(crate) async fn returning_login(
        &mut self,
        session_id: Option<&str>,
    ) -> Result<(RequestContext<'a>, Option<(SecretDigest, StoredLogin)>), Problem> {
        self.begin_lookup().await?;
        let found = self.login(session_id).await;
        let own = found.as_ref().ok().and_then(Option::as_ref).map(|(_, stored)| &stored.value.tenant);
        let cx = self.charge_with_reserve(own).await?;
        Ok((cx, found?))
    }

    /// Finds the built-in client of the request's tenant, and charges the request to that tenant.
    pub(crate) async fn of_this_site(&mut self) -> Result<SiteCall<'a>, Problem> {
        let (site, client) = self.core.first_party.as_ref().map(|site| (site, site.client(self.head()))).unzip();
        let client = client.flatten();
        let cx = self.charge_with_reserve(client.as_ref().map(Client::tenant)).await?;
        let (site, client) =
            site.zip(client).ok_or(Problem::invalid("no tenant could be determined for this request"))?;
        Ok(SiteCall { cx, site, client })
    }

    /// Like [`of_this_site`](Self::of_this_site), for calls that only pages of this site may send. Reading is also allowed to
    /// programs that aren't browsers.
    pub(crate) async fn of_own_page(&mut self) -> Result<SiteCall<'a>, Problem> {
        let call = self.of_this_site().await?;
        let tenant = Some(call.client.tenant());
        if self.parts.method != Method::POST {
            self.check_origin(tenant)?;
        } else if !call.cx.is_of_own_page() {
            return Err(self.foreign_origin(tenant));
        }
        Ok(call)
    }

    async fn find_client(&mut self, id: Option<&str>, reach: ClientReach) -> Result<FoundClient, Problem> {
        let core = self.begin_lookup().await?;
        Ok(match reach {
            ClientReach::Registered => core.registered_client(id).await,
            ClientReach::Login => self.login_client(id).await,
        })
    }

    /// Finds the client of a login: a registered one, or the built-in one if users sign in to the site itself.
    async fn login_client(&self, id: Option<&str>) -> FoundClient {
        match (id, &self.core.first_party) {
            (Some(Client::FIRST_PARTY), Some(site)) => Ok(site.client(self.head()).map(Arc::new)),
            _ => self.core.registered_client(id).await,
        }
    }

    async fn login(&self, session_id: Option<&str>) -> Result<Option<(SecretDigest, StoredLogin)>, StoreError> {
        let Some(id) = session_id.and_then(LoginId::parse) else { return Ok(None) };
        let Some(digest) = self.core.cookies.secret_of(&self.parts.headers, &id) else { return Ok(None) };
        Ok(self.core.logins.find(&digest).await?.map(|login| (digest, login)))
    }
}

fn tenant_of(found: &FoundClient) -> Option<&Tenant> {
    found.as_ref().ok().and_then(Option::as_deref).map(Client::tenant)
}
