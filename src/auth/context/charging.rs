//! The budget that pays for a request, and the work before it is known which one.

use std::mem;

use super::{RequestContext, incoming::IncomingRequest};
use crate::{
    auth::{core::Core, http::problem::Problem, state::unverified::CountedWork},
    tenant::Tenant,
};

/// The work for a request before it is known whose budget it spends.
pub(super) enum Unverified {
    None,
    Counted(CountedWork),
    /// The request was charged to its tenant.
    Settled,
}

impl<'a> IncomingRequest<'a> {
    /// Charges the request to its tenant, or to the client's address if no tenant is known.
    pub(crate) async fn charge(&mut self, tenant: Option<&Tenant>) -> Result<RequestContext<'a>, Problem> {
        self.charge_as(tenant, false).await
    }

    /// Charges a request with a valid token or secret to this tenant. It can also spend what is reserved.
    pub(crate) async fn charge_proved(&mut self, tenant: &Tenant) -> Result<RequestContext<'a>, Problem> {
        self.charge_as(Some(tenant), true).await
    }

    /// Charges the client address for a request that names no tenant. If the address is unknown, nothing is charged: a budget
    /// of all callers would let a stranger stop them.
    pub(crate) async fn charge_asset(&mut self) -> Result<RequestContext<'a>, Problem> {
        if let Some(address) = self.address.clone() {
            self.pass = Some(self.core.limits.tenants.charge(address, false, self.head()).wait().await?);
        }
        Ok(self.charged())
    }

    /// Returns the value, or charges the client's address for a request that cannot be read.
    pub(crate) async fn or_charge<T>(&mut self, read: Result<T, Problem>) -> Result<T, Problem> {
        if read.is_err() {
            self.charge(None).await?;
        }
        read
    }

    /// Counts a lookup or a signature check that is needed to find out whose budget the request spends. Charging the request
    /// to a tenant uncounts it.
    pub(crate) async fn begin_lookup(&mut self) -> Result<&'a Core, Problem> {
        if let Unverified::None = self.unverified {
            let work = self.core.limits.unverified.begin(self.address.as_ref()).await?;
            self.unverified = Unverified::Counted(work);
        }
        Ok(self.core)
    }

    /// Gives back the place of unverified work that is counted only while it lasts.
    pub(super) fn release_place(&mut self) {
        if matches!(self.unverified, Unverified::Counted(CountedWork::AtOnce { .. })) {
            self.unverified = Unverified::None;
        }
    }

    /// The next stage. Call it only after a charge.
    fn charged(&self) -> RequestContext<'a> {
        RequestContext {
            core: self.core,
            parts: self.parts,
            address: self.address.clone(),
            is_read_elsewhere: self.is_read_elsewhere(),
        }
    }

    async fn charge_as(&mut self, tenant: Option<&Tenant>, is_proved: bool) -> Result<RequestContext<'a>, Problem> {
        self.charge_share(tenant).await?;
        self.charge_payer(tenant.cloned().or(self.address.clone()), tenant.is_some(), is_proved).await
    }

    /// Charges a request like [`charge`](Self::charge). If only the reserve is left, a session or a refresh token of this
    /// tenant can spend it. It is looked up only then.
    pub(super) async fn charge_browser(&mut self, tenant: Option<&Tenant>) -> Result<RequestContext<'a>, Problem> {
        self.charge_share(tenant).await?;
        let charged = self.charge_payer(tenant.cloned().or(self.address.clone()), tenant.is_some(), false).await;
        if let (Err(_), Some(tenant)) = (&charged, tenant)
            && self.core.limits.tenants.has_reserve(tenant)
            && Box::pin(self.is_of_a_user(tenant)).await
        {
            return self.charge_payer(Some(tenant.clone()), true, true).await;
        }
        charged
    }

    /// Returns whether the request comes with a session or a refresh token of this tenant.
    async fn is_of_a_user(&self, tenant: &Tenant) -> bool {
        if let (Some(text), Some(tokens)) = (&self.refresh_token, &self.core.tokens)
            && let Ok(keyed) = self.core.keyed().await
            && let Ok(Some(presented)) = tokens.service.presented(text, keyed).await
        {
            return tokens.service.is_usable(&presented)
                && presented.grant().who.tenant == *tenant
                && tokens.service.has_ended(presented.grant()).await.is_ok_and(|has_ended| !has_ended);
        }
        let session = self.core.sessions.presented(&self.parts.headers, tenant).await;
        session.is_ok_and(|session| session.is_some())
    }

    async fn charge_share(&self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        if let (Some(share), Some(_), Some(address)) = (&self.core.limits.per_address, tenant, &self.address) {
            share.charge(address.clone(), false, self.head()).wait().await?;
        }
        Ok(())
    }

    async fn charge_payer(
        &mut self,
        payer: Option<Tenant>,
        is_tenant: bool,
        is_proved: bool,
    ) -> Result<RequestContext<'a>, Problem> {
        let payer = payer.unwrap_or_else(Tenant::anonymous);
        // refused requests stay counted, because each of them costs a lookup
        self.pass = Some(self.core.limits.tenants.charge(payer, is_proved, self.head()).wait().await?);
        if is_tenant && let Unverified::Counted(work) = mem::replace(&mut self.unverified, Unverified::Settled) {
            self.core.limits.unverified.refund(work);
        }
        Ok(self.charged())
    }
}
